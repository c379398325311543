//! Attention over plain rows (DeepSeek V4): compressed rows, all or the best by an index, and the
//! rows of a window. Rows of the batch, by groups of heads, are spread over the threads.

use crate::batch::Batch;
use crate::cpu::core::CpuCore;
use crate::cpu::kv::{KvCache, PlainRef};
use crate::cpu::scratch::scratch;
use crate::error::Error;
use crate::handles::{Buffer, IndexSpec, RowAttention, Selection};
use base::AlignedVec;
use kernels::attention::rows::{self, RowQuery, attend_rows};
use kernels::kv::RowList;
use kernels::select::{index_scores, top_k};
use std::cell::RefCell;

/// Heads that a thread computes at a time: as many as fit into lanes where rows are few, else as
/// many as share one conversion of the rows.
const HEADS: [usize; 2] = [16, 64];
/// Rows for each thread from which rows are many.
const MANY_ROWS: usize = 4;

/// Compressed rows that each row of a batch attends to.
struct SelectionMemory {
    /// Most rows of a choice.
    top: usize,
    /// `[rows, top]`, ascending, of each row as many runs as there are, at most `top`.
    numbers: AlignedVec<u32>,
    /// Whether threads have the memory that scores take.
    warm: bool,
}

/// All choices.
#[derive(Default)]
pub(in crate::cpu) struct Selections(Vec<SelectionMemory>);

thread_local! {
    /// Offsets of rows; kept, so that a step allocates nothing.
    static OFFSETS: RefCell<[Vec<usize>; 2]> = RefCell::default();
    /// Workspace and result of a choice.
    static CHOICE: RefCell<[Vec<u32>; 2]> = RefCell::default();
}

/// Most rows for which a thread has memory before it needs it.
const MAX_RESERVED: usize = 1 << 16;

/// Allocates what this thread needs to attend to up to `most` plain rows of up to `dim` values, so
/// that a step allocates nothing later, within reason.
pub(in crate::cpu) fn warm_up(most: usize, dim: usize) {
    let most = most.min(MAX_RESERVED);
    rows::warm_up(dim);
    OFFSETS.with_borrow_mut(|all| all.iter_mut().for_each(|offsets| offsets.reserve(most)));
    CHOICE.with_borrow_mut(|all| all.iter_mut().for_each(|numbers| numbers.reserve(most)));
    scratch(most, |_| ());
}

impl PlainRef<'_> {
    /// Writes the offsets of the rows `numbers`.
    fn offsets(&self, numbers: impl Iterator<Item = usize>, table: &[u32], out: &mut Vec<usize>) {
        out.clear();
        out.extend(numbers.map(|number| self.offset(number, table)));
    }
}

