//! Keys and values in the cache, and attention over them.

use crate::{on_device, on_every_device, open, open_gpu};
use backend::{
    AttentionSpec, Backend, Batch, BlockCopy, CacheSpec, GroupSize, KvType, LayerCache, Mode,
    Window,
};
use base::Rng;

/// Largest difference of results, as a part of the largest.
const CLOSE: f32 = 1e-5;

/// A layer of attention.
#[derive(Clone, Debug)]
struct Layer {
    kv_heads: usize,
    /// Query heads of a KV head.
    ratio: usize,
    dim: usize,
    latent: Option<usize>,
    window: Option<usize>,
    chunks: bool,
    ahead: usize,
    first: usize,
    sinks: bool,
    ty: KvType,
    block: usize,
}

const LAYER: Layer = Layer {
    kv_heads: 2,
    ratio: 2,
    dim: 64,
    latent: None,
    window: None,
    chunks: false,
    ahead: 0,
    first: 0,
    sinks: false,
    ty: KvType::F32,
    block: 32,
};

/// Queries, keys and values of all positions of a sequence, `[positions, heads * dim]` each.
struct Sequence {
    len: usize,
    inputs: [Vec<f32>; 3],
}

/// How sequences are computed.
#[derive(Clone, Debug, Default)]
struct Plan {
    /// Sequence and number of its next rows, for each part of the batch of each step.
    steps: Vec<Vec<(usize, usize)>>,
    /// Decides on block numbers.
    seed: u64,
    /// Whether all blocks are copied elsewhere after each step.
    moves: bool,
}

impl Layer {
    fn heads(&self) -> usize {
        self.kv_heads * self.ratio
    }

    fn value_dim(&self) -> usize {
        self.latent.unwrap_or(self.dim)
    }

    fn widths(&self) -> [usize; 3] {
        [self.heads() * self.dim, self.kv_heads * self.dim, self.kv_heads * self.dim]
    }

    fn sequences(&self, lens: &[usize], seed: u64) -> Vec<Sequence> {
        let mut rng = Rng::new(seed);
        let mut values = |count: usize| (0..count).map(|_| rng.normal()).collect();
        let sequence =
            |len: &usize| Sequence { len: *len, inputs: self.widths().map(|w| values(w * len)) };
        lens.iter().map(sequence).collect()
    }
}

/// A backend with a layer, and what it computes for sequences.
struct Run<'a> {
    backend: &'a mut dyn Backend,
    layer: &'a Layer,
    sequences: &'a [Sequence],
    /// Buffers of queries, keys, values and results, for `most` rows.
    buffers: [backend::Buffer; 4],
    most: usize,
    spec: AttentionSpec,
    /// Blocks of each sequence, and blocks that are free.
    tables: Vec<Vec<u32>>,
    free: Vec<u32>,
    /// Positions that each sequence has, and results.
    done: Vec<usize>,
    results: Vec<Vec<f32>>,
}

