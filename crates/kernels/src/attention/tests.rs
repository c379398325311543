use super::*;
use base::{Rng, ThreadPool};

struct Case {
    block: usize,
    kv_heads: usize,
    dim: usize,
    heads: usize,
    window: Window,
    keys: Vec<f32>,
    values: Vec<f32>,
    queries: Vec<f32>,
    positions: usize,
    /// Number of leading inputs of the keys that are the values.
    latent: Option<usize>,
    /// A sink for every head, or empty.
    sinks: Vec<f32>,
}

/// The function that computes a case.
#[derive(Clone, Copy)]
struct How {
    isa: Isa,
    ty: KvType,
    narrow: bool,
    tile_rows: usize,
    /// Every span separately, then combined.
    split: bool,
}

impl How {
    fn new(isa: Isa, ty: KvType) -> Self {
        Self { isa, ty, narrow: false, tile_rows: 5, split: false }
    }
}

const SCALE: f32 = 0.3;
/// Bytes between the blocks of a cache.
const GAP: usize = 192;

impl Case {
    fn new(
        (block, kv_heads, dim): (usize, usize, usize),
        heads: usize,
        window: usize,
        positions: usize,
    ) -> Self {
        let mut rng = Rng::new((block + dim + positions) as u64);
        let mut random = |len: usize| (0..len).map(|_| rng.normal()).collect::<Vec<f32>>();
        let width = kv_heads * dim;
        let (keys, values) = (random(positions * width), random(positions * width));
        let queries = random(positions * heads * dim);
        let (latent, sinks) = (None, Vec::new());
        Self {
            block,
            kv_heads,
            dim,
            heads,
            window: Window { positions: window, ..Window::ALL },
            keys,
            values,
            queries,
            positions,
            latent,
            sinks,
        }
    }

    fn latent(self, values: usize) -> Self {
        Self { latent: Some(values), ..self }
    }

    /// Windows that follow each other.
    fn chunks(mut self) -> Self {
        self.window.is_chunk = true;
        self
    }

    /// Positions before `first` have no rows.
    fn from(mut self, first: usize) -> Self {
        self.window.first = first;
        self
    }

    /// Queries attend to later positions too.
    fn ahead(mut self, ahead: usize) -> Self {
        self.window.ahead = ahead;
        self
    }

    /// One more than the last position that the query at `position` attends to.
    fn seen_end(&self, position: usize) -> usize {
        self.window.seen_end(position, self.positions)
    }

    /// Sinks below, among and above the scores.
    fn sinks(self) -> Self {
        let sinks = (0..self.heads).map(|head| head as f32 * 2.0 - 1.0).collect();
        Self { sinks, ..self }
    }

    /// Values of the outputs of a position.
    fn columns(&self) -> usize {
        self.heads * self.latent.unwrap_or(self.dim)
    }

    fn layout(&self, ty: KvType) -> KvLayout {
        KvLayout { ty, block: self.block, heads: self.kv_heads, dim: self.dim, latent: self.latent }
    }

    /// The cache with positions up to `end`. Blocks are in reverse order, so that a wrong table
    /// fails, and unused slots have values of other sequences, which must not be read.
    fn cache(&self, ty: KvType, end: usize) -> (Vec<u8>, Vec<u32>) {
        let layout = self.layout(ty);
        let blocks = self.positions.div_ceil(self.block);
        let mut data = vec![0; blocks * (layout.block_bytes() + GAP)];
        let table: Vec<u32> = (0..blocks as u32).rev().collect();
        let rotten = vec![f32::NAN; self.dim];
        let own = if self.latent.is_some() { 0 } else { self.dim };
        for block in data.chunks_exact_mut(layout.block_bytes() + GAP) {
            for head in block.chunks_exact_mut(layout.head_bytes()) {
                (0..self.block).for_each(|slot| layout.store(head, slot, &rotten, &rotten[..own]));
            }
        }
        for position in 0..end {
            for head in 0..self.kv_heads {
                let at = (position * self.kv_heads + head) * self.dim;
                let block = table[position / self.block] as usize;
                let start = block * (layout.block_bytes() + GAP) + head * layout.head_bytes();
                layout.store(
                    &mut data[start..][..layout.head_bytes()],
                    position % self.block,
                    &self.keys[at..][..self.dim],
                    &self.values[at..][..own],
                );
            }
        }
        (data, table)
    }

