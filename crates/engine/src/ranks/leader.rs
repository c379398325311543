//! Rank 0 of several that share a model: tells the others what to compute.

use super::message::{MessageKind, MessageWriter};
use super::step_message::{write, write_state_copies};
use super::tables::LastTables;
use backend::Batch;
use dist::{Comm, Error};
use models::Ranks;
use std::sync::Arc;

/// Rank 0, which tells the others that it has ended when it is dropped.
pub(crate) struct Leader {
    world: Arc<dyn Comm>,
    writer: MessageWriter,
    /// Tables of the last step, and of the one that is sent.
    tables: [LastTables; 2],
    groups: usize,
    /// Slices of each stage.
    slices: usize,
}

impl Leader {
    /// Leads the other ranks, whose caches have so many groups, if this is the first of several;
    /// block tables of a step have at most `blocks` blocks.
    pub fn of(ranks: &Ranks, groups: usize, blocks: usize) -> Option<Self> {
        let world = ranks.led()?.clone();
        let tables = [LastTables::new(groups, blocks), LastTables::new(groups, blocks)];
        let (writer, slices) = (MessageWriter::default(), ranks.slices());
        Some(Self { world, writer, tables, groups, slices })
    }

    /// Has all ranks compute `batch`.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn step(&mut self, batch: &Batch) -> Result<(), Error> {
        self.writer.begin(MessageKind::Step);
        let [last, next] = &mut self.tables;
        write(&mut self.writer, batch, (last, next), self.groups);
        self.tables.swap(0, 1);
        self.send()
    }

    /// Has the other slices of the first of several stages compute the outputs of the oldest batch
    /// that was sent.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn land(&mut self) -> Result<(), Error> {
        if self.slices > 1 {
            self.writer.begin(MessageKind::Land);
            self.send()?;
        }
        Ok(())
    }

    /// Has all ranks copy states, from the first slot of each pair to the second.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn copy_states(&mut self, copies: &[(u32, u32)]) -> Result<(), Error> {
        self.writer.begin(MessageKind::CopyStates);
        write_state_copies(&mut self.writer, copies);
        self.send()
    }

    fn send(&self) -> Result<(), Error> {
        (1..self.world.ranks()).try_for_each(|rank| self.world.send_bytes(rank, &self.writer.bytes))
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.writer.begin(MessageKind::End);
        // A rank that has ended needs no message.
        for rank in 1..self.world.ranks() {
            let _ = self.world.send_bytes(rank, &self.writer.bytes);
        }
    }
}