impl Selections {
    /// Space for a choice of `top` rows by each of `rows` rows.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub fn add(&mut self, rows: usize, top: usize) -> Result<Selection, Error> {
        let numbers = AlignedVec::try_zeroed(rows.saturating_mul(top))?;
        self.0.push(SelectionMemory { top, numbers, warm: false });
        Ok(Selection(self.0.len() - 1))
    }

    /// Bytes of all choices.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|selection| 4 * selection.numbers.len()).sum()
    }

    /// Chooses the rows that each row of the batch attends to.
    pub fn select(
        &mut self,
        core: &CpuCore,
        kv: &KvCache,
        layer: usize,
        (q, weights): (Buffer, Buffer),
        spec: &IndexSpec,
        batch: &Batch,
    ) {
        core.pool.begin("select_rows");
        let rows = kv.plain(layer, spec.rows);
        let SelectionMemory { top, numbers, warm } = &mut self.0[spec.selection.0];
        let top = *top;
        if top == 0 {
            return;
        }
        if !std::mem::replace(warm, true) {
            core.pool.run(&|_| {
                let (q, weights) = (core.row(q, 0), core.row(weights, 0));
                let none = RowList { rows: rows.plain, data: rows.data, offsets: &[] };
                index_scores(core.isa, q, weights, none, &mut []);
            });
        }
        let used = &mut numbers[..batch.rows() * top];
        core.pool.for_each_tile(used, top, (1, top), |mut tile| {
            let row = tile.rows().start;
            let (index, position) = batch.place(row);
            let sequence = &batch.sequences()[index];
            let present = rows.rows.present(position, spec.first);
            let runs = spec.runs.candidates(present.len());
            // Where all fit, all are chosen, which attention does without a list.
            if runs <= top {
                return;
            }
            let scored = runs * spec.runs.len;
            let scored_rows = present.start..present.start + scored;
            let table = batch.block_table(sequence, rows.group);
            OFFSETS.with_borrow_mut(|[offsets, _]| {
                rows.offsets(scored_rows.clone(), table, offsets);
                let list = RowList { rows: rows.plain, data: rows.data, offsets };
                scratch(scored, |scores| {
                    index_scores(core.isa, core.row(q, row), core.row(weights, row), list, scores);
                    let scores = scores_of_runs(scores, spec);
                    CHOICE.with_borrow_mut(|[work, chosen]| {
                        top_k(scores, top, work, chosen);
                        tile.row_mut(row).copy_from_slice(chosen);
                    });
                });
            });
        });
    }

    /// Outputs of all heads of the batch's rows.
    pub fn attend(
        &self,
        core: &mut CpuCore,
        kv: &KvCache,
        layer: usize,
        (q, out): (Buffer, Buffer),
        spec: &RowAttention,
        batch: &Batch,
    ) {
        core.pool.begin("attend_rows");
        let mut data = core.take(out);
        let rows = |which: usize| kv.plain(layer, which);
        let (window, compressed) = (spec.window.map(rows), spec.compressed.map(rows));
        let any = window.as_ref().or(compressed.as_ref()).expect("rows to attend to");
        let (dim, width) = (any.rows.dim, spec.heads * any.rows.dim);
        let used = &mut data[..batch.rows() * width];
        let are_many = batch.rows() >= MANY_ROWS * core.pool.threads();
        let heads_at_once = HEADS[usize::from(are_many)];
        let sinks = spec.sinks.map_or(&[][..], |sinks| &core.vectors[sinks.0]);
        core.pool.for_each_tile(used, width, (1, heads_at_once * dim), |mut tile| {
            let row = tile.rows().start;
            let heads = tile.cols().start / dim..tile.cols().end / dim;
            let (index, position) = batch.place(row);
            let sequence = &batch.sequences()[index];
            OFFSETS.with_borrow_mut(|[first, second]| {
                let table = |rows: &PlainRef<'_>| batch.block_table(sequence, rows.group);
                first.clear();
                second.clear();
                if let Some(rows) = &compressed {
                    let (present, run) = (rows.rows.present(position, spec.first), spec.runs.len);
                    let (start, runs) = (present.start, spec.runs.candidates(present.len()));
                    match spec.selection.map(|selection| &self.0[selection.0]) {
                        Some(SelectionMemory { top, numbers, .. }) if runs > *top => {
                            let chosen = numbers[row * top..][..*top].iter();
                            let chosen = chosen.map(|number| start + *number as usize * run);
                            let chosen = chosen.flat_map(|first| first..first + run);
                            let rest = start + runs * run..present.end;
                            rows.offsets(chosen.chain(rest), table(rows), first);
                        }
                        _ => rows.offsets(present, table(rows), first),
                    }
                }
                if let Some(window) = &window {
                    let oldest = spec.first_seen(position, window.rows.window);
                    window.offsets(oldest..position + 1, table(window), second);
                }
                let list = [(&compressed, &*first), (&window, &*second)];
                let list = list.map(|(rows, offsets)| (rows.as_ref().unwrap_or(any), offsets));
                let lists = list.map(|(rows, offsets)| RowList {
                    rows: rows.plain,
                    data: rows.data,
                    offsets,
                });
                let q = core.row(q, row);
                let query = RowQuery { q, heads, scale: spec.scale, sinks };
                attend_rows(core.isa, &query, lists, tile.row_mut(row));
            });
        });
        core.put(out, data);
    }
}

/// The scores of runs from those of their rows, in the same place.
fn scores_of_runs<'a>(scores: &'a mut [f32], spec: &IndexSpec) -> &'a [f32] {
    let (len, runs) = (spec.runs.len, scores.len() / spec.runs.len);
    if len > 1 {
        for run in 0..runs {
            let rows = scores[run * len..][..len].iter();
            scores[run] = rows.copied().fold(f32::NEG_INFINITY, f32::max);
        }
    }
    let scores = &mut scores[..runs];
    scores[runs.saturating_sub(spec.last)..].fill(f32::INFINITY);
    scores
}
