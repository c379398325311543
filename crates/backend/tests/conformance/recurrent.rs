//! Short convolutions, recurrences and states.

use crate::on_every_device;
use crate::pair::Pair;
use crate::sequences::{BLOCK, close, shuffled, whole, write};
use backend::{
    Batch, Buffer, CacheSpec, GroupSize, KvType, LayerCache, RecurrenceRule, RecurrenceSpec, Rows,
    ShortConv, State, StateRows,
};
use std::ops::Range;

/// Largest difference of outputs after some rows.
const CLOSE: f32 = 2e-5;
/// Most guesses of a step.
const GUESSES: usize = 3;
/// Blocks of a sequence.
const BLOCKS: usize = 3;
/// The layer with a state.
const LAYER: usize = 1;

/// One layer with a state and a convolution, and the inputs of sequences.
struct Case {
    state: State,
    spec: RecurrenceSpec,
    conv: ShortConv,
    x: Buffer,
    /// Buffers of inputs and their widths: queries, keys, values, decays, betas, channels.
    inputs: Vec<(Buffer, usize)>,
    /// Values of each sequence in each of them.
    values: Vec<Vec<Vec<f32>>>,
    len: usize,
}

/// Outputs `[positions, width]` of the rule and of the convolution.
type Outputs = [Vec<f32>; 2];

/// What a run knows of a sequence.
struct Progress {
    slot: u32,
    table: Vec<u32>,
    position: usize,
    right: usize,
    /// The position behind which the state is saved, and the slot for it.
    save: (usize, u32),
    /// Whether it was: right guesses have no states of their own.
    is_saved: bool,
    /// On both devices.
    outputs: [Outputs; 2],
}

/// Rows of a sequence in a step.
struct Piece {
    sequence: usize,
    rows: Range<usize>,
    guesses: usize,
    /// Guesses with the inputs of the sequence.
    right: usize,
}

impl Case {
    fn new(pair: &mut Pair, sequences: usize) -> Self {
        let key_heads = pair.number(1, 3);
        let heads = key_heads * pair.number(1, 3);
        let (keys, values) = (pair.number(1, 200), pair.number(1, 70));
        let space = pair.number(0, 2) == 0;
        let channel_decay = !space && pair.number(0, 1) == 1;
        let state = State { heads, key_heads, keys, values, channel_decay };
        let decays = heads * state.decays();
        let (channels, kernel) = (pair.number(1, 90), pair.number(1, 4));
        let len = pair.number(8, BLOCKS * BLOCK - GUESSES);
        let rows = Self::rows(sequences);
        let widths = [key_heads * keys, key_heads * keys, heads * values, decays, heads, channels];
        let inputs: Vec<_> =
            widths.iter().map(|width| (pair.buffer(rows, *width), *width)).collect();
        let rule = match space {
            true => RecurrenceRule::StateSpace { skip: pair.vector(heads), limits: [0.05, 1.5] },
            false => {
                let least = (pair.number(0, 1) == 1).then_some(-5.0);
                RecurrenceRule::Delta { b: inputs[4].0, least }
            }
        };
        let spec = RecurrenceSpec {
            rule,
            q: inputs[0].0,
            k: inputs[1].0,
            v: inputs[2].0,
            a: inputs[3].0,
            dt: pair.vector(decays),
            rate: {
                let rates: Vec<f32> = pair.values(decays).iter().map(|rate| -rate.exp()).collect();
                pair.both(|backend| backend.vector(rates.clone()))
            },
            decay: pair.buffer(rows, decays),
            beta: pair.buffer(rows, heads),
            tiled: pair.number(0, 1) == 1,
            out: pair.buffer(rows, heads * values),
        };
        let bias = (pair.number(0, 1) == 1).then(|| pair.vector(channels));
        let conv = ShortConv {
            silu: pair.number(0, 1) == 1,
            weight: pair.vector(kernel * channels),
            bias,
            out: pair.buffer(rows, channels),
        };
        let all = (0..sequences)
            .map(|_| widths.iter().map(|width| pair.values(len * width)).collect())
            .collect();
        let x = inputs[5].0;
        let case = Self { state, spec, conv, x, inputs, values: all, len };
        case.cache(pair, sequences);
        case
    }

