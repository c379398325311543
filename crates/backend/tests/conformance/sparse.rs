//! Compressed rows, their choice, and attention over plain rows.

use crate::on_every_device;
use crate::pair::Pair;
use crate::sequences::{BLOCK, close, shuffled, whole, write};
use backend::{
    Batch, Buffer, CacheSpec, Compression, GroupSize, IndexSpec, KvType, LayerCache, Pairs,
    Rounding, RowAttention, RowLayout, RowRuns, Rows, Selection, Vector, group_windows,
};
use std::ops::Range;

/// Largest difference of outputs.
const CLOSE: f32 = 2e-5;
/// Blocks of a sequence, and of one with more rows than a choice looks at together.
const BLOCKS: usize = 5;
const MANY_BLOCKS: usize = 40;
/// Rows of the layer: those of the window, what is compressed, and what is compressed to an index.
const WINDOW: usize = 0;
const MAIN: usize = 1;
const INDEX: usize = 4;
/// A row of each position without a window, and means of those of as many as the index pools.
const POSITIONS: usize = 7;
const MEANS: usize = 8;

/// What is attended to: chosen rows, all compressed rows, the window alone, also where the first
/// positions have no rows, runs of positions that means were chosen for, means, and runs and
/// positions that were chosen by their greatest scores where the first positions have no rows.
const WHAT: [&str; 8] =
    ["chosen", "all", "window", "later window", "runs", "means", "greatest", "later positions"];
/// Those of them in which the first positions have no rows.
const LATER: [usize; 3] = [3, 6, 7];

/// One layer and the inputs of sequences.
struct Case {
    rows: Vec<Rows>,
    windows: Vec<Option<usize>>,
    compressions: [Compression; 3],
    index: IndexSpec,
    /// The choice of runs of positions, of which the query's own is not chosen among, and that of
    /// single positions. Both, and a window, have rows from a position on.
    of_runs: IndexSpec,
    of_positions: IndexSpec,
    /// Rows of the layer to one of the index.
    run: usize,
    heads: usize,
    sinks: Option<Vector>,
    /// Buffers of inputs and their widths: rows of the window, values and gates, values and gates
    /// of the index, queries, queries of the index, their weights, weights of queries.
    inputs: Vec<(Buffer, usize)>,
    /// Values of each sequence in each of them.
    values: Vec<Vec<Vec<f32>>>,
    /// As [`WHAT`] says.
    outs: [Buffer; WHAT.len()],
    len: usize,
    /// Blocks of a sequence.
    blocks: usize,
}

/// What a run knows of a sequence.
struct Progress {
    tables: Vec<Vec<u32>>,
    position: usize,
    /// Of each device, in each of the outputs.
    outputs: [[Vec<f32>; WHAT.len()]; 2],
}

/// A size of rows, of `dim` values or more, that can be rounded.
fn fits(rounding: Rounding, dim: usize) -> usize {
    match rounding {
        Rounding::Fp4 => dim.next_power_of_two(),
        Rounding::Fp8 { .. } => dim + 20,
        Rounding::None => dim,
    }
}

/// Rows of a compressor: values and gates of positions, and compressed rows.
fn compressor(dim: usize, every: usize, overlap: bool, rounding: Rounding) -> [Rows; 3] {
    let factor = if overlap { 2 } else { 1 };
    let input = Rows::plain(factor * dim, Some(factor * every));
    let layout = RowLayout::Plain(rounding);
    [input, input, Rows { every, layout, ..Rows::plain(dim, None) }]
}

fn compression(pair: &mut Pair, rows: &[Rows], first: usize, turning: bool) -> Compression {
    let [input, dim, every] = [rows[first].dim, rows[first + 2].dim, rows[first + 2].every];
    let count = pair.number(1, dim / 2);
    let frequencies: Vec<f32> =
        (0..count).map(|at| if turning { 0.8f32.powi(at as i32) } else { 0.0 }).collect();
    let pairs = if pair.number(0, 1) == 0 { Pairs::Halves } else { Pairs::Interleaved };
    let rope =
        pair.both(|backend| backend.rope(frequencies.clone(), 1.0.into(), pairs, 4).unwrap());
    Compression {
        values: first,
        gates: Some((first + 1, pair.vector(every * input))),
        out: first + 2,
        overlap: input > dim,
        norm: (pair.number(0, 2) > 0).then(|| (pair.vector(dim), 1e-6)),
        rope: (pair.number(0, 2) > 0).then_some((rope, dim - 2 * count)),
    }
}