    /// Outputs of positions `range`, with all positions in the cache that they attend to.
    fn run(&self, how: How, range: std::ops::Range<usize>) -> Vec<f32> {
        let end = self.seen_end(range.end - 1);
        let (data, table) = self.cache(how.ty, end);
        let (columns, width) = (self.columns(), self.heads * self.dim);
        let layout = self.layout(how.ty);
        let kv = KvRef { layout, data: &data, stride: layout.block_bytes() + GAP };
        let mut out = vec![f32::NAN; range.len() * columns];
        let tile = (how.tile_rows, columns / self.kv_heads);
        ThreadPool::new(2).unwrap().for_each_tile(&mut out, columns, tile, |mut tile| {
            let first = range.start + tile.rows().start;
            let query = Query {
                q: &self.queries[first * width..][..tile.rows().len() * width],
                rows: tile.rows().len(),
                heads: self.heads,
                position: first,
                blocks: &table,
                scale: SCALE,
                window: self.window,
                end,
                narrow: how.narrow,
                sinks: &self.sinks,
            };
            match how.split {
                true => split(how.isa, &query, kv, &mut tile),
                false => attention(how.isa, &query, kv, &mut tile),
            }
        });
        out
    }

    /// Outputs of one position by the definition, in f64, from the original values.
    fn naive(&self, position: usize) -> Vec<f64> {
        let mut out = Vec::new();
        for head in 0..self.heads {
            let kv_head = head / (self.heads / self.kv_heads);
            let q = &self.queries[(position * self.heads + head) * self.dim..][..self.dim];
            let from = self.window.first_seen(position);
            let seen = || from..self.seen_end(position);
            let at = |p: usize| (p * self.kv_heads + kv_head) * self.dim;
            let weight = |p: usize| {
                let key = &self.keys[at(p)..][..self.dim];
                let dot: f64 = q.iter().zip(key).map(|(a, b)| f64::from(a * b)).sum();
                (dot * f64::from(SCALE)).exp()
            };
            let weights: Vec<f64> = seen().map(weight).collect();
            let sink = self.sinks.get(head).map_or(0.0, |sink| f64::from(*sink).exp());
            let total = weights.iter().sum::<f64>() + sink;
            let values = if self.latent.is_some() { &self.keys } else { &self.values };
            out.extend((0..self.latent.unwrap_or(self.dim)).map(|d| {
                let weighted = seen().zip(&weights);
                weighted.map(|(p, w)| w * f64::from(values[at(p) + d])).sum::<f64>() / total
            }));
        }
        out
    }
}

fn split(isa: Isa, query: &Query<'_>, kv: KvRef<'_>, tile: &mut Tile<'_, f32>) {
    let kv_head = tile.cols().start / tile.cols().len();
    let len = query.rows * query.group(kv) * partial_len(&kv.layout);
    let apart = len + 3;
    let mut partials = vec![f32::NAN; query.spans().len() * apart];
    // Spans may be computed in any order.
    for (partial, span) in partials.chunks_mut(apart).zip(query.spans()).rev() {
        attention_span(isa, query, kv, (kv_head, span), partial);
    }
    let group = query.group(kv);
    let sinks = query.sinks.get(kv_head * group..(kv_head + 1) * group).unwrap_or_default();
    combine_spans(isa, &kv.layout, &partials, apart, sinks, tile);
}

fn cases() -> Vec<Case> {
    const ALL: usize = usize::MAX;
    vec![
        Case::new((16, 2, 16), 4, ALL, 150),
        Case::new((32, 1, 20), 3, ALL, 70),
        Case::new((64, 2, 128), 4, 24, 140),
        Case::new((16, 1, 80), 1, 1, 20),
        Case::new((32, 1, 21), 7, ALL, 40),
        // More than two spans, and a window that excludes whole spans.
        Case::new((32, 1, 32), 2, ALL, 1100),
        Case::new((64, 1, 16), 1, 600, 1700),
        Case::new((16, 2, 16), 4, 40, 90).sinks(),
        Case::new((16, 2, 16), 4, 40, 150).chunks(),
        Case::new((64, 1, 16), 2, 600, 1300).chunks(),
        Case::new((32, 1, 20), 1, 1, 20).chunks(),
        Case::new((32, 1, 40), 5, ALL, 600).latent(32),
        Case::new((64, 1, 576), 3, ALL, 37).latent(512),
        Case::new((16, 1, 30), 2, ALL, 35).latent(21).sinks(),
        Case::new((16, 2, 16), 4, ALL, 75).from(1),
        Case::new((32, 1, 24), 2, 40, 90).from(2),
        Case::new((16, 2, 16), 2, ALL, 75).ahead(ALL),
        Case::new((32, 3, 64), 3, 9, 131).ahead(8),
        Case::new((32, 1, 24), 1, ALL, 1100).ahead(ALL),
        Case::new((32, 1, 16), 1, 301, 1300).ahead(300),
    ]
}

