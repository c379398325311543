//! Routed experts: all ways to choose them, and their products.

use crate::pair::Pair;
use crate::products::{in_fast_mode, shuffled, weights};
use crate::{on_every_device, open, open_gpu};
use backend::{
    Backend, Buffer, Experts, ExpertsSpec, Gate, GroupRank, Groups, Matrix, MatrixSpec, Mode,
    Routing, Scores, Vector,
};
use kernels::quant::{BF16, F32, Q4_0, Q4_K, Q6_K, Q8_0, QuantType};
use std::sync::Arc;

/// Token ids of tables.
const TOKENS: usize = 20;

/// Sizes of a layer of experts.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    hidden: usize,
    width: usize,
    /// First expert held, experts held, experts in all.
    first: usize,
    held: usize,
    count: usize,
    rows: usize,
}

impl Sizes {
    /// Random sizes, rows of weights being multiples of `block`.
    fn random(pair: &mut Pair, block: usize, rows: usize) -> Self {
        let count = 4 * pair.number(1, 6);
        let first = pair.number(0, count / 4);
        let held = pair.number(1, count - first);
        let [hidden, width] = [0; 2].map(|_| block * pair.number(1, 300usize.div_ceil(block)));
        Self { hidden, width, first, held, count, rows }
    }
}

/// A layer of experts on both, with buffers of its inputs and outputs.
struct Layer {
    experts: Experts,
    x: Buffer,
    logits: Buffer,
    out: Buffer,
    tokens: Vec<u32>,
    sizes: Sizes,
}

/// A matrix of each expert, `[outputs, inputs]`, each with an order of its own where `ordered`.
fn projection(
    pair: &mut Pair,
    ty: &'static QuantType,
    (held, shape): (usize, [usize; 2]),
    ordered: bool,
) -> Vec<Matrix> {
    let one = |_| {
        let bytes = weights(&mut pair.rng, ty, shape[0] * shape[1]);
        let spec = MatrixSpec::new("experts".to_owned(), ty, shape, Arc::new(bytes));
        let order = ordered.then(|| shuffled(&mut pair.rng, shape[1]));
        let spec = MatrixSpec { order, ..spec };
        pair.both(|backend| backend.matrix(spec.clone()).unwrap())
    };
    (0..held).map(one).collect()
}

fn scaled_vector(pair: &mut Pair, len: usize, scale: f32) -> Vector {
    let values: Vec<f32> = pair.values(len).into_iter().map(|value| value * scale).collect();
    pair.both(|backend| backend.vector(values.clone()))
}

/// A random rule that fits `count` experts.
fn routing(pair: &mut Pair, count: usize) -> Routing {
    let kinds = [Scores::Softmax, Scores::SoftmaxOfChosen, Scores::Sigmoid, Scores::SqrtSoftplus];
    let groups = (pair.number(0, 1) == 1).then(|| Groups {
        count: 4,
        chosen: pair.number(1, 4),
        rank: [GroupRank::Best, GroupRank::BestTwo][pair.number(0, 1)],
    });
    let most = groups.map_or(count, |groups| groups.chosen * count / 4);
    Routing {
        chosen: pair.number(1, most.min(8)),
        scores: kinds[pair.number(0, 3)],
        normalise: pair.number(0, 1) == 1,
        scale: 1.0 + pair.number(0, 3) as f32 / 2.0,
        groups,
    }
}

