//! A rank that computes its part of what rank 0 sends.

use super::followed_adapters::FollowedAdapters;
use super::run::LAST_STORES;
use crate::disk::{CacheMemory, DiskCache, FollowedDisk};
use crate::load::adapter_base::MAX_ADAPTERS;
use crate::load::error::Error;
use crate::load::runner::Runner;
use crate::observe::drafter::MAX_DRAFTED;
use crate::ranks::disk_message::{BlockKind, DiskTask, DiskTaskBounds};
use crate::ranks::leader::write_answer;
use crate::ranks::message::{MESSAGE_BYTES, MessageKind, MessageReader};
use crate::ranks::step_message::{BatchBounds, BatchReader, read_state_copies};
use crate::ranks::tables::LastTables;
use backend::{Batch, GroupSize};
use dist::Comm;
use models::Ranks;
use std::collections::VecDeque;
use std::sync::Arc;

/// A rank after the first that shares a model.
pub struct Follower {
    runner: Runner,
    messages: FollowedMessages,
    disk: FollowedDisk,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Follower({:?})", self.runner)
    }
}

impl Follower {
    /// Follows rank 0 with a part of the model.
    ///
    /// # Panics
    /// If the rank is the first.
    pub fn new(runner: Runner) -> Self {
        let world = runner.ranks().world().cloned().expect("one of several ranks");
        assert!(world.rank() > 0, "rank 0 follows nobody");
        let messages = FollowedMessages::new(world, &runner);
        Self { runner, messages, disk: FollowedDisk::default() }
    }

    /// The same with a store of blocks, or none.
    #[must_use]
    pub fn with_disk(self, cache: Option<DiskCache>) -> Self {
        Self { disk: FollowedDisk::new(cache), ..self }
    }

    /// What the part of the model is.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }

    /// Computes what rank 0 sends, until it ends.
    ///
    /// # Errors
    /// If a message is none, this rank cannot compute a batch, or another one has ended.
    pub fn run(mut self) -> Result<(), Error> {
        while self.runner.prepare_weights() {}
        while let Some(task) = self.messages.next()? {
            match task {
                LeaderTask::Compute { batch, is_recorded } => {
                    self.runner.follow(batch, is_recorded)?;
                }
                LeaderTask::Land(batch) => self.runner.land_unrecorded(batch)?,
                LeaderTask::Nothing => {}
                LeaderTask::CopyStates(copies) => self.runner.copy_states(copies)?,
                LeaderTask::Disk(task) => {
                    if let Some((ticket, number)) = self.disk.work(task, &mut self.runner) {
                        self.messages.answer(ticket, number)?;
                    }
                }
            }
        }
        self.messages.adapters.finish();
        self.disk.finish(LAST_STORES);
        Ok(())
    }
}

