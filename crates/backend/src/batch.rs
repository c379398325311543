//! The inputs of one forward pass: rows of several sequences, each at its own positions.

use std::ops::Range;

/// Rows of one sequence in a batch: consecutive positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceRows {
    /// Rows of the batch.
    pub rows: Range<usize>,
    /// Position of the first row.
    pub position: usize,
    /// Range of the sequence's block table among the batch's block numbers.
    pub blocks: Range<usize>,
}

/// The inputs of one forward pass. Made once and refilled, so that a step allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    sequences: Vec<SequenceRows>,
    blocks: Vec<u32>,
    logit_rows: Vec<u32>,
    state_rows: Vec<u32>,
    copies: Vec<(u32, u32)>,
}

impl Batch {
    /// An empty batch with capacity for `rows` rows, as many sequences, and `blocks` block numbers.
    pub fn with_capacity(rows: usize, blocks: usize) -> Self {
        Self {
            tokens: Vec::with_capacity(rows),
            positions: Vec::with_capacity(rows),
            sequences: Vec::with_capacity(rows),
            blocks: Vec::with_capacity(blocks),
            logit_rows: Vec::with_capacity(rows),
            state_rows: Vec::with_capacity(rows),
            copies: Vec::with_capacity(rows),
        }
    }

    /// Removes all rows and keeps the capacity.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.sequences.clear();
        self.blocks.clear();
        self.logit_rows.clear();
        self.state_rows.clear();
        self.copies.clear();
    }

    /// Copies block `from` to block `to` before the forward pass, after the copies added earlier.
    pub fn copy(&mut self, from: u32, to: u32) {
        self.copies.push((from, to));
    }

    /// Blocks to be copied in this order: from, to.
    pub fn copies(&self) -> &[(u32, u32)] {
        &self.copies
    }

    /// Adds `tokens` of one sequence at positions from `position` on; `blocks` is its block
    /// table up to its last position here. The last `logits` rows output logits.
    pub fn push(&mut self, tokens: &[u32], position: usize, blocks: &[u32], logits: usize) {
        self.push_parts([tokens, &[]], position, blocks, logits);
    }

    /// As [`push`](Self::push), of tokens in two parts.
    pub fn push_parts(
        &mut self,
        tokens: [&[u32]; 2],
        position: usize,
        blocks: &[u32],
        logits: usize,
    ) {
        let (first, table) = (self.tokens.len(), self.blocks.len());
        tokens.iter().for_each(|part| self.tokens.extend_from_slice(part));
        let len = self.tokens.len() - first;
        assert!(len > 0 && logits <= len, "logits of rows that are there");
        self.positions.extend((position..position + len).map(|p| p as u32));
        self.blocks.extend_from_slice(blocks);
        let rows = first..self.tokens.len();
        self.logit_rows.extend((rows.end - logits..rows.end).map(|row| row as u32));
        let blocks = table..self.blocks.len();
        self.sequences.push(SequenceRows { rows, position, blocks });
    }

    /// Outputs the hidden states of the last `rows` rows of the sequence that was added last.
    pub fn want_states(&mut self, rows: usize) {
        let last = self.sequences.last().map_or(0..0, |sequence| sequence.rows.clone());
        assert!(rows <= last.len(), "states of rows that are there");
        self.state_rows.extend((last.end - rows..last.end).map(|row| row as u32));
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

    /// The sequences, in order of their rows.
    pub fn sequences(&self) -> &[SequenceRows] {
        &self.sequences
    }

    /// The block table of `sequence`.
    pub fn block_table(&self, sequence: &SequenceRows) -> &[u32] {
        &self.blocks[sequence.blocks.clone()]
    }

    /// Rows that output hidden states, ascending.
    pub fn state_rows(&self) -> &[u32] {
        &self.state_rows
    }

    /// Rows that output logits, ascending.
    pub fn logit_rows(&self) -> &[u32] {
        &self.logit_rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_positions_and_tables_line_up() {
        let mut batch = Batch::with_capacity(8, 8);
        batch.push(&[5, 6, 7], 16, &[3, 9], 2);
        batch.push(&[8], 0, &[1], 1);
        assert_eq!(batch.positions(), [16, 17, 18, 0]);
        assert_eq!(batch.logit_rows(), [1, 2, 3]);
        assert_eq!(batch.block_table(&batch.sequences()[0]), [3, 9]);
        assert_eq!(batch.block_table(&batch.sequences()[1]), [1]);
        batch.want_states(1);
        assert_eq!(batch.state_rows(), [3]);
        batch.copy(9, 4);
        assert_eq!(batch.copies(), [(9, 4)]);
        batch.clear();
        assert_eq!((batch.rows(), batch.copies()), (0, &[][..]));
        assert!(batch.state_rows().is_empty());
    }
}