impl<'a> Run<'a> {
    fn new(
        backend: &'a mut dyn Backend,
        layer: &'a Layer,
        sequences: &'a [Sequence],
        plan: &Plan,
    ) -> Self {
        let rows = |step: &Vec<(usize, usize)>| step.iter().map(|part| part.1).sum::<usize>();
        let most = plan.steps.iter().map(rows).max().unwrap().max(64);
        let blocks: usize = sequences.iter().map(|s| s.len.div_ceil(layer.block)).sum();
        let blocks = 2 * blocks + 3;
        let groups = [GroupSize { window: layer.window, blocks }];
        let layers = [LayerCache::heads(layer.kv_heads, layer.dim, layer.latent, layer.window)];
        let (block, ty) = (layer.block, layer.ty);
        let spec = CacheSpec { layers: &layers, block, groups: &groups, states: 0, guesses: 0, ty };
        let [q, k, v] = layer.widths();
        let widths = [q, k, v, layer.heads() * layer.value_dim()];
        let buffers = widths.map(|width| backend.buffer(most, width).unwrap());
        let sinks = layer.sinks.then(|| {
            backend.vector((0..layer.heads()).map(|head| head as f32 * 0.7 - 1.0).collect())
        });
        backend.cache(&spec).unwrap();
        let mut rng = Rng::new(plan.seed);
        let mut free: Vec<u32> = (0..blocks as u32).collect();
        for at in (1..free.len()).rev() {
            free.swap(at, rng.below(at as u64 + 1) as usize);
        }
        let heads = layer.heads();
        let positions = layer.window.unwrap_or(usize::MAX);
        let window =
            Window { positions, is_chunk: layer.chunks, ahead: layer.ahead, first: layer.first };
        let scale = 1.5 / (layer.dim as f32).sqrt();
        Self {
            backend,
            layer,
            sequences,
            buffers,
            most,
            spec: AttentionSpec { heads, scale, window, sinks },
            tables: vec![Vec::new(); sequences.len()],
            free,
            done: vec![0; sequences.len()],
            results: vec![Vec::new(); sequences.len()],
        }
    }

    /// Sets rows of a buffer from `first` on.
    fn set(&mut self, which: usize, rows: usize, values: &[f32]) {
        self.backend.update(self.buffers[which], rows, &mut |to| to.copy_from_slice(values));
    }

    fn store(&mut self, batch: &Batch) {
        let [_, keys, values, _] = self.buffers;
        let values = self.layer.latent.is_none().then_some(values);
        self.backend.store_kv(0, keys, values, batch);
    }

    /// Fills all blocks with NaN.
    fn poison(&mut self) {
        let table = self.free.clone();
        let all = table.len() * self.layer.block;
        for which in [1, 2] {
            let nan = vec![f32::NAN; self.most * self.layer.widths()[which]];
            self.set(which, self.most, &nan);
        }
        for first in (0..all).step_by(self.most) {
            let rows = self.most.min(all - first);
            let mut batch = Batch::with_capacity(rows, table.len(), 1);
            batch.push([&vec![0; rows], &[]], first, 1);
            batch.table(&table[..(first + rows).div_ceil(self.layer.block)]);
            self.backend.begin(&batch);
            self.store(&batch);
            self.backend.end().unwrap();
        }
    }

    fn step(&mut self, parts: &[(usize, usize)]) {
        let block = self.layer.block;
        let mut batch = Batch::with_capacity(self.most, 1000, 1);
        let mut inputs = [const { Vec::new() }; 3];
        for &(at, rows) in parts {
            let (first, end) = (self.done[at], self.done[at] + rows);
            while self.tables[at].len() * block < end {
                self.tables[at].push(self.free.pop().unwrap());
            }
            batch.push([&vec![0; rows], &[]], first, 1);
            let oldest = self.spec.window.first_seen(first);
            let mut table = self.tables[at][..end.div_ceil(block)].to_vec();
            table[..oldest / block].fill(u32::MAX);
            batch.table(&table);
            for ((to, from), width) in
                inputs.iter_mut().zip(&self.sequences[at].inputs).zip(self.layer.widths())
            {
                to.extend_from_slice(&from[first * width..end * width]);
            }
            self.done[at] = end;
        }
        let rows = batch.rows();
        (0..3).for_each(|which| self.set(which, rows, &inputs[which]));
        self.backend.begin(&batch);
        self.store(&batch);
        let [q, .., out] = self.buffers;
        let backend = &mut *self.backend;
        match self.layer.ahead {
            0 => backend.attention(0, q, out, &self.spec, &batch),
            _ => {
                let attention = backend.bidirectional().expect("the device attends both ways");
                attention.attend_both_ways(0, q, out, &self.spec, &batch);
            }
        }
        self.backend.fetch(self.buffers[3], rows);
        self.backend.end().unwrap();
        let results = self.backend.read(self.buffers[3], rows);
        let width = self.layer.heads() * self.layer.value_dim();
        let mut at = 0;
        for &(sequence, rows) in parts {
            self.results[sequence].extend_from_slice(&results[at * width..(at + rows) * width]);
            at += rows;
        }
    }

