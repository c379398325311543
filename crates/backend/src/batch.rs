//! The inputs of one forward pass: rows of several sequences, each at its own positions.

use crate::adapters::{AdaptedRows, AdapterSet};
use std::ops::Range;

/// Rows of one sequence in a batch: consecutive positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceRows {
    /// Rows of the batch.
    pub rows: Range<usize>,
    /// Position of the first row.
    pub position: usize,
    /// Its block tables: one for each group of rows, in order, among those of the batch.
    tables: Range<usize>,
    /// Where the states of the sequence are held, if the model has states.
    pub state: Option<StateRows>,
    /// The states to be saved after rows, among those of the batch.
    saves: Range<usize>,
    /// Tokens before the first row, among those of the batch.
    before: Range<usize>,
}

impl SequenceRows {
    /// One more than the position of the last row.
    pub fn end(&self) -> usize {
        self.position + self.rows.len()
    }
}

/// The state slot of a sequence in a batch, and what the step does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRows {
    /// The slot.
    pub slot: u32,
    /// Number of guessed rows of the step before that proved right: their inputs wait in the slot.
    pub right: usize,
    /// Number of last rows that are guesses. They do not change the state; their inputs wait.
    pub guesses: usize,
}

/// A state that is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSave {
    /// Row of the batch whose state, its own token included, is saved; not a guess.
    pub row: usize,
    /// Slot that is written.
    pub slot: u32,
}

/// A block whose content is copied into another of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// The group of both.
    pub group: usize,
    /// The block that is read.
    pub from: u32,
    /// The block that is written.
    pub to: u32,
}

/// The inputs of one forward pass. Made once and refilled, so that a step allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    sequences: Vec<SequenceRows>,
    /// Ranges of `blocks`, one table after another.
    tables: Vec<Range<usize>>,
    blocks: Vec<u32>,
    logit_rows: Vec<u32>,
    hidden_rows: Vec<u32>,
    /// Type of each token.
    types: Vec<u32>,
    copies: Vec<BlockCopy>,
    state_copies: Vec<(u32, u32)>,
    saves: Vec<StateSave>,
    before: Vec<u32>,
    /// Rows of sequences that may become longer than the original context.
    long: Vec<Range<usize>>,
    /// Rows of sequences with adapters, and the same among the rows with logits.
    adapted: Vec<AdaptedRows>,
    adapted_logits: Vec<AdaptedRows>,
}

impl Batch {
    /// Most tokens before the rows of a sequence that are kept: what n-grams reach back.
    pub const MAX_BEFORE: usize = 7;

    /// An empty batch with capacity for `rows` rows, as many sequences, and `blocks` block numbers
    /// in tables of `groups` groups.
    pub fn with_capacity(rows: usize, blocks: usize, groups: usize) -> Self {
        Self {
            tokens: Vec::with_capacity(rows),
            positions: Vec::with_capacity(rows),
            sequences: Vec::with_capacity(rows),
            tables: Vec::with_capacity(rows * groups),
            blocks: Vec::with_capacity(blocks),
            logit_rows: Vec::with_capacity(rows),
            hidden_rows: Vec::with_capacity(rows),
            types: Vec::with_capacity(rows),
            copies: Vec::with_capacity(rows),
            state_copies: Vec::with_capacity(rows),
            saves: Vec::with_capacity(rows),
            before: Vec::with_capacity(rows * Self::MAX_BEFORE),
            long: Vec::with_capacity(rows),
            adapted: Vec::with_capacity(rows),
            adapted_logits: Vec::with_capacity(rows),
        }
    }