/// How the rows of a case are computed: those of the attention, of its index, and means.
fn compressions(pair: &mut Pair, rows: &[Rows], ties: bool) -> [Compression; 3] {
    let [main, of_index] = [(MAIN, true), (INDEX, !ties)]
        .map(|(first, turning)| compression(pair, rows, first, turning));
    let means = Compression {
        values: POSITIONS,
        gates: None,
        out: MEANS,
        overlap: false,
        norm: Some((pair.vector(rows[MEANS].dim), 1e-6)),
        rope: main.rope.map(|(rope, most)| (rope, pair.number(0, most))),
    };
    [main, of_index, means]
}

/// Choices of rows of the index, of runs of positions and of positions, by each of `rows` rows,
/// with queries of so many heads.
fn choices(pair: &mut Pair, [index_heads, heads]: [usize; 2], rows: usize) -> [IndexSpec; 3] {
    let tops = [pair.number(1, 12), pair.number(1, 6), pair.number(1, 20)];
    let [of_index, of_runs, of_positions] =
        tops.map(|top| pair.both(|backend| backend.selection(rows, top).unwrap()));
    let index = IndexSpec {
        rows: INDEX + 2,
        runs: RowRuns::SINGLE,
        last: 0,
        heads: index_heads,
        first: 0,
        selection: of_index,
    };
    let runs = RowRuns { len: pair.number(2, 9), own: true };
    let (last, first) = (pair.number(0, tops[1]), pair.number(1, 3));
    let of_runs = IndexSpec { rows: POSITIONS, runs, last, heads, first, selection: of_runs };
    let single = IndexSpec { runs: RowRuns::SINGLE, last: 0, selection: of_positions, ..of_runs };
    [index, of_runs, single]
}

impl Case {
    /// With `ties`, rows of the index have few values, so that many scores are equal.
    fn new(
        pair: &mut Pair,
        (sequences, blocks): (usize, usize),
        rounding: [Rounding; 2],
        ties: bool,
    ) -> Self {
        let most = if blocks == BLOCKS { [100, 40] } else { [12, 2] };
        let dim = fits(rounding[0], pair.number(2, most[0]));
        let every = if blocks == BLOCKS { pair.number(2, 5) } else { 2 };
        let index_dim = fits(rounding[1], pair.number(2, most[0]));
        let mut window = Rows::plain(dim, Some(pair.number(1, 40)));
        if pair.tested.device().name != "reference" {
            window.ty = [None, Some(KvType::Bf16), Some(KvType::F16)][pair.number(0, 2)];
        }
        let (overlap, run) = (pair.number(0, 1) == 1, pair.number(1, 3));
        let mut rows = vec![window];
        rows.extend(compressor(dim, every, overlap, rounding[0]));
        rows.extend(compressor(index_dim, every * run, overlap && !ties, rounding[1]));
        rows.extend([1, every].map(|every| Rows { every, ..Rows::plain(dim, None) }));
        let compressions = compressions(pair, &rows, ties);
        let (heads, index_heads) = (pair.number(1, most[1]), pair.number(1, most[1]));
        let most = sequences * blocks * BLOCK;
        let [index, of_runs, of_positions] = choices(pair, [index_heads, heads], most);
        let input = |at: usize| rows[at].dim;
        let widths = [
            dim,
            input(MAIN),
            input(MAIN + 1),
            input(INDEX),
            input(INDEX + 1),
            heads * dim,
            index_heads * index_dim,
            index_heads,
            heads,
        ];
        let inputs: Vec<_> =
            widths.iter().map(|width| (pair.buffer(most, *width), *width)).collect();
        let len = blocks * BLOCK - pair.number(0, 60);
        let mut values: Vec<Vec<Vec<f32>>> = (0..sequences)
            .map(|_| widths.iter().map(|width| pair.values(len * width)).collect())
            .collect();
        if ties {
            for (at, own) in
                [3, 4].into_iter().flat_map(|at| (0..sequences).map(move |own| (at, own)))
            {
                repeat(pair, &mut values[own][at], widths[at], every * run);
            }
        }
        let sinks = (pair.number(0, 1) == 1).then(|| pair.vector(heads));
        let outs = WHAT.map(|_| pair.buffer(most, heads * dim));
        let windows = group_windows([&LayerCache { rows: rows.clone(), state: None }]);
        let case = Self {
            rows,
            windows,
            compressions,
            index,
            of_runs,
            of_positions,
            run,
            heads,
            sinks,
            inputs,
            values,
            outs,
            len,
            blocks,
        };
        case.cache(pair);
        case
    }

    fn blocks(&self) -> usize {
        self.values.len() * self.blocks
    }