    /// Copies every block to a free one, and one of them on to a third.
    fn move_blocks(&mut self) {
        let mut copies = Vec::new();
        let mut copy = |block: &mut u32, free: &mut Vec<u32>| {
            let to = free.pop().unwrap();
            copies.push(BlockCopy { group: 0, from: *block, to });
            free.insert(0, *block);
            *block = to;
        };
        self.tables.iter_mut().flatten().for_each(|block| copy(block, &mut self.free));
        let first = self.tables.iter_mut().flatten().next();
        first.into_iter().for_each(|block| copy(block, &mut self.free));
        self.backend.copy_blocks(&copies);
    }

    /// The results of each sequence, `[positions, heads * value]`.
    fn results(mut self, plan: &Plan) -> Vec<Vec<f32>> {
        self.poison();
        for parts in &plan.steps {
            self.step(parts);
            if plan.moves {
                self.move_blocks();
            }
        }
        self.results
    }
}

/// The largest of some values.
fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, value| most.max(value.abs()))
}

/// Asserts that values differ by rounding at most.
fn assert_close(want: &[Vec<f32>], got: &[Vec<f32>], what: &str) {
    let (want, got) = (want.concat(), got.concat());
    let most = largest(&want);
    assert_eq!(want.len(), got.len());
    for (at, (want, got)) in want.iter().zip(&got).enumerate() {
        let close = (want - got).abs() <= CLOSE * most;
        assert!(close, "{what}: value {at}: {got}, expected {want} (of {most})");
    }
}

/// Compares all devices on a layer that depends on the random numbers.
fn agree(times: u64, types: &[KvType], layer: impl Fn(&mut Rng) -> Layer) {
    on_every_device(times, |pair| {
        let device = pair.tested.device().name;
        let mut layer = layer(&mut pair.rng);
        layer.block = 16 << pair.number(0, 2);
        let lens = [pair.number(1, 40), pair.number(30, 140), pair.number(1, 3)];
        let sequences = layer.sequences(&lens, pair.rng.next_u64());
        let plan = Plan {
            steps: vec![
                vec![(1, lens[1] - 25)],
                vec![(1, 14), (0, lens[0] / 2 + 1), (2, 1)],
                vec![(0, lens[0] - lens[0] / 2 - 1), (1, 11)].into_iter().filter(some).collect(),
            ],
            seed: pair.rng.next_u64(),
            moves: pair.number(0, 1) == 1,
        };
        for ty in types.iter().filter(|ty| fits(device, **ty)) {
            layer.ty = *ty;
            let [want, got] = [&mut pair.cpu, &mut pair.tested]
                .map(|backend| Run::new(&mut **backend, &layer, &sequences, &plan).results(&plan));
            assert_close(&want, &got, &format!("{device}: {layer:?}"));
        }
    });
}

/// Whether a device has a cache of this type.
fn fits(device: &str, ty: KvType) -> bool {
    device != "reference" || ty == KvType::F32
}

/// Whether a part has rows.
fn some(part: &(usize, usize)) -> bool {
    part.1 > 0
}

#[test]
fn attention_agrees_for_every_head_size_and_type() {
    for dim in [16, 64, 80, 128, 192, 640] {
        agree(1, &KvType::TRANSPOSED, |rng| {
            let (kv_heads, ratio) = (1 + rng.below(3) as usize, 1 + rng.below(6) as usize);
            Layer { kv_heads, ratio, dim, ..LAYER }
        });
    }
}

#[test]
fn attention_agrees_with_windows_and_sinks() {
    agree(6, &KvType::TRANSPOSED, |rng| {
        let window = (rng.below(3) > 0).then(|| 1 + rng.below(60) as usize);
        let ratio = 1 + rng.below(16) as usize;
        let chunks = window.is_some() && rng.below(2) == 0;
        Layer { window, chunks, ratio, sinks: rng.below(2) == 0, ..LAYER }
    });
}