/// What rank 0 asks for.
enum LeaderTask<'a> {
    Compute { batch: &'a Batch, is_recorded: bool },
    Land(&'a Batch),
    CopyStates(&'a [(u32, u32)]),
    Disk(DiskTask),
    Nothing,
}

/// The messages of rank 0, and memory to read them into.
struct FollowedMessages {
    world: Arc<dyn Comm>,
    /// All ranks, of which the first waits for answers here.
    answers: Option<Arc<dyn Comm>>,
    number: u64,
    bounds: BatchBounds,
    /// The kinds of blocks that can be stored.
    kinds: Vec<BlockKind>,
    adapters: FollowedAdapters,
    bytes: Vec<u8>,
    tokens: Vec<u32>,
    copies: Vec<(u32, u32)>,
    /// The batch of the last message.
    batch: Batch,
    /// Whether outputs of batches are asked for later, as on the first of several stages.
    lands_later: bool,
    /// Batches whose outputs were not asked for yet, the oldest first, and others.
    launched: VecDeque<Batch>,
    spare: Vec<Batch>,
    tables: [LastTables; 2],
}

impl FollowedMessages {
    fn new(world: Arc<dyn Comm>, runner: &Runner) -> Self {
        let bounds = bounds(runner);
        let base = runner.adapter_base().clone();
        let adapters = FollowedAdapters::new(runner.ranks(), base, runner.loaded_adapters());
        let tables = || LastTables::new(bounds.groups.len(), runner.table_blocks());
        let tables = [tables(), tables()];
        let blocks: Vec<usize> = bounds.groups.iter().map(|group| group.blocks).collect();
        let states = bounds.states;
        Self {
            world,
            answers: runner.ranks().answers().cloned(),
            kinds: runner
                .parts()
                .map_or_else(|_| Vec::new(), |parts| parts.block_kinds(&blocks, states)),
            number: 0,
            adapters,
            bytes: Vec::with_capacity(MESSAGE_BYTES),
            tokens: Vec::with_capacity(bounds.rows),
            copies: Vec::new(),
            batch: runner.batch(),
            lands_later: runner.lands_later(),
            launched: VecDeque::new(),
            spare: Vec::new(),
            tables,
            bounds,
        }
    }

    /// Answers rank 0.
    fn answer(&self, ticket: u64, number: u32) -> Result<(), Error> {
        let Some(answers) = &self.answers else { return Ok(()) };
        let answer = write_answer(ticket, number);
        Ok(answers.send_bytes(0, &answer).map_err(models::Error::from)?)
    }

    /// Waits for the next message. `None` is the end.
    fn next(&mut self) -> Result<Option<LeaderTask<'_>>, Error> {
        self.world.receive_bytes(0, &mut self.bytes).map_err(models::Error::from)?;
        let (kind, mut reader) =
            MessageReader::begin(&self.bytes, self.number).map_err(malformed)?;
        self.number += 1;
        match kind {
            MessageKind::Step | MessageKind::UnrecordedStep => {
                let is_recorded = kind == MessageKind::Step;
                let mut batches = BatchReader {
                    bounds: &self.bounds,
                    adapters: &self.adapters.known(),
                    tokens: &mut self.tokens,
                };
                let [last, next] = &mut self.tables;
                let read = batches.read(&mut reader, &mut self.batch, (last, next));
                read.map_err(malformed)?;
                self.tables.swap(0, 1);
                if !self.lands_later {
                    return Ok(Some(LeaderTask::Compute { batch: &self.batch, is_recorded }));
                }
                let most = Ranks::MAX_IN_FLIGHT;
                if self.launched.len() == most {
                    return Err(malformed(format!("more than {most} batches are under way")));
                }
                let next = self.spare.pop().unwrap_or_default();
                self.launched.push_back(std::mem::replace(&mut self.batch, next));
                let batch = self.launched.back();
                Ok(batch.map(|batch| LeaderTask::Compute { batch, is_recorded }))
            }
            MessageKind::Land if self.lands_later => {
                let landed = self.launched.pop_front();
                let landed = landed.ok_or_else(|| malformed("no batch is under way".into()))?;
                self.spare.push(std::mem::replace(&mut self.batch, landed));
                Ok(Some(LeaderTask::Land(&self.batch)))
            }
            // Only the first stage has the output head.
            MessageKind::Land => Ok(Some(LeaderTask::Nothing)),
            MessageKind::CopyStates => {
                self.copies.clear();
                let copies = &mut self.copies;
                read_state_copies(&mut reader, &self.bounds, |from, to| copies.push((from, to)))
                    .and_then(|()| reader.end())
                    .map_err(malformed)?;
                Ok(Some(LeaderTask::CopyStates(&self.copies)))
            }
            MessageKind::OpenAdapter => {
                self.adapters.open(last_text(&mut reader)?.into())?;
                Ok(Some(LeaderTask::Nothing))
            }
            MessageKind::ForgetAdapter => {
                self.adapters.forget(last_text(&mut reader)?);
                Ok(Some(LeaderTask::Nothing))
            }
            MessageKind::End => Ok(None),
            MessageKind::OpenStore
            | MessageKind::KeepBlocks
            | MessageKind::ReadBlocks
            | MessageKind::FillBlocks
            | MessageKind::DropBlocks => {
                let bounds = DiskTaskBounds { batch: &self.bounds, kinds: &self.kinds };
                let task = bounds.read(kind, &mut reader).map_err(malformed)?;
                Ok(task.map(LeaderTask::Disk))
            }
        }
    }
}

/// The text with which a message ends.
fn last_text<'a>(reader: &mut MessageReader<'a>) -> Result<&'a str, Error> {
    let text = reader.text().map_err(malformed)?;
    reader.end().map_err(malformed)?;
    Ok(text)
}

/// The error of a message with this problem.
fn malformed(problem: String) -> Error {
    Error::Ranks(format!("rank 0 sent what is no message: {problem}"))
}

/// What batches of a model can hold.
fn bounds(runner: &Runner) -> BatchBounds {
    let (info, limits) = (runner.info(), runner.limits());
    let with_spare =
        |group: &GroupSize| GroupSize { blocks: group.blocks + runner.spare_blocks, ..*group };
    BatchBounds {
        rows: limits.rows,
        logit_rows: limits.logit_rows,
        words: info.vocab_size,
        token_types: info.token_types,
        context: info.context_length,
        block: runner.block(),
        groups: runner.groups.iter().map(with_spare).collect(),
        states: runner.states,
        drafted: MAX_DRAFTED,
        adapters: MAX_ADAPTERS,
    }
}