    /// Makes the cache, and fills it with NaN.
    fn cache(&self, pair: &mut Pair) {
        let layers = [LayerCache { rows: self.rows.clone(), state: None }];
        let group = |window: &Option<usize>| GroupSize { window: *window, blocks: self.blocks() };
        let groups: Vec<GroupSize> = self.windows.iter().map(group).collect();
        let spec = CacheSpec {
            layers: &layers,
            block: BLOCK,
            groups: &groups,
            states: 0,
            guesses: 0,
            ty: KvType::F32,
        };
        pair.both(|backend| backend.cache(&spec).unwrap());
        let batch = whole(self.blocks(), self.windows.len());
        pair.both(|backend| {
            for (buffer, width) in &self.inputs[..5] {
                write(backend, *buffer, batch.rows(), &vec![f32::NAN; batch.rows() * width]);
            }
            backend.begin(&batch);
            self.store(backend, &batch);
            backend.end().unwrap();
        });
    }

    fn store(&self, backend: &mut dyn backend::Backend, batch: &Batch) {
        let stored = [WINDOW, MAIN, MAIN + 1, INDEX, INDEX + 1];
        for (which, (buffer, _)) in stored.into_iter().zip(&self.inputs) {
            backend.store_rows(0, which, *buffer, batch);
        }
        backend.store_rows(0, POSITIONS, self.inputs[0].0, batch);
        for compression in &self.compressions {
            backend.compress(0, compression, batch);
        }
    }

    fn begin(&self, pair: &mut Pair) -> Vec<Progress> {
        let blocks: Vec<_> = self.windows.iter().map(|_| shuffled(pair, self.blocks())).collect();
        let table = |index: usize| {
            blocks.iter().map(move |blocks| blocks[index * self.blocks..][..self.blocks].to_vec())
        };
        (0..self.values.len())
            .map(|index| Progress {
                tables: table(index).collect(),
                position: 0,
                outputs: Default::default(),
            })
            .collect()
    }

    /// Computes a step of sequences and their positions.
    fn step(&self, pair: &mut Pair, sequences: &mut [Progress], pieces: &[(usize, Range<usize>)]) {
        let rows: usize = pieces.iter().map(|(_, rows)| rows.len()).sum();
        let mut batch = Batch::with_capacity(rows, 64, self.windows.len());
        for (sequence, rows) in pieces {
            batch.push([&vec![0; rows.len()], &[]], rows.start, 1);
            for (window, table) in self.windows.iter().zip(&sequences[*sequence].tables) {
                // Blocks before the window are not there any more.
                let oldest = window.map_or(0, |window| (rows.start + 1).saturating_sub(window));
                let mut table = table.clone();
                table[..oldest / BLOCK].fill(u32::MAX);
                batch.table(&table);
            }
        }
        let values: Vec<Vec<f32>> = (0..self.inputs.len())
            .map(|which| {
                let width = self.inputs[which].1;
                let own = |(sequence, rows): &(usize, Range<usize>)| {
                    self.values[*sequence][which][rows.start * width..rows.end * width].to_vec()
                };
                pieces.iter().flat_map(own).collect()
            })
            .collect();
        pair.both(|backend| {
            for ((buffer, _), values) in self.inputs.iter().zip(&values) {
                write(backend, *buffer, rows, values);
            }
            backend.begin(&batch);
            self.store(backend, &batch);
            let [q, index_q, weights, of_heads] = [5, 6, 7, 8].map(|at: usize| self.inputs[at].0);
            backend.select_rows(0, index_q, weights, &self.index, &batch);
            for choice in [&self.of_runs, &self.of_positions] {
                backend.select_rows(0, q, of_heads, choice, &batch);
            }
            for (out, spec) in self.outs.iter().zip(self.attentions()) {
                backend.attend_rows(0, q, *out, &spec, &batch);
            }
            backend.end().unwrap();
        });
        for (at, out) in self.outs.iter().enumerate() {
            let [cpu, tested] = pair.read(*out, rows);
            let mut first = 0;
            for (sequence, rows) in pieces {
                let width = self.inputs[5].1;
                let own = first * width..(first + rows.len()) * width;
                let outputs = &mut sequences[*sequence].outputs;
                outputs[0][at].extend_from_slice(&cpu[own.clone()]);
                outputs[1][at].extend_from_slice(&tested[own]);
                first += rows.len();
            }
        }
        for (sequence, rows) in pieces {
            sequences[*sequence].position = rows.end;
        }
    }