impl Layer {
    fn random(pair: &mut Pair, types: [&'static QuantType; 3], sizes: Sizes) -> Self {
        let Sizes { hidden, width, first, held, count, rows } = sizes;
        let ordered = [0; 3].map(|_| pair.number(0, 3) == 0);
        let gated = pair.number(0, 3) > 0;
        let gate = match gated {
            true => projection(pair, types[0], (held, [width, hidden]), ordered[0]),
            false => Vec::new(),
        };
        let up = projection(pair, types[1], (held, [width, hidden]), ordered[1]);
        let down = projection(pair, types[2], (held, [hidden, width]), ordered[2]);
        let routing = routing(pair, count);
        let biases = (gated && pair.number(0, 1) == 1)
            .then(|| [width, width, hidden].map(|len| pair.vector(held * len)));
        let correction = (pair.number(0, 1) == 1).then(|| scaled_vector(pair, count, 0.5));
        let scales = (pair.number(0, 1) == 1).then(|| scaled_vector(pair, count, 1.5));
        let table: Option<Arc<[u32]>> = (pair.number(0, 3) == 0).then(|| {
            let all = TOKENS * routing.chosen;
            (0..all).map(|_| pair.number(0, count - 1) as u32).collect()
        });
        let kind = match gated {
            true => [Gate::Silu, Gate::Clamped { alpha: 1.7, limit: 2.0 }][pair.number(0, 1)],
            false => [Gate::ReluSquared, Gate::GeluTanh][pair.number(0, 1)],
        };
        let weighs_inputs = pair.number(0, 1) == 1;
        let spec = ExpertsSpec {
            weighs_inputs,
            first,
            count,
            gate,
            up,
            down,
            biases,
            kind,
            routing,
            correction,
            scales,
            table,
            rows,
        };
        let experts = pair.both(|backend| backend.experts(spec.clone()).unwrap());
        let [x, out] = [hidden; 2].map(|width| pair.buffer(rows, width));
        let logits = pair.buffer(rows, count);
        let tokens = (0..rows).map(|_| pair.number(0, TOKENS - 1) as u32).collect();
        Self { experts, x, logits, out, tokens, sizes }
    }

    /// The outputs of both.
    fn agree(&self, pair: &mut Pair, tolerance: f32) {
        let Self { experts, x, logits, out, ref tokens, sizes } = *self;
        pair.both(|backend| backend.mix_experts(x, logits, experts, out, tokens));
        pair.agree(out, sizes.rows, tolerance, &format!("mix_experts {sizes:?}"));
    }
}

#[test]
fn experts_of_all_routings_agree() {
    on_every_device(24, |pair| {
        let rows = [1, pair.number(2, 20), pair.number(21, 90)][pair.number(0, 2)];
        let sizes = Sizes::random(pair, 1, rows);
        let types = [[&F32; 3], [&BF16; 3], [&BF16, &F32, &BF16]][pair.number(0, 2)];
        Layer::random(pair, types, sizes).agree(pair, 2e-5);
    });
}

#[test]
fn experts_of_equal_scores_are_chosen_in_their_order() {
    on_every_device(12, |pair| {
        let sizes = Sizes::random(pair, 1, 30);
        let layer = Layer::random(pair, [&F32; 3], sizes);
        let few = |to: &mut [f32]| to.iter_mut().for_each(|value| *value = value.abs().floor());
        pair.both(|backend| backend.update(layer.logits, 30, &mut |to| few(to)));
        layer.agree(pair, 2e-5);
    });
}

#[test]
fn experts_in_several_pieces_of_memory_agree() {
    // A binding of the software adapter has 128 MiB.
    let (hidden, width, held, rows) = (512, 700, 36, 40);
    on_every_device(1, |pair| {
        if pair.tested.device().name != "reference" {
            let sizes = Sizes { hidden, width, first: 0, held, count: held, rows };
            Layer::random(pair, [&F32; 3], sizes).agree(pair, 2e-5);
        }
    });
}

#[test]
fn experts_of_codes_agree() {
    // Values between both products that differ in their last bits may be rounded to other bytes.
    const ROUNDED: f32 = 5e-3;
    in_fast_mode(10, |pair| {
        let rows = [1, pair.number(2, 20), pair.number(21, 60)][pair.number(0, 2)];
        let types = [[&Q4_0; 3], [&Q4_K, &Q4_K, &Q6_K], [&Q8_0, &Q4_0, &F32]][pair.number(0, 2)];
        let sizes = Sizes::random(pair, 256, rows);
        Layer::random(pair, types, sizes).agree(pair, ROUNDED);
    });
}

/// Asserts that rows have the bits that they have among all.
fn check_rows(pair: &mut Pair, types: [&'static QuantType; 3]) {
    let most = 64;
    let sizes = Sizes::random(pair, 256, most);
    let Layer { experts, x, logits, out, tokens, sizes } = Layer::random(pair, types, sizes);
    let inputs = pair.read(x, most)[1].clone();
    let scores = pair.read(logits, most)[1].clone();
    let tested = &mut *pair.tested;
    let mut mixed = |first: usize, rows: usize| -> Vec<u32> {
        for (buffer, values, width) in [(x, &inputs, sizes.hidden), (logits, &scores, sizes.count)]
        {
            let values = &values[first * width..][..rows * width];
            tested.update(buffer, rows, &mut |to| to.copy_from_slice(values));
        }
        tested.mix_experts(x, logits, experts, out, &tokens[first..][..rows]);
        tested.fetch(out, rows);
        tested.end().unwrap();
        tested.read(out, rows).iter().map(|value| value.to_bits()).collect()
    };
    let all = mixed(0, most);
    for rows in [1, 2, 7, 8, 9, 33] {
        let start = most - rows;
        let some = mixed(start, rows);
        assert!(some == all[start * sizes.hidden..], "{rows} rows among {most}: {sizes:?}");
    }
}

#[test]
fn one_row_alone_has_the_experts_it_has_among_many() {
    on_every_device(3, |pair| {
        if pair.tested.device().name != "reference" {
            check_rows(pair, [&BF16, &F32, &BF16]);
        }
    });
    in_fast_mode(3, |pair| check_rows(pair, [&Q4_K, &Q4_K, &Q6_K]));
}

#[test]
fn experts_that_do_not_fit_are_refused() {
    let Some(tested) = open_gpu(Mode::Exact) else { return };
    let mut pair = Pair::new(open("cpu", Mode::Exact), tested, 0);
    let of = |pair: &mut Pair, held: usize| projection(pair, &F32, (held, [8, 8]), false);
    let (gate, up, down) = (of(&mut pair, 2), of(&mut pair, 2), of(&mut pair, 1));
    let routing = routing(&mut pair, 4);
    let (biases, correction, table) = (None, None, None);
    let (first, count, kind, rows) = (0, 4, Gate::Silu, 1);
    let spec = ExpertsSpec {
        first,
        count,
        gate,
        up,
        down,
        biases,
        kind,
        weighs_inputs: false,
        routing,
        correction,
        scales: None,
        table,
        rows,
    };
    let refused = |backend: &mut dyn Backend| backend.experts(spec.clone()).is_err();
    assert!(pair.both(refused), "a down projection is missing");
}
