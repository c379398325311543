// The gated delta rule, or a state space. A workgroup takes some value columns of a head of a sequence through the
// rows: first guesses of the step before that proved right, then rows of the batch. All go through
// one loop, so that a row has the same bits however rows are cut into steps.
//
// The state is in private memory: an invocation has the entries of one column whose keys have the
// same remainder modulo PARTS. A sum over keys adds those of each remainder in ascending order,
// then the sums of the remainders in ascending order. PER is the number of entries.
@group(0) @binding(0) var<storage, read> batch: array<u32>;
// Shares of values that pass by the state, in a state space.
@group(0) @binding(1) var<storage, read> skips: array<f32>;
@group(0) @binding(2) var<storage, read_write> states: array<f32>;
@group(0) @binding(3) var<storage, read_write> waiting: array<f32>;
@group(0) @binding(4) var<storage, read_write> q: array<f32>;
@group(0) @binding(5) var<storage, read_write> k: array<f32>;
@group(0) @binding(6) var<storage, read_write> v: array<f32>;
@group(0) @binding(7) var<storage, read_write> decays: array<f32>;
@group(0) @binding(8) var<storage, read_write> betas: array<f32>;
@group(0) @binding(9) var<storage, read_write> out: array<f32>;

const COLUMNS = 16u;
const PARTS = 8u;
const LANES = COLUMNS * PARTS;
const KEYS = PARTS * PER;

// Keys, then queries, then decays, of two rows: those of the next are read while those of one are used.
var<workgroup> inputs: array<f32, 6u * KEYS>;
// What the state knows of the key, what the query reads, and key times query.
var<workgroup> sums: array<vec3<f32>, LANES>;
var<private> state: array<f32, PER>;

// What a workgroup computes.
struct Task {
    sequence: u32,
    // Head among those of the layer, and head of keys.
    head: u32,
    key_head: u32,
    column: u32,
    part: u32,
    lane: u32,
}

fn entry(task: Task, slot: u32, i: u32) -> u32 {
    let head = slot * params.heads + task.head - params.first_head;
    return (head * params.keys + i * PARTS + task.part) * params.values + task.column;
}

fn holds(task: Task, i: u32) -> bool {
    return task.column < params.values && i * PARTS + task.part < params.keys;
}

fn load_state(task: Task, slot: u32) {
    let first = sequence_word(task.sequence, 2u);
    for (var i = 0u; i < PER; i++) {
        state[i] = 0.0;
        if first > 0u && holds(task, i) {
            state[i] = states[entry(task, slot, i)];
        }
    }
}

fn save_state(task: Task, slot: u32) {
    for (var i = 0u; i < PER; i++) {
        if holds(task, i) {
            states[entry(task, slot, i)] = state[i];
        }
    }
}

// The values of a row from here on lie in memory as these say.
struct Row {
    waits: bool,
    // Of a waiting row, its first value, else the row of the batch.
    at: u32,
}

fn load_inputs(task: Task, row: Row, start: u32) {
    let head = task.key_head * params.keys;
    let behind = row.at + params.key_heads * params.keys + params.all_heads * params.values;
    for (var key = task.lane; key < KEYS; key += LANES) {
        var values = vec2(0.0, 0.0);
        if key < params.keys {
            if row.waits {
                values.x = waiting[row.at + head + key];
            } else {
                let at = row.at * params.key_heads * params.keys + head + key;
                values = vec2(k[at], q[at]);
            }
        }
        inputs[start + key] = values.x;
        inputs[start + KEYS + key] = values.y;
        let decay = task.head * params.decays + min(key, params.decays - 1u);
        if row.waits {
            inputs[start + 2u * KEYS + key] = waiting[behind + decay];
        } else {
            let at = row.at * params.all_heads * params.decays + decay;
            inputs[start + 2u * KEYS + key] = decays[at];
        }
    }
}

// Value and beta of a row.
fn gates(task: Task, row: Row) -> vec2<f32> {
    let column = min(task.column, params.values - 1u);
    if row.waits {
        let values = row.at + params.key_heads * params.keys;
        let gate = values + params.all_heads * (params.values + params.decays) + task.head;
        return vec2(waiting[values + task.head * params.values + column], waiting[gate]);
    }
    let at = row.at * params.all_heads + task.head;
    return vec2(v[at * params.values + column], betas[at]);
}

// Takes the state through the row with the inputs at `start`; returns the output of the column.
fn take(task: Task, start: u32, gate: vec2<f32>) -> f32 {
    var part = vec3(0.0, 0.0, 0.0);
    for (var i = 0u; i < PER; i++) {
        let key = inputs[start + i * PARTS + task.part];
        let query = inputs[start + KEYS + i * PARTS + task.part];
        let left = state[i] * inputs[start + 2u * KEYS + i * PARTS + task.part];
        state[i] = left;
        part = fma(vec3(left, left, key), vec3(key, query, query), part);
    }
    sums[task.lane] = part;
    workgroupBarrier();
    var sum = sums[task.lane % COLUMNS];
    for (var i = 1u; i < PARTS; i++) {
        sum += sums[i * COLUMNS + task.lane % COLUMNS];
    }
    let known = select(sum.x, 0.0, params.space != 0u);
    let change = (gate.x - known) * gate.y;
    for (var i = 0u; i < PER; i++) {
        state[i] = fma(inputs[start + i * PARTS + task.part], change, state[i]);
    }
    let read = fma(change, sum.z, sum.y);
    if params.space != 0u {
        return fma(skips[task.head], gate.x, read);
    }
    return read;
}

fn run(task: Task) {
    let slot = sequence_word(task.sequence, 3u);
    let right = sequence_word(task.sequence, 4u);
    let first = sequence_word(task.sequence, 0u);
    let rows = sequence_word(task.sequence, 1u);
    let known = first + rows - sequence_word(task.sequence, 5u);
    let saves_at = sequence_word(task.sequence, 6u);
    let saves = sequence_word(task.sequence, 7u);
    load_state(task, slot);
    var saved = 0u;
    for (var i = 0u; i < right + rows; i++) {
        var row = Row(i < right, first + i - right);
        if row.waits {
            row.at = (slot * params.guesses + i) * params.waiting_row;
        }
        let start = i % 2u * 3u * KEYS;
        load_inputs(task, row, start);
        workgroupBarrier();
        let result = take(task, start, gates(task, row));
        if row.waits {
            continue;
        }
        if task.part == 0u && task.column < params.values {
            out[(row.at * params.all_heads + task.head) * params.values + task.column] = result;
        }
        while saved < saves && batch[saves_at + 2u * saved] == row.at {
            save_state(task, batch[saves_at + 2u * saved + 1u]);
            saved++;
        }
        if row.at + 1u == known {
            save_state(task, slot);
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tiles = (params.values + COLUMNS - 1u) / COLUMNS;
    let count = params.places.sequences * params.heads * tiles;
    for (var i = group.x; i < count; i += groups.x) {
        let head = params.first_head + i / tiles % params.heads;
        var key_head = head / (params.all_heads / params.key_heads);
        if params.tiled != 0u {
            key_head = head % params.key_heads;
        }
        let column = i % tiles * COLUMNS + lane % COLUMNS;
        let sequence = i / tiles / params.heads;
        run(Task(sequence, head, key_head, column, lane / COLUMNS, lane));
    }
}