    fn attentions(&self) -> [RowAttention; WHAT.len()] {
        let Self { heads, sinks, .. } = *self;
        let runs = |len| RowRuns { len, own: false };
        let spec = |window, compressed, selection: Option<Selection>| RowAttention {
            heads,
            scale: 0.2,
            sinks,
            window,
            compressed,
            selection,
            runs: runs(self.run),
            first: 0,
        };
        let positions = |choice: &IndexSpec| RowAttention {
            runs: choice.runs,
            first: choice.first,
            ..spec(None, Some(POSITIONS), Some(choice.selection))
        };
        let compressed = Some(MAIN + 2);
        let (window, selection) = (Some(WINDOW), Some(self.index.selection));
        [
            spec(window, compressed, selection),
            spec(window, compressed, None),
            spec(window, None, None),
            RowAttention { first: self.of_runs.first, ..spec(window, None, None) },
            RowAttention {
                runs: runs(self.rows[INDEX + 2].every),
                ..spec(None, Some(POSITIONS), selection)
            },
            spec(window, Some(MEANS), None),
            positions(&self.of_runs),
            positions(&self.of_positions),
        ]
    }

    /// Computes all sequences, up to `most` rows of each at a time.
    fn run(&self, pair: &mut Pair, most: usize) -> Vec<Progress> {
        let mut sequences = self.begin(pair);
        while sequences.iter().any(|progress| progress.position < self.len) {
            let mut pieces = Vec::new();
            for (sequence, progress) in sequences.iter().enumerate() {
                let left = self.len - progress.position;
                if left > 0 && pair.number(0, 3) > 0 {
                    let rows = pair.number(1, left.min(most));
                    pieces.push((sequence, progress.position..progress.position + rows));
                }
            }
            if !pieces.is_empty() {
                self.step(pair, &mut sequences, &pieces);
            }
        }
        sequences
    }

    fn check(&self, pair: &mut Pair) {
        let first = self.run(pair, self.len);
        for progress in &first {
            let [cpu, tested] = &progress.outputs;
            for ((cpu, tested), what) in cpu.iter().zip(tested).zip(WHAT) {
                close(cpu, tested, CLOSE, what);
            }
        }
        let second = self.run(pair, 4 * self.blocks);
        let mut alone = self.begin(pair);
        for (sequence, progress) in first.iter().enumerate() {
            assert_eq!(progress.outputs, second[sequence].outputs, "cut otherwise");
            self.step(pair, &mut alone, &[(sequence, 0..self.len)]);
            assert_eq!(progress.outputs, alone[sequence].outputs, "alone");
        }
    }
}

/// Gives all rows of `every` positions the values of one of the first three.
fn repeat(pair: &mut Pair, values: &mut [f32], width: usize, every: usize) {
    let row = every * width;
    for at in (3 * row..values.len()).step_by(row) {
        let (len, from) = (row.min(values.len() - at), pair.number(0, 2) * row);
        values.copy_within(from..from + len, at);
    }
}

#[test]
fn attention_over_compressed_rows_agrees() {
    on_every_device(3, |pair| {
        let count = pair.number(1, 3);
        Case::new(pair, (count, BLOCKS), [Rounding::None; 2], false).check(pair);
    });
}

#[test]
fn attention_over_rounded_rows_agrees() {
    on_every_device(3, |pair| {
        let roundings = [Rounding::Fp8 { rotated: 16 }, Rounding::Fp4];
        Case::new(pair, (2, BLOCKS), roundings, false).check(pair);
    });
}

#[test]
fn rows_before_the_first_position_with_one_do_not_matter() {
    on_every_device(3, |pair| {
        let mut case = Case::new(pair, (2, BLOCKS), [Rounding::None; 2], false);
        let of_row = case.inputs[WINDOW].1;
        let first = case.of_runs.first;
        let outputs = |pair: &mut Pair, case: &Case| {
            let mut all = case.begin(pair);
            case.step(pair, &mut all, &[(0, 0..case.len), (1, 0..case.len)]);
            all
        };
        let before = outputs(pair, &case);
        for own in &mut case.values {
            own[WINDOW][..first * of_row].iter_mut().for_each(|value| *value = 3.0 - *value);
        }
        let after = outputs(pair, &case);
        let later = first * case.inputs[5].1..;
        for (before, after) in before.iter().zip(&after) {
            for (before, after) in before.outputs.iter().zip(&after.outputs) {
                for (at, what) in WHAT.iter().enumerate() {
                    let [before, after] = [&before[at], &after[at]].map(|all| &all[later.clone()]);
                    assert!(!LATER.contains(&at) || before == after, "{what}");
                }
                assert_ne!(before[5], after[5], "means have them");
            }
        }
    });
}

#[test]
fn of_equal_scores_the_earlier_is_chosen() {
    on_every_device(3, |pair| {
        Case::new(pair, (2, BLOCKS), [Rounding::None; 2], true).check(pair);
    });
}

#[test]
fn of_many_rows_the_best_are_chosen() {
    on_every_device(1, |pair| {
        for ties in [false, true] {
            Case::new(pair, (1, MANY_BLOCKS), [Rounding::None; 2], ties).check(pair);
        }
    });
}
