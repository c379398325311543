//! What low-rank adapters add to the outputs of projections.

use crate::on_every_device;
use crate::pair::Pair;
use backend::{
    AdaptedRows, Adapter, AdapterOperations, AdapterSet, Buffer, Cpu, LowRank, Mode, Operations,
    ScaledAdapter,
};
use base::Rng;
use kernels::Isa;
use std::sync::Arc;

/// Inputs, and outputs of two projections.
const INPUTS: usize = 1100;
const OUTPUTS: [usize; 2] = [83, 16];

/// An adapter of both projections, or of one; half of them have values in BF16 alone.
fn adapter(rng: &mut Rng, number: usize) -> Arc<Adapter> {
    let pair = |rng: &mut Rng, outputs: usize| {
        let rank = 1 + rng.below(40) as usize;
        let cut = rng.below(2) == 0;
        let mut values = |count: usize| -> Vec<f32> {
            let value = |value: f32| match cut {
                true => f32::from_bits(value.to_bits() >> 16 << 16),
                false => value,
            };
            (0..count).map(|_| value(rng.normal())).collect()
        };
        let (a, b) = (values(rank * INPUTS), values(outputs * rank));
        LowRank::new(rank, [&a, &b], 0.05, Mode::Exact).unwrap()
    };
    let pairs = OUTPUTS.map(|outputs| (rng.below(4) > 0).then(|| pair(rng, outputs)));
    Arc::new(Adapter::new(number.to_string(), pairs.into()))
}

/// Consecutive rows with sets of adapters, some rows without any.
fn adapted(rng: &mut Rng, rows: usize) -> Vec<AdaptedRows> {
    let adapters: Vec<_> = (0..3).map(|number| adapter(rng, number)).collect();
    let mut all = Vec::new();
    let mut from = rng.below(3) as usize;
    while from < rows {
        let to = (from + 1 + rng.below(30) as usize).min(rows);
        let first = rng.below(3) as usize;
        let chosen = &adapters[first..=(first + rng.below(2) as usize).min(2)];
        let scaled = |it: &Arc<Adapter>| ScaledAdapter { adapter: it.clone(), scale: 0.7 };
        let set = AdapterSet::new(chosen.iter().map(scaled));
        all.push(AdaptedRows { rows: from..to, adapters: set });
        from = to + rng.below(3) as usize;
    }
    all
}

fn outputs(pair: &mut Pair, rows: usize) -> [(usize, Buffer); 2] {
    [0, 1].map(|at| (at, pair.buffer(rows, OUTPUTS[at])))
}

#[test]
fn products_of_low_rank_factors_are_added_to_the_rows_of_their_adapters() {
    on_every_device(12, |pair| {
        if pair.tested.adapters().is_none() {
            return;
        }
        let rows = pair.number(1, 70);
        let x = pair.buffer(rows, INPUTS);
        let (outputs, adapted) = (outputs(pair, rows), adapted(&mut pair.rng, rows));
        pair.both(|backend| {
            let adapters = backend.adapters().expect("both devices compute adapters");
            adapters.add_low_rank(x, &outputs, &adapted);
        });
        for (_, out) in outputs {
            pair.agree(out, rows, 2e-5, "outputs with adapters");
        }
    });
}

#[test]
fn a_row_has_the_same_bits_alone_as_among_rows_of_other_adapters() {
    let mut rng = Rng::new(7);
    for isa in Isa::available() {
        let mut cpu = Cpu::with_isa(2, Mode::Fast, isa).unwrap();
        let rows = 61;
        let x = cpu.buffer(rows, INPUTS).unwrap();
        let out = OUTPUTS.map(|width| cpu.buffer(rows, width).unwrap());
        let outputs = [(0, out[0]), (1, out[1])];
        let values: Vec<f32> = (0..rows * INPUTS).map(|_| rng.normal()).collect();
        let adapted = adapted(&mut rng, rows);
        let mut run = |values: &[f32], adapted: &[AdaptedRows]| {
            let count = values.len() / INPUTS;
            cpu.update(x, count, &mut |to| to.copy_from_slice(values));
            for out in out {
                cpu.update(out, count, &mut |to| to.fill(0.25));
            }
            cpu.add_low_rank(x, &outputs, adapted);
            out.map(|out| cpu.read(out, count).to_vec())
        };
        let together = run(&values, &adapted);
        for row in 0..rows {
            let own = adapted.iter().find(|it| it.rows.contains(&row));
            let own = own.map(|it| AdaptedRows { rows: 0..1, adapters: it.adapters.clone() });
            let alone = run(&values[row * INPUTS..][..INPUTS], own.as_slice());
            for (at, width) in OUTPUTS.into_iter().enumerate() {
                assert!(alone[at] == together[at][row * width..][..width], "{isa:?} row {row}");
            }
        }
    }
}