    /// Removes all rows and keeps the capacity.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.sequences.clear();
        self.tables.clear();
        self.blocks.clear();
        self.logit_rows.clear();
        self.hidden_rows.clear();
        self.types.clear();
        self.copies.clear();
        self.state_copies.clear();
        self.saves.clear();
        self.before.clear();
        self.long.clear();
        self.adapted.clear();
        self.adapted_logits.clear();
    }

    /// Copies a block before the forward pass, after the copies added earlier.
    pub fn copy(&mut self, copy: BlockCopy) {
        self.copies.push(copy);
    }

    /// Blocks to be copied, in this order.
    pub fn copies(&self) -> &[BlockCopy] {
        &self.copies
    }

    /// Copies the state in slot `from` to slot `to` before the forward pass, after the copies added
    /// earlier.
    pub fn copy_state(&mut self, from: u32, to: u32) {
        self.state_copies.push((from, to));
    }

    /// States to be copied in this order: from, to.
    pub fn state_copies(&self) -> &[(u32, u32)] {
        &self.state_copies
    }

    /// Adds `tokens` of one sequence at positions from `position` on. The last `logits` rows output
    /// logits. Its block tables follow with [`table`](Self::table).
    pub fn push(&mut self, tokens: [&[u32]; 2], position: usize, logits: usize) {
        let first = self.tokens.len();
        tokens.iter().for_each(|part| self.tokens.extend_from_slice(part));
        let len = self.tokens.len() - first;
        self.types.resize(self.tokens.len(), 0);
        assert!(len > 0 && logits <= len, "logits of rows that are there");
        self.positions.extend((position..position + len).map(|p| p as u32));
        let rows = first..self.tokens.len();
        self.logit_rows.extend((rows.end - logits..rows.end).map(|row| row as u32));
        let tables = self.tables.len()..self.tables.len();
        let saves = self.saves.len()..self.saves.len();
        let before = self.before.len()..self.before.len();
        self.sequences.push(SequenceRows { rows, position, tables, state: None, saves, before });
    }

    /// Sets the tokens before the first row of the sequence that was added last, from position 0
    /// on, of which the last [`MAX_BEFORE`](Self::MAX_BEFORE) are kept.
    pub fn follow(&mut self, tokens: &[u32]) {
        let kept = &tokens[tokens.len().saturating_sub(Self::MAX_BEFORE)..];
        self.before.extend_from_slice(kept);
        self.last().before.end += kept.len();
    }

    /// The last tokens before the first row of `sequence`, at most
    /// [`MAX_BEFORE`](Self::MAX_BEFORE).
    pub fn before(&self, sequence: &SequenceRows) -> &[u32] {
        &self.before[sequence.before.clone()]
    }

    /// Sets the types of the tokens of the sequence that was added last, such as that of a query
    /// and that of a document; 0 is the type of tokens without one.
    pub fn types(&mut self, types: &[u32]) {
        let rows = self.last().rows.clone();
        self.types[rows].copy_from_slice(types);
    }

    /// Type of each token.
    pub fn token_types(&self) -> &[u32] {
        &self.types
    }

    /// Marks the sequence that was added last as one that may become longer than the original
    /// context of the model.
    pub fn mark_long(&mut self) {
        self.long.extend(self.sequences.last().map(|sequence| sequence.rows.clone()));
    }

    /// Rows of such sequences.
    pub fn long_rows(&self) -> &[Range<usize>] {
        &self.long
    }

    /// Computes the sequence that was added last with `adapters`.
    pub fn adapt(&mut self, adapters: &AdapterSet) {
        if adapters.is_empty() {
            return;
        }
        let rows = self.last().rows.clone();
        let logits = self.logit_rows.partition_point(|row| (*row as usize) < rows.start);
        extend(&mut self.adapted, rows, adapters);
        extend(&mut self.adapted_logits, logits..self.logit_rows.len(), adapters);
    }

    /// Rows of sequences with adapters, ascending; neighbours have other adapters.
    pub fn adapted(&self) -> &[AdaptedRows] {
        &self.adapted
    }

    /// The same for the rows that output logits, by their place among these.
    pub fn adapted_logits(&self) -> &[AdaptedRows] {
        &self.adapted_logits
    }

    /// Adds a block table, up to its last position here, of the sequence that was added last. The
    /// tables of all groups are added in order.
    pub fn table(&mut self, blocks: &[u32]) {
        let first = self.blocks.len();
        self.blocks.extend_from_slice(blocks);
        self.tables.push(first..self.blocks.len());
        self.last().tables.end += 1;
    }

    /// Sets the state slot of the sequence that was added last.
    pub fn state(&mut self, state: StateRows) {
        assert!(state.guesses < self.last().rows.len(), "a row of a known token");
        self.last().state = Some(state);
    }

    /// Saves the state after the row at `position` of the sequence that was added last, in
    /// ascending order.
    pub fn save(&mut self, position: usize, slot: u32) {
        let last = self.last();
        let row = last.rows.start + position - last.position;
        let guesses = last.state.map_or(0, |state| state.guesses);
        assert!(row + guesses < last.rows.end, "the row of a known token");
        last.saves.end += 1;
        self.saves.push(StateSave { row, slot });
    }

    fn last(&mut self) -> &mut SequenceRows {
        self.sequences.last_mut().expect("a sequence was added")
    }

    /// Outputs the hidden states of the last `rows` rows of the sequence that was added last.
    pub fn want_hidden(&mut self, rows: usize) {
        let last = self.sequences.last().map_or(0..0, |sequence| sequence.rows.clone());
        assert!(rows <= last.len(), "hidden states of rows that are there");
        self.hidden_rows.extend((last.end - rows..last.end).map(|row| row as u32));
    }

    /// The same rows, each at the position before its own, so that it attends to the rows before
    /// it alone. Rows at the first position stay there.
    #[must_use]
    pub fn one_earlier(&self) -> Self {
        let mut earlier = self.clone();
        earlier.positions.iter_mut().for_each(|position| *position = position.saturating_sub(1));
        for sequence in &mut earlier.sequences {
            sequence.position = sequence.position.saturating_sub(1);
        }
        earlier
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// Token of each row.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Position of each row in its sequence.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// Index of the sequence of row `row`, and the row's position.
    pub fn place(&self, row: usize) -> (usize, usize) {
        let index = self.sequences.partition_point(|sequence| sequence.rows.end <= row);
        (index, self.positions[row] as usize)
    }

    /// The sequences, in order of their rows.
    pub fn sequences(&self) -> &[SequenceRows] {
        &self.sequences
    }

    /// The block table of `sequence` in `group`, by position divided by the block size. Blocks
    /// before the window of the group are `u32::MAX`.
    pub fn block_table(&self, sequence: &SequenceRows, group: usize) -> &[u32] {
        &self.blocks[self.tables[sequence.tables.clone()][group].clone()]
    }

    /// The states to be saved after rows of `sequence`, ascending.
    pub fn saves(&self, sequence: &SequenceRows) -> &[StateSave] {
        &self.saves[sequence.saves.clone()]
    }

    /// Rows that output hidden states, ascending.
    pub fn hidden_rows(&self) -> &[u32] {
        &self.hidden_rows
    }

    /// Rows that output logits, ascending.
    pub fn logit_rows(&self) -> &[u32] {
        &self.logit_rows
    }

    /// Rows that output hidden states or logits, as ranges that do not overlap, ascending.
    pub fn wanted_rows(&self) -> impl Iterator<Item = Range<usize>> {
        let (mut hidden, mut logits) = (self.hidden_rows.as_slice(), self.logit_rows.as_slice());
        std::iter::from_fn(move || {
            let first = *hidden.first().into_iter().chain(logits.first()).min()?;
            let mut end = first;
            while hidden.first() == Some(&end) || logits.first() == Some(&end) {
                hidden = hidden.strip_prefix(&[end]).unwrap_or(hidden);
                logits = logits.strip_prefix(&[end]).unwrap_or(logits);
                end += 1;
            }
            Some(first as usize..end as usize)
        })
    }
}