#[test]
fn attention_agrees_where_the_first_positions_have_no_rows() {
    agree(4, &KvType::TRANSPOSED, |rng| {
        let window = (rng.below(2) > 0).then(|| 1 + rng.below(60) as usize);
        let (first, ratio) = (1 + rng.below(2) as usize, 1 + rng.below(8) as usize);
        Layer { window, first, ratio, ..LAYER }
    });
}

#[test]
fn attention_agrees_with_latent_values() {
    for (dim, latent) in [(576, 512), (40, 24)] {
        agree(1, &KvType::TRANSPOSED, |_| {
            let latent = Some(latent);
            Layer { kv_heads: 1, ratio: 5, dim, latent, ..LAYER }
        });
    }
}

#[test]
fn attention_to_later_positions_agrees() {
    // The reference is the only other device that computes it.
    on_device("reference", Mode::Exact, 6, |pair| {
        let sides = (pair.number(0, 1) > 0).then(|| pair.number(1, 40));
        let (window, ahead) = (sides.map(|side| side + 1), sides.unwrap_or(usize::MAX));
        let layer = Layer { window, ahead, kv_heads: 3, ratio: 1, dim: 32, ..LAYER };
        let lens = [pair.number(1, 90), pair.number(30, 140), pair.number(1, 3)];
        let sequences = layer.sequences(&lens, pair.rng.next_u64());
        let whole = lens.iter().copied().enumerate().collect();
        let plan = Plan { steps: vec![whole], seed: 7, moves: false };
        let [want, got] = [&mut pair.cpu, &mut pair.tested]
            .map(|backend| Run::new(&mut **backend, &layer, &sequences, &plan).results(&plan));
        assert_close(&want, &got, &format!("{layer:?}"));
    });
}

/// What the device with the laws computes; `None` where this machine lacks it.
fn computed(layer: &Layer, sequences: &[Sequence], plan: &Plan) -> Option<Vec<Vec<f32>>> {
    let mut backend = open_gpu(Mode::Exact)?;
    Some(Run::new(&mut *backend, layer, sequences, plan).results(plan))
}

/// Asserts that results have the same bits.
fn assert_same(want: &[Vec<f32>], got: &[Vec<f32>], what: &Layer) {
    for (at, (want, got)) in want.iter().zip(got).enumerate() {
        assert_eq!(want.len(), got.len());
        let place = want.iter().zip(got).position(|(a, b)| a.to_bits() != b.to_bits());
        assert!(place.is_none(), "{what:?}: sequence {at}, value {place:?}");
    }
}

/// Layers of every type and shape of the kernels, and lengths of sequences.
fn layers() -> [(Layer, [usize; 3]); 4] {
    let shape = |dim, ratio, ty| Layer { dim, ratio, ty, kv_heads: 1, ..LAYER };
    [
        (Layer { sinks: true, ..shape(64, 7, KvType::F32) }, [1500, 60, 17]),
        (Layer { window: Some(100), kv_heads: 2, ..shape(80, 1, KvType::Bf16) }, [1060, 260, 17]),
        (Layer { window: Some(300), ..shape(192, 3, KvType::Q8_0) }, [700, 60, 17]),
        (Layer { latent: Some(256), ..shape(288, 6, KvType::F16) }, [523, 30, 17]),
    ]
}

/// Three sequences in chunks beside one another.
fn mixed(lens: &[usize; 3], chunk: usize, seed: u64) -> Plan {
    let (mut left, mut steps) = (*lens, Vec::new());
    while left.iter().any(|left| *left > 0) {
        let mut parts: Vec<_> =
            left.iter_mut().enumerate().map(|(at, left)| (at, chunk.min(*left))).collect();
        parts.iter().for_each(|(at, rows)| left[*at] -= rows);
        parts.retain(some);
        steps.push(parts);
    }
    Plan { steps, seed, moves: false }
}

