//! Rank 0 of several that share a model: tells the others what to compute.

use super::disk_message::DiskTask;
use super::message::MessageKind;
use super::outbox::Outbox;
use super::step_message::{write, write_state_copies};
use super::tables::LastTables;
use backend::Batch;
use dist::{Comm, Error};
use models::Ranks;
use std::collections::HashMap;
use std::sync::Arc;

/// Rank 0, which tells the others that it has ended when it is dropped.
pub(crate) struct Leader {
    outbox: Arc<Outbox>,
    /// Tables of the last step, and of the one that is sent.
    tables: [LastTables; 2],
    groups: usize,
    /// Slices of each stage.
    slices: usize,
    answers: RankAnswers,
}

/// Answers of other ranks about their stores, each a ticket and a number.
struct RankAnswers {
    ranks: Arc<dyn Comm>,
    /// Answers that came before they were asked for, by rank and ticket.
    early: Vec<HashMap<u64, u32>>,
}

impl RankAnswers {
    fn new(ranks: Arc<dyn Comm>) -> Self {
        let early = vec![HashMap::new(); ranks.ranks()];
        Self { ranks, early }
    }

    /// Waits for the answers of all ranks under a ticket; returns the least.
    fn least(&mut self, ticket: u64) -> Result<u32, Error> {
        let (mut least, mut bytes) = (u32::MAX, Vec::new());
        for (rank, early) in self.early.iter_mut().enumerate().skip(1) {
            while !early.contains_key(&ticket) {
                self.ranks.receive_bytes(rank, &mut bytes)?;
                // What is no answer says that nothing was done.
                let (of, number) = read_answer(&bytes).unwrap_or((ticket, 0));
                early.insert(of, number);
            }
            least = least.min(early.remove(&ticket).unwrap_or(0));
        }
        Ok(least)
    }
}

/// An answer as bytes, little-endian.
pub(crate) fn write_answer(ticket: u64, number: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&ticket.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn read_answer(bytes: &[u8]) -> Option<(u64, u32)> {
    let (ticket, number) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*ticket), u32::from_le_bytes(number.try_into().ok()?)))
}

impl Leader {
    /// Leads the other ranks, whose caches have so many groups, if this is the first of several;
    /// block tables of a step have at most `blocks` blocks.
    pub fn of(ranks: &Ranks, groups: usize, blocks: usize) -> Option<Self> {
        let outbox = Arc::new(Outbox::new(ranks.led()?.clone()));
        let answers = RankAnswers::new(ranks.answers()?.clone());
        let tables = [LastTables::new(groups, blocks), LastTables::new(groups, blocks)];
        Some(Self { outbox, tables, groups, slices: ranks.slices(), answers })
    }

    /// Has all ranks compute `batch`; `is_recorded` is whether profiles of experts count it.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn step(&mut self, batch: &Batch, is_recorded: bool) -> Result<(), Error> {
        let [last, next] = &mut self.tables;
        self.outbox.send(|writer| {
            writer.begin(if is_recorded { MessageKind::Step } else { MessageKind::UnrecordedStep });
            write(writer, batch, (last, next), self.groups);
        })?;
        self.tables.swap(0, 1);
        Ok(())
    }

    /// Has the other slices of the first of several stages compute the outputs of the oldest batch
    /// that was sent.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn land(&mut self) -> Result<(), Error> {
        if self.slices > 1 {
            self.outbox.send(|writer| writer.begin(MessageKind::Land))?;
        }
        Ok(())
    }

    /// Has all ranks copy states, from the first slot of each pair to the second.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn copy_states(&mut self, copies: &[(u32, u32)]) -> Result<(), Error> {
        let sent = self.outbox.send(|writer| {
            writer.begin(MessageKind::CopyStates);
            write_state_copies(writer, copies);
        });
        sent.map(|_| ())
    }

    /// Has all ranks do something with their stores of blocks.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn disk(&mut self, task: &DiskTask) -> Result<(), Error> {
        self.outbox.send(|writer| task.write(writer)).map(|_| ())
    }

    /// Waits for the answers of all other ranks under a ticket; returns the least.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn disk_answer(&mut self, ticket: u64) -> Result<u32, Error> {
        self.answers.least(ticket)
    }

    /// What sends messages, also from other threads.
    pub fn outbox(&self) -> Arc<Outbox> {
        Arc::clone(&self.outbox)
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.outbox.end();
    }
}