/// Several positions of a case, including the last.
fn some(case: &Case) -> Vec<usize> {
    let mut some: Vec<_> =
        [0, 1, 15, 16, 63, 64, 139, 511, 512, 513, 1024].map(|p| p % case.positions).into();
    some.push(case.positions - 1);
    some
}

#[test]
fn attention_agrees_with_the_naive_sum() {
    let tolerances = [2e-5, 0.1, 0.02, 0.15];
    for case in cases() {
        for isa in Isa::available() {
            for (ty, tolerance) in KvType::TRANSPOSED.into_iter().zip(tolerances) {
                let got = case.run(How::new(isa, ty), 0..case.positions);
                for position in some(&case) {
                    let want = case.naive(position);
                    let got = &got[position * want.len()..][..want.len()];
                    for (got, want) in got.iter().zip(want) {
                        let off = (f64::from(*got) - want).abs();
                        assert!(off < tolerance, "{isa:?} {ty:?}: {got} is not {want}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_isa_gives_the_bits_of_scalar() {
    for case in cases() {
        for ty in KvType::TRANSPOSED {
            let want = case.run(How::new(Isa::SCALAR, ty), 0..case.positions);
            for isa in Isa::available() {
                let how = How { tile_rows: 3, ..How::new(isa, ty) };
                assert_eq!(case.run(how, 0..case.positions), want, "{isa:?} {ty:?}");
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_as_among_later_rows_and_split_over_spans() {
    for case in cases() {
        let columns = case.columns();
        for isa in Isa::available() {
            for (ty, narrow) in
                KvType::TRANSPOSED.map(|ty| (ty, false)).into_iter().chain([(KvType::Bf16, true)])
            {
                let how = How { narrow, tile_rows: 33, ..How::new(isa, ty) };
                let whole = case.run(how, 0..case.positions);
                for position in some(&case) {
                    for split in [false, true] {
                        let how = How { split, tile_rows: 1, ..how };
                        let alone = case.run(how, position..position + 1);
                        let want = &whole[position * columns..][..columns];
                        assert_eq!(alone, want, "{isa:?} {ty:?} {position} split: {split}");
                    }
                }
                let tail = case.positions / 2..case.positions;
                let how = How { split: true, ..how };
                assert_eq!(case.run(how, tail.clone()), whole[tail.start * columns..], "{isa:?}");
            }
        }
    }
}

#[test]
fn block_size_does_not_change_bits() {
    for ty in KvType::TRANSPOSED {
        let run = |block| {
            let mut case = Case::new((16, 2, 32), 2, usize::MAX, 630);
            case.block = block;
            case.run(How::new(Isa::available()[0], ty), 0..630)
        };
        let want = run(16);
        assert_eq!(run(64), want);
        assert_eq!(run(32), want);
        assert_eq!(run(512), want);
    }
}

/// The arithmetic is independent of storage: a type gives the bits of f32 over the same values.
#[test]
fn bf16_values_give_the_bits_of_f32() {
    for mut case in cases() {
        let round = |v: &mut f32| *v = half::bf16::from_f32(*v).to_f32();
        case.keys.iter_mut().for_each(round);
        case.values.iter_mut().for_each(round);
        for isa in Isa::available() {
            let [a, b] = [KvType::F32, KvType::Bf16]
                .map(|ty| case.run(How::new(isa, ty), 0..case.positions));
            assert_eq!(a, b, "{isa:?}");
        }
    }
}

#[test]
fn bf16_products_agree_with_the_naive_sum() {
    for case in cases() {
        for isa in Isa::available() {
            let how = How { narrow: true, ..How::new(isa, KvType::Bf16) };
            let got = case.run(how, 0..case.positions);
            for position in some(&case) {
                let want = case.naive(position);
                let got = &got[position * want.len()..][..want.len()];
                for (got, want) in got.iter().zip(want) {
                    assert!((f64::from(*got) - want).abs() < 0.1, "{isa:?}: {got} is not {want}");
                }
            }
        }
    }
}
