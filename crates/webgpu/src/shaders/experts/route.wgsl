// Chooses the experts of each row and their weights. Of equal ranks the expert with the lower
// number comes first. A workgroup computes a row; choices are written in ascending order of experts.
@group(0) @binding(0) var<storage, read_write> logits: array<f32>;
@group(0) @binding(1) var<storage, read> correction: array<f32>;
@group(0) @binding(2) var<storage, read> inbox: array<u32>;
// Expert, weight and slot of each choice, [rows, chosen, 3].
@group(0) @binding(3) var<storage, read_write> choices: array<u32>;
@group(0) @binding(4) var<storage, read> factors: array<f32>;

const NONE = 0xffffffffu;
const LANES = 64u;
const MAX_EXPERTS = 1024u;
const MAX_CHOSEN = 64u;
// The lowest rank, that of NaN too; that of experts in groups left out; the least of a group; that
// of what was chosen.
const MIN_RANK = -1.7e38;
const LEFT_OUT = -2.5e38;
const MIN_WORTH = -3.3e38;
const TAKEN = -3.4e38;

var<workgroup> scores: array<f32, MAX_EXPERTS>;
var<workgroup> ranks: array<f32, MAX_EXPERTS>;
var<workgroup> worths: array<f32, MAX_EXPERTS>;
var<workgroup> lane_values: array<f32, LANES>;
var<workgroup> lane_places: array<u32, LANES>;
var<workgroup> experts: array<u32, MAX_CHOSEN>;
var<workgroup> expert_weights: array<f32, MAX_CHOSEN>;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var row = group.x; row < params.rows; row += groups.x) {
        score_experts(row, lane);
        if params.given_at != NONE {
            for (var at = lane; at < params.chosen; at += LANES) {
                experts[at] = inbox[params.given_at + row * params.chosen + at];
            }
        } else {
            choose(lane);
        }
        workgroupBarrier();
        if lane == 0u {
            weigh();
            write_sorted(row);
        }
        workgroupBarrier();
    }
}

fn score_experts(row: u32, lane: u32) {
    let start = row * params.count;
    var largest = TAKEN;
    for (var at = lane; at < params.count; at += LANES) {
        largest = max(largest, logits[start + at]);
    }
    largest = largest_of_lanes(largest, lane);
    workgroupBarrier();
    var sum = 0.0;
    for (var at = lane; at < params.count; at += LANES) {
        let logit = logits[start + at];
        var score = logit;
        switch params.scores {
            case SCORES_SOFTMAX: {
                score = exp_to_one(logit - largest);
                sum += score;
            }
            case SCORES_SOFTMAX_OF_CHOSEN: {}
            case SCORES_SIGMOID: { score = sigmoid(logit); }
            default: { score = sqrt(softplus(logit)); }
        }
        scores[at] = score;
    }
    sum = sum_of_lanes(sum, lane);
    for (var at = lane; at < params.count; at += LANES) {
        if params.scores == SCORES_SOFTMAX {
            scores[at] /= sum;
        }
        var rank = scores[at];
        if params.corrected != 0u {
            rank += correction[at];
        }
        let is_nan = (bitcast<u32>(rank) & 0x7fffffffu) > 0x7f800000u;
        ranks[at] = select(max(rank, MIN_RANK), MIN_RANK, is_nan);
    }
    workgroupBarrier();
}

fn choose(lane: u32) {
    if params.groups > 0u {
        leave_groups(lane);
    }
    for (var at = 0u; at < params.chosen; at++) {
        var best = lane;
        for (var other = lane + LANES; other < params.count; other += LANES) {
            if ranks[other] > ranks[best] {
                best = other;
            }
        }
        lane_places[lane] = select(NONE, best, lane < params.count);
        lane_values[lane] = TAKEN;
        if lane < params.count {
            lane_values[lane] = ranks[best];
        }
        workgroupBarrier();
        for (var half = LANES / 2u; half > 0u; half /= 2u) {
            if lane < half {
                keep_better(lane, lane + half);
            }
            workgroupBarrier();
        }
        if lane == 0u {
            experts[at] = lane_places[0];
            ranks[lane_places[0]] = TAKEN;
        }
        workgroupBarrier();
    }
}

fn keep_better(lane: u32, other: u32) {
    let less = lane_values[other] < lane_values[lane];
    let same = lane_values[other] == lane_values[lane];
    if !less && (!same || lane_places[other] < lane_places[lane]) {
        lane_values[lane] = lane_values[other];
        lane_places[lane] = lane_places[other];
    }
}

// Leaves the experts of all but the best groups out.
fn leave_groups(lane: u32) {
    let size = params.count / params.groups;
    for (var group = lane; group < params.groups; group += LANES) {
        var first = group * size;
        for (var at = first + 1u; at < (group + 1u) * size; at++) {
            if ranks[at] > ranks[first] {
                first = at;
            }
        }
        var second = 0.0;
        if params.best_two != 0u && size > 1u {
            second = TAKEN;
            for (var at = group * size; at < (group + 1u) * size; at++) {
                if at != first {
                    second = max(second, ranks[at]);
                }
            }
        }
        worths[group] = max(ranks[first] + second, MIN_WORTH);
    }
    workgroupBarrier();
    if lane == 0u {
        for (var round = 0u; round < params.groups_chosen; round++) {
            var best = 0u;
            for (var group = 1u; group < params.groups; group++) {
                if worths[group] > worths[best] {
                    best = group;
                }
            }
            worths[best] = TAKEN;
        }
    }
    workgroupBarrier();
    for (var at = lane; at < params.count; at += LANES) {
        if worths[at / size] != TAKEN {
            ranks[at] = LEFT_OUT;
        }
    }
    workgroupBarrier();
}

// Makes weights of the scores of the chosen.
fn weigh() {
    var largest = TAKEN;
    for (var at = 0u; at < params.chosen; at++) {
        expert_weights[at] = scores[experts[at]];
        largest = max(largest, expert_weights[at]);
    }
    if params.scores == SCORES_SOFTMAX_OF_CHOSEN {
        var sum = 0.0;
        for (var at = 0u; at < params.chosen; at++) {
            expert_weights[at] = exp_to_one(expert_weights[at] - largest);
            sum += expert_weights[at];
        }
        for (var at = 0u; at < params.chosen; at++) {
            expert_weights[at] /= sum;
        }
    }
    var total = 0.0;
    for (var at = 0u; at < params.chosen; at++) {
        total += expert_weights[at];
    }
    // What keeps routers from dividing by zero, and changes nothing else.
    total = select(1.0, total + 1e-20, params.normalise != 0u);
    for (var at = 0u; at < params.chosen; at++) {
        expert_weights[at] = expert_weights[at] / total * params.scale;
        if (params.scaled != 0u) {
            expert_weights[at] *= factors[experts[at]];
        }
    }
}

// Writes the choices in ascending order of experts, equal ones as they were chosen.
fn write_sorted(row: u32) {
    for (var at = 1u; at < params.chosen; at++) {
        let expert = experts[at];
        let weight = expert_weights[at];
        var place = at;
        while place > 0u {
            if experts[place - 1u] <= expert {
                break;
            }
            experts[place] = experts[place - 1u];
            expert_weights[place] = expert_weights[place - 1u];
            place -= 1u;
        }
        experts[place] = expert;
        expert_weights[place] = weight;
    }
    for (var at = 0u; at < params.chosen; at++) {
        let to = 3u * (row * params.chosen + at);
        choices[to] = experts[at];
        choices[to + 1u] = bitcast<u32>(expert_weights[at]);
        choices[to + 2u] = NONE;
    }
}