/// Adds rows with these adapters, to those before them if they have the same.
fn extend(all: &mut Vec<AdaptedRows>, rows: Range<usize>, adapters: &AdapterSet) {
    match all.last_mut() {
        _ if rows.is_empty() => {}
        Some(last) if last.rows.end == rows.start && last.adapters == *adapters => {
            last.rows.end = rows.end;
        }
        _ => all.push(AdaptedRows { rows, adapters: adapters.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Adapter, ScaledAdapter};
    use std::sync::Arc;

    fn set(digest: u32) -> AdapterSet {
        let adapter = Arc::new(Adapter::new(digest.to_string(), Vec::new()));
        AdapterSet::new([ScaledAdapter { adapter, scale: 1.0 }])
    }

    #[test]
    fn rows_positions_and_tables_line_up() {
        let mut batch = Batch::with_capacity(8, 8, 2);
        batch.push([&[5, 6], &[7]], 16, 2);
        batch.table(&[3, 9]);
        batch.table(&[u32::MAX, 4]);
        batch.state(StateRows { slot: 6, right: 0, guesses: 1 });
        batch.save(17, 2);
        batch.push([&[8], &[]], 0, 1);
        batch.types(&[1]);
        batch.table(&[1]);
        batch.table(&[0]);
        assert_eq!(batch.positions(), [16, 17, 18, 0]);
        assert_eq!(batch.logit_rows(), [1, 2, 3]);
        assert_eq!(batch.token_types(), [0, 0, 0, 1]);
        assert_eq!(batch.sequences()[0].end(), 19);
        assert_eq!([0, 2, 3].map(|row| batch.place(row)), [(0, 16), (0, 18), (1, 0)]);
        let [first, second] = batch.sequences() else { panic!("two sequences") };
        assert_eq!(batch.block_table(first, 0), [3, 9]);
        assert_eq!(batch.block_table(first, 1), [u32::MAX, 4]);
        assert_eq!(batch.block_table(second, 1), [0]);
        assert_eq!(batch.saves(first), [StateSave { row: 1, slot: 2 }]);
        assert!(batch.saves(second).is_empty());
        assert!(batch.wanted_rows().eq(std::iter::once(1..4)));
        batch.want_hidden(1);
        assert_eq!(batch.hidden_rows(), [3]);
        assert!(batch.wanted_rows().eq(std::iter::once(1..4)));
        batch.adapt(&set(1));
        batch.push([&[9, 9], &[]], 0, 1);
        batch.adapt(&set(1));
        batch.push([&[9, 9], &[]], 0, 0);
        batch.adapt(&set(2));
        let rows = |of: &[AdaptedRows]| of.iter().map(|it| it.rows.clone()).collect::<Vec<_>>();
        assert_eq!(rows(batch.adapted()), [3..6, 6..8]);
        let logits = rows(batch.adapted_logits());
        assert_eq!((logits.len(), logits[0].clone()), (1, 2..4));
        let copy = BlockCopy { group: 1, from: 9, to: 4 };
        batch.copy(copy);
        assert_eq!(batch.copies(), [copy]);
        assert!(batch.wanted_rows().eq([1..4, 5..6]));
        batch.clear();
        assert_eq!((batch.rows(), batch.copies()), (0, &[][..]));
        assert!(batch.hidden_rows().is_empty());
    }
}