#[test]
fn block_numbers_do_not_change_bits() {
    for (layer, _) in layers() {
        let lens = [70, 120, 9];
        let sequences = layer.sequences(&lens, 5);
        let plan = mixed(&lens, 50, 1);
        let Some(want) = computed(&layer, &sequences, &plan) else { return };
        for (seed, moves) in [(2, false), (3, true)] {
            let got = computed(&layer, &sequences, &Plan { seed, moves, ..plan.clone() });
            assert_same(&want, &got.unwrap(), &layer);
        }
    }
}

#[test]
fn spans_on_many_blocks_equal_spans_on_one() {
    for (layer, lens) in layers() {
        let sequences = layer.sequences(&lens, 6);
        let Some(want) = computed(&layer, &sequences, &mixed(&lens, 200, 1)) else { return };
        // The last rows alone, one by one, behind chunks of other sizes.
        let mut plan = mixed(&[lens[0] - 4, lens[1] - 3, lens[2] - 1], 333, 4);
        plan.steps.extend((0..4).map(|_| vec![(0, 1)]));
        plan.steps.extend([vec![(1, 1)], vec![(1, 2), (2, 1)]]);
        let got = computed(&layer, &sequences, &plan);
        assert_same(&want, &got.unwrap(), &layer);
        let mut cpu = open("cpu", Mode::Exact);
        let exact = Run::new(&mut *cpu, &layer, &sequences, &plan).results(&plan);
        assert_close(&exact, &want, &format!("{layer:?}"));
    }
}

#[test]
fn caches_take_what_their_blocks_are_planned_with() {
    on_every_device(4, |pair| {
        let (kv_heads, dim) = (pair.number(1, 4), pair.number(1, 200));
        let window = Some(pair.number(1, 100));
        let latent = (pair.number(0, 1) == 1).then_some(dim.div_ceil(2));
        let layers = [
            LayerCache::heads(kv_heads, dim, latent, None),
            LayerCache::heads(1, 2 * dim, None, window),
        ];
        let blocks = [pair.number(1, 9), pair.number(1, 9)];
        let group = |window, blocks| GroupSize { window, blocks };
        let groups = [group(None, blocks[0]), group(window, blocks[1])];
        let device = pair.tested.device().name;
        for ty in KvType::TRANSPOSED.into_iter().filter(|ty| fits(device, *ty)) {
            let spec = CacheSpec {
                layers: &layers,
                block: 16,
                groups: &groups,
                states: 0,
                guesses: 0,
                ty,
            };
            for backend in [&mut pair.cpu, &mut pair.tested] {
                backend.cache(&spec).unwrap();
                let of_block = |at: usize| backend.block_bytes(&layers[at].rows[0], 16, ty);
                let planned = blocks[0] * of_block(0) + blocks[1] * of_block(1);
                let taken = backend.memory().cache;
                let reference = backend.device().name == "reference";
                assert!(reference || taken == planned, "{device}: {taken}, planned {planned}");
            }
        }
    });
}

#[test]
fn caches_that_a_device_cannot_hold_are_refused() {
    let Some(mut backend) = open_gpu(Mode::Exact) else { return };
    let mut refused = |layer: LayerCache, blocks, ty| {
        let (layers, groups) = ([layer], [GroupSize { window: None, blocks }]);
        let spec =
            CacheSpec { layers: &layers, block: 32, groups: &groups, states: 0, guesses: 0, ty };
        backend.cache(&spec).unwrap_err().to_string()
    };
    let layer = |dim| LayerCache::heads(64, dim, None, None);
    let message = refused(layer(512), 1 << 20, KvType::F32);
    assert!(message.contains("--kv-memory") && message.contains("4194304 MiB"), "{message}");
    assert!(refused(layer(641), 1, KvType::F32).contains("641"));
    assert!(refused(layer(64), 1, KvType::Fp8).contains("fp8"));
}