    /// Most rows of a step.
    fn rows(sequences: usize) -> usize {
        sequences * BLOCKS * BLOCK
    }

    fn cache(&self, pair: &mut Pair, sequences: usize) {
        let channels = self.inputs[5].1;
        let layers = [
            LayerCache { rows: vec![Rows::plain(5, None)], state: None },
            LayerCache { rows: vec![Rows::plain(channels, None)], state: Some(self.state) },
        ];
        let groups = [GroupSize { window: None, blocks: sequences * BLOCKS }];
        let spec = CacheSpec {
            layers: &layers,
            block: BLOCK,
            groups: &groups,
            states: 4 * sequences,
            guesses: GUESSES,
            ty: KvType::F32,
        };
        pair.both(|backend| backend.cache(&spec).unwrap());
        let rows = sequences * BLOCKS * BLOCK;
        let batch = whole(sequences * BLOCKS, 1);
        pair.both(|backend| {
            write(backend, self.x, rows, &vec![f32::NAN; rows * channels]);
            backend.begin(&batch);
            backend.store_rows(LAYER, 0, self.x, &batch);
            backend.end().unwrap();
        });
    }

    /// Sequences at their start, with random blocks and slots.
    fn begin(&self, pair: &mut Pair) -> Vec<Progress> {
        let sequences = self.values.len();
        let (blocks, slots) = (shuffled(pair, sequences * BLOCKS), shuffled(pair, 4 * sequences));
        (0..sequences)
            .map(|index| Progress {
                slot: slots[index],
                table: blocks[index * BLOCKS..][..BLOCKS].to_vec(),
                position: 0,
                right: 0,
                save: (pair.number(0, self.len - 2), slots[sequences + index]),
                is_saved: false,
                outputs: Default::default(),
            })
            .collect()
    }

    /// The next rows of some sequences, `most` at most and guesses.
    fn cut(&self, pair: &mut Pair, sequences: &[Progress], most: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (sequence, progress) in sequences.iter().enumerate() {
            let left = self.len - progress.position;
            if left == 0 || pair.number(0, 3) == 0 {
                continue;
            }
            let known = pair.number(1, left.min(most));
            let guesses = pair.number(0, GUESSES);
            let right = pair.number(0, guesses.min(left - known));
            let rows = progress.position..progress.position + known + guesses;
            pieces.push(Piece { sequence, rows, guesses, right });
        }
        pieces
    }

    /// Computes a step.
    fn step(&self, pair: &mut Pair, sequences: &mut [Progress], pieces: &[Piece]) {
        let rows: usize = pieces.iter().map(|piece| piece.rows.len()).sum();
        let mut batch = Batch::with_capacity(rows, 64, 1);
        for piece in pieces {
            let progress = &mut sequences[piece.sequence];
            batch.push([&vec![0; piece.rows.len()], &[]], piece.rows.start, 1);
            batch.table(&progress.table);
            let (slot, right) = (progress.slot, progress.right);
            batch.state(StateRows { slot, right, guesses: piece.guesses });
            let last = piece.rows.end - piece.guesses;
            if (piece.rows.start..last).contains(&progress.save.0) {
                batch.save(progress.save.0, progress.save.1);
                progress.is_saved = true;
            }
        }
        let mut values = vec![Vec::new(); self.inputs.len()];
        for (which, (_, width)) in self.inputs.iter().enumerate() {
            for piece in pieces {
                let known = piece.rows.start..piece.rows.end - piece.guesses + piece.right;
                let own = &self.values[piece.sequence][which];
                values[which].extend_from_slice(&own[known.start * width..known.end * width]);
                let wrong = pair.values((piece.guesses - piece.right) * width);
                values[which].extend(wrong);
            }
        }
        pair.both(|backend| {
            for ((buffer, _), values) in self.inputs.iter().zip(&values) {
                write(backend, *buffer, rows, values);
            }
            backend.begin(&batch);
            backend.short_conv(LAYER, 0, self.x, &self.conv, &batch);
            backend.recur(LAYER, &self.spec, &batch);
            backend.end().unwrap();
        });
        let rule = pair.read(self.spec.out, rows);
        let conv = pair.read(self.conv.out, rows);
        let width = [self.state.heads * self.state.values, self.inputs[5].1];
        let mut first = 0;
        for piece in pieces {
            let progress = &mut sequences[piece.sequence];
            let right = piece.rows.len() - piece.guesses + piece.right;
            for (device, outputs) in progress.outputs.iter_mut().enumerate() {
                for (at, from) in [&rule[device], &conv[device]].into_iter().enumerate() {
                    let rows = first * width[at]..(first + right) * width[at];
                    outputs[at].extend_from_slice(&from[rows]);
                }
            }
            progress.position += right;
            progress.right = piece.right;
            first += piece.rows.len();
        }
    }

