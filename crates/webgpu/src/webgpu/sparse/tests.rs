//! Passes of limited size, which only the inside shows.

use crate::adapter::open_for_tests;
use crate::webgpu::WebGpu;
use crate::webgpu::held::selections::Workplace;
use backend::{
    Batch, Buffer, Cache, CacheSpec, Compression, Executor, GroupSize, IndexSpec, KvType,
    LayerCache, Operations, Pairs, RowAttention, RowRuns, Rows, Weights,
};

/// Rows of the batch, values of rows, and heads.
const ROWS: usize = 90;
const DIM: usize = 40;
const HEADS: usize = 3;

fn filled(gpu: &mut WebGpu, width: usize, seed: usize) -> Buffer {
    let buffer = gpu.buffer(ROWS, width).unwrap();
    gpu.update(buffer, ROWS, &mut |to| {
        let value = |at: usize| ((at * 7 + seed * 13 + 1) as f32 * 0.7).sin();
        to.iter_mut().enumerate().for_each(|(at, to)| *to = value(at));
    });
    buffer
}

/// Outputs of chosen rows and of all, with space for `most` scores.
fn outputs(most: usize) -> Option<[Vec<f32>; 2]> {
    let mut gpu = open_for_tests()?;
    gpu.sparse = Workplace { most, ..Workplace::default() };
    let window = Rows::plain(DIM, Some(8));
    let input = Rows::plain(DIM, Some(2));
    let rows = vec![window, input, input, Rows { every: 2, ..Rows::plain(DIM, None) }];
    let layers = [LayerCache { rows, state: None }];
    let groups = [None, Some(8), Some(2)].map(|window| GroupSize { window, blocks: 6 });
    let spec = CacheSpec {
        layers: &layers,
        block: 16,
        groups: &groups,
        states: 0,
        guesses: 0,
        ty: KvType::F32,
    };
    gpu.cache(&spec).unwrap();
    let mut batch = Batch::with_capacity(ROWS, 18, 3);
    batch.push([&[0; ROWS], &[]], 0, 1);
    (0..3).for_each(|_| batch.table(&[4, 2, 0, 1, 3, 5]));
    let rope = gpu.rope(vec![0.5; 4], 1.0.into(), Pairs::Halves, ROWS).unwrap();
    let (bias, norm) = (gpu.vector(vec![0.5; 2 * DIM]), Some((gpu.vector(vec![1.5; DIM]), 1e-6)));
    let compression = Compression {
        values: 1,
        gates: Some((2, bias)),
        out: 3,
        overlap: false,
        norm,
        rope: Some((rope, DIM - 8)),
    };
    let selection = gpu.selection(ROWS, 5).unwrap();
    let x = [0, 1, 2].map(|seed| filled(&mut gpu, DIM, seed));
    let q = filled(&mut gpu, HEADS * DIM, 3);
    let weights = filled(&mut gpu, HEADS, 4);
    gpu.begin(&batch);
    for (which, x) in x.into_iter().enumerate() {
        gpu.store_rows(0, which, x, &batch);
    }
    gpu.compress(0, &compression, &batch);
    let (runs, heads) = (RowRuns::SINGLE, HEADS);
    let index = IndexSpec { rows: 3, runs, last: 0, heads, first: 0, selection };
    gpu.select_rows(0, q, weights, &index, &batch);
    Some([Some(selection), None].map(|selection| {
        let out = filled(&mut gpu, HEADS * DIM, 5);
        let compressed = Some(3);
        let spec = RowAttention {
            heads: HEADS,
            scale: 0.3,
            sinks: None,
            window: Some(0),
            compressed,
            selection,
            runs: RowRuns::SINGLE,
            first: 0,
        };
        gpu.attend_rows(0, q, out, &spec, &batch);
        gpu.fetch(out, ROWS);
        gpu.end().unwrap();
        gpu.read(out, ROWS).to_vec()
    }))
}

#[test]
fn passes_do_not_change_bits() {
    let Some(whole) = outputs(1 << 16) else { return };
    assert!(whole.iter().flatten().all(|value| value.is_finite()));
    assert_ne!(whole[0], whole[1]);
    // A row, some rows, and less than a row at a time.
    for most in [1, 200, 1000] {
        assert_eq!(outputs(most).unwrap(), whole, "{most} scores");
    }
}
