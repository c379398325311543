//! What only the inside shows: the words of stored rows, and attention in little space.

use crate::adapter::open_for_tests;
use crate::webgpu::WebGpu;
use crate::webgpu::held::cache::{CachedRows, Form};
use backend::{
    AttentionSpec, Batch, Buffer, Cache, CacheSpec, Executor, GroupSize, KvType, LayerCache,
    Operations, Rounding, RowLayout, Rows, Weights, Window,
};

fn values(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 7 + seed * 13 + 1) as f32 * 0.7).sin() * 3.0).collect()
}

fn filled(gpu: &mut WebGpu, width: usize, values: &[f32]) -> Buffer {
    let buffer = gpu.buffer(values.len() / width, width).unwrap();
    gpu.update(buffer, values.len() / width, &mut |to| to.copy_from_slice(values));
    buffer
}

fn cache(gpu: &mut WebGpu, rows: &[Rows], ty: KvType, blocks: usize) {
    let layers = [LayerCache { rows: rows.to_vec(), state: None }];
    let groups = [None, Some(8)].map(|window| GroupSize { window, blocks });
    let spec = CacheSpec { layers: &layers, block: 32, groups: &groups, states: 0, guesses: 0, ty };
    gpu.cache(&spec).unwrap();
    let bytes: usize = rows.iter().map(|rows| gpu.block_bytes(rows, 32, ty)).sum();
    assert_eq!(gpu.memory().cache, bytes * blocks);
}

/// The values of a plain row, as the host reads its words.
fn plain_row(gpu: &mut WebGpu, which: usize, block: usize, place: usize) -> Vec<f32> {
    let cached = gpu.kv.rows(0, which);
    let CachedRows { form, rows, words, .. } = cached;
    let (form, dim, words, len) = (*form, rows.dim, words.clone(), cached.row_words());
    let places = rows.places(cached.block);
    let mut row = vec![0; len];
    gpu.gpu.read(&words, (block * places + place) * len, &mut row);
    let halves = row.iter().flat_map(|word| [*word as u16, (word >> 16) as u16]).take(dim);
    match form {
        Form::F32 => row.iter().map(|word| f32::from_bits(*word)).collect(),
        Form::Bf16 => halves.map(|half| half::bf16::from_bits(half).to_f32()).collect(),
        Form::F16 => halves.map(|half| half::f16::from_bits(half).to_f32()).collect(),
        Form::Q8_0 => panic!("no type of plain rows"),
    }
}

#[test]
fn plain_rows_have_the_values_of_the_cpu() {
    let Some(mut gpu) = open_for_tests() else { return };
    let extremes = [1e-7, -3e-5, 5.96e-8, 2.9e-8, 65_504.0, 65_519.0, 65_520.0, -1e9, 0.0, 6e-5];
    let dim = 41;
    for ty in KvType::ALL {
        let layout = RowLayout::Plain(Rounding::Fp8 { rotated: 9 });
        let rows = [Rows::plain(dim, None), Rows { layout, ..Rows::plain(dim, Some(8)) }];
        cache(&mut gpu, &rows, ty, 3);
        let mut x = values(40 * dim, 1);
        x[dim + 32..][..9].copy_from_slice(&extremes[..9]);
        x[10 * dim..][..10].copy_from_slice(&extremes);
        let mut rounded = x.clone();
        for row in rounded.chunks_exact_mut(dim) {
            kernels::kv::round(kernels::Isa::SCALAR, Rounding::Fp8 { rotated: 9 }, row);
        }
        let mut batch = Batch::with_capacity(40, 2, 1);
        batch.push([&[0; 40], &[]], 24, 1);
        batch.table(&[2, 1]);
        batch.table(&[0, 2]);
        let buffers = [&x, &rounded].map(|x| filled(&mut gpu, dim, x));
        gpu.begin(&batch);
        for (which, (values, buffer)) in [&x, &rounded].into_iter().zip(buffers).enumerate() {
            gpu.store_rows(0, which, buffer, &batch);
            let plain = rows[which].plain_rows(ty);
            for row in [0, 1, 7, 8, 10, 39] {
                let (at, place) = ((24 + row) / 32, (24 + row) % 32);
                let block = [[2, 1], [0, 2]][which][at];
                let mut bytes = vec![0; plain.row_bytes()];
                let mut want = vec![0.0; dim];
                plain.store(&mut bytes, &values[row * dim..][..dim]);
                plain.load(&bytes, &mut want);
                assert_eq!(plain_row(&mut gpu, which, block, place), want, "{plain:?} {row}");
            }
        }
        gpu.end().unwrap();
    }
}

/// Results of attention of rows of two sequences, the longer one of 1500 positions.
fn attended(gpu: &mut WebGpu, partials: Option<usize>) -> Vec<f32> {
    let (dim, heads) = (16, 2);
    let rows = LayerCache::heads(1, dim, None, None).rows;
    cache(gpu, &rows, KvType::F32, 94);
    if let Some(words) = partials {
        gpu.kv.partials = Some(gpu.gpu.zeroed(words).unwrap());
    }
    let [q, k, v] = [heads, 1, 1].map(|heads| values(120 * heads * dim, heads));
    let [q, k, v] = [(q, heads), (k, 1), (v, 1)].map(|(x, heads)| filled(gpu, heads * dim, &x));
    let out = gpu.buffer(120, heads * dim).unwrap();
    let mut batch = Batch::with_capacity(120, 94, 1);
    let table: Vec<u32> = (0..47).collect();
    batch.push([&[0; 100], &[]], 1400, 1);
    batch.table(&table);
    batch.table(&[]);
    batch.push([&[0; 20], &[]], 500, 1);
    batch.table(&table[..17]);
    batch.table(&[]);
    let sinks = Some(gpu.vector(vec![0.5, -1.0]));
    let spec = AttentionSpec { heads, scale: 0.3, window: Window::ALL, sinks };
    gpu.begin(&batch);
    gpu.store_kv(0, k, Some(v), &batch);
    gpu.attention(0, q, out, &spec, &batch);
    gpu.fetch(out, 120);
    gpu.end().unwrap();
    gpu.read(out, 120).to_vec()
}

#[test]
fn attention_in_little_space_has_the_same_bits() {
    let Some(mut gpu) = open_for_tests() else { return };
    let want = attended(&mut gpu, None);
    for results in [3, 4, 20] {
        let got = attended(&mut gpu, Some(results * 2 * 18));
        let same = want.iter().zip(&got).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same && got.len() == want.len(), "{results}");
    }
}