    /// Computes all sequences.
    fn run(&self, pair: &mut Pair, most: usize) -> Vec<Progress> {
        let mut sequences = self.begin(pair);
        while sequences.iter().any(|progress| progress.position < self.len) {
            let pieces = self.cut(pair, &sequences, most);
            if !pieces.is_empty() {
                self.step(pair, &mut sequences, &pieces);
            }
        }
        sequences
    }
}

#[test]
fn states_do_not_depend_on_how_rows_are_cut() {
    on_every_device(6, |pair| {
        let count = pair.number(1, 5);
        let case = Case::new(pair, count);
        let first = case.run(pair, case.len);
        for progress in &first {
            let [cpu, tested] = &progress.outputs;
            close(&cpu[0], &tested[0], CLOSE, "delta_rule");
            close(&cpu[1], &tested[1], CLOSE, "short_conv");
        }
        let second = case.run(pair, 4);
        let mut alone = case.begin(pair);
        for (sequence, progress) in first.iter().enumerate() {
            assert_eq!(progress.outputs, second[sequence].outputs, "cut otherwise");
            let piece = Piece { sequence, rows: 0..case.len, guesses: 0, right: 0 };
            case.step(pair, &mut alone, &[piece]);
            assert_eq!(progress.outputs, alone[sequence].outputs, "alone");
        }
    });
}

#[test]
fn saved_states_continue_where_they_were_saved() {
    on_every_device(5, |pair| {
        let count = pair.number(1, 4);
        let case = Case::new(pair, count);
        let first = case.run(pair, 7);
        let slots = first.iter().flat_map(|progress| [progress.slot, progress.save.1]);
        let taken: Vec<u32> = slots.collect();
        let mut free = (0..4 * count as u32).filter(|slot| !taken.contains(slot));
        let mut again = case.begin(pair);
        for (sequence, before) in first.iter().enumerate() {
            let (Some(between), Some(slot)) = (free.next(), free.next()) else { break };
            let (position, saved) = before.save;
            if !before.is_saved {
                continue;
            }
            pair.both(|backend| backend.copy_states(&[(saved, between), (between, slot)]));
            let own = &mut again[sequence];
            (own.slot, own.position, own.save.0) = (slot, position + 1, usize::MAX);
            own.table.clone_from(&before.table);
            let rows = position + 1..case.len;
            case.step(pair, &mut again, &[Piece { sequence, rows, guesses: 0, right: 0 }]);
            for (now, before) in again[sequence].outputs.iter().zip(&before.outputs) {
                for (now, before) in now.iter().zip(before) {
                    let rest = (position + 1) * (before.len() / case.len);
                    assert_eq!(now, &before[rest..], "continued from a saved state");
                }
            }
        }
    });
}
