//! Batches as messages: what is written is read again, and no bytes do harm.

use super::message::{MessageKind, MessageReader, MessageWriter};
use super::step_message::{BatchBounds, BatchReader, write};
use super::tables::LastTables;
use backend::{Adapter, AdapterSet, Batch, BlockCopy, GroupSize, ScaledAdapter, StateRows};
use proptest::prelude::*;
use std::sync::Arc;

const BLOCK: usize = 16;

pub(super) fn bounds() -> BatchBounds {
    BatchBounds {
        rows: 40,
        logit_rows: 8,
        words: 1000,
        token_types: 2,
        context: 20 * BLOCK,
        block: BLOCK,
        groups: vec![
            GroupSize { window: None, blocks: 60 },
            GroupSize { window: Some(20), blocks: 30 },
        ],
        states: 6,
        drafted: 16,
        adapters: 4,
    }
}

fn adapters() -> Vec<Arc<Adapter>> {
    ["a", "b"].map(|digest| Arc::new(Adapter::new(digest.to_owned(), Vec::new()))).to_vec()
}

/// A sequence of a step.
#[derive(Clone, Debug)]
struct SequenceStep {
    position: usize,
    tokens: Vec<u32>,
    logits: usize,
    hidden: usize,
    is_long: bool,
    has_types: bool,
    state: Option<(u32, usize, usize)>,
    saves: Vec<u32>,
    adapters: Vec<usize>,
    blocks: Vec<u32>,
}

impl SequenceStep {
    fn add(&self, batch: &mut Batch) {
        let rows = self.tokens.len();
        batch.push([&self.tokens, &[]], self.position, self.logits.min(rows));
        let before: Vec<u32> = (0..self.position as u32).collect();
        batch.follow(&before);
        if self.has_types {
            batch.types(&vec![1; rows]);
        }
        if self.is_long {
            batch.mark_long();
        }
        let all = adapters();
        let scaled = self
            .adapters
            .iter()
            .map(|at| ScaledAdapter { adapter: Arc::clone(&all[*at]), scale: 0.5 });
        batch.adapt(&AdapterSet::new(scaled));
        let blocks = (self.position + rows).div_ceil(BLOCK);
        let table: Vec<u32> = self.blocks.iter().cycle().take(blocks).copied().collect();
        batch.table(&table);
        let first = self.position.saturating_sub(20) / BLOCK;
        let windowed = table.iter().enumerate();
        let windowed = windowed.map(|(at, it)| if at < first { u32::MAX } else { it % 30 });
        batch.table(&windowed.collect::<Vec<_>>());
        batch.want_hidden(self.hidden.min(rows));
        let Some((slot, right, guesses)) = self.state else { return };
        let guesses = guesses.min(rows - 1);
        batch.state(StateRows { slot, right, guesses });
        for (row, slot) in self.saves.iter().take(rows - guesses).enumerate() {
            batch.save(self.position + row, *slot);
        }
    }
}

fn sequence_step() -> impl Strategy<Value = SequenceStep> {
    let rows = (0..200usize, prop::collection::vec(0..1000u32, 1..10), 0..3usize, 0..3usize);
    let state = prop::option::of((0..6u32, 0..5usize, 0..4usize));
    let more = (any::<bool>(), any::<bool>(), state, prop::collection::vec(0..6u32, 0..3));
    let blocks = prop::collection::vec(0..60u32, 1..20);
    (rows, more, prop::collection::vec(0..2usize, 0..3), blocks).prop_map(
        |(
            (position, tokens, logits, hidden),
            (is_long, has_types, state, saves),
            adapters,
            blocks,
        )| {
            SequenceStep {
                position,
                tokens,
                logits,
                hidden,
                is_long,
                has_types,
                state,
                saves,
                adapters,
                blocks,
            }
        },
    )
}

type Copies = (Vec<(u32, u32)>, Vec<(u32, u32)>);

fn step() -> impl Strategy<Value = (Vec<SequenceStep>, Copies)> {
    let pairs = |end: u32| prop::collection::vec((0..end, 0..end), 0..4);
    (prop::collection::vec(sequence_step(), 1..4), (pairs(30), pairs(6)))
}

fn batch((sequences, (blocks, states)): &(Vec<SequenceStep>, Copies)) -> Batch {
    let mut batch = Batch::default();
    for (from, to) in blocks {
        batch.copy(BlockCopy { group: *from as usize % 2, from: *from, to: *to });
    }
    states.iter().for_each(|(from, to)| batch.copy_state(*from, *to));
    sequences.iter().for_each(|sequence| sequence.add(&mut batch));
    batch
}

/// Both ends of the messages.
struct Ends {
    writer: MessageWriter,
    tables: [[LastTables; 2]; 2],
}

impl Ends {
    fn new() -> Self {
        let tables = || [LastTables::new(2, 0), LastTables::new(2, 0)];
        Self { writer: MessageWriter::default(), tables: [tables(), tables()] }
    }

    fn write(&mut self, batch: &Batch) {
        self.writer.begin(MessageKind::Step);
        let [last, next] = &mut self.tables[0];
        write(&mut self.writer, batch, (last, next), 2);
        self.tables[0].swap(0, 1);
    }

    fn read(&mut self, bytes: &[u8], number: u64) -> Result<Batch, String> {
        let (kind, mut reader) = MessageReader::begin(bytes, number)?;
        assert_eq!(kind, MessageKind::Step);
        let (bounds, adapters, mut batch) = (bounds(), adapters(), Batch::default());
        let [last, next] = &mut self.tables[1];
        let mut batches =
            BatchReader { bounds: &bounds, adapters: &adapters, tokens: &mut Vec::new() };
        batches.read(&mut reader, &mut batch, (last, next))?;
        self.tables[1].swap(0, 1);
        Ok(batch)
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(steps in prop::collection::vec(step(), 1..5)) {
        let mut ends = Ends::new();
        for (number, step) in steps.iter().enumerate() {
            let expected = batch(step);
            ends.write(&expected);
            let bytes = ends.writer.bytes.clone();
            let found = ends.read(&bytes, number as u64).unwrap();
            prop_assert_eq!(format!("{found:?}"), format!("{expected:?}"));
        }
    }

    /// Bytes that are changed, cut or added are refused, or are a batch within the bounds.
    #[test]
    fn no_bytes_do_harm(
        (first, second) in (step(), step()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        length in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut ends = Ends::new();
        ends.write(&batch(&first));
        let bytes = ends.writer.bytes.clone();
        ends.read(&bytes, 0).unwrap();
        ends.write(&batch(&second));
        let mut bytes = ends.writer.bytes.clone();
        // The kind is left as it is.
        changes.iter().for_each(|(at, byte)| {
            let at = 11 + at.index(bytes.len() - 11);
            bytes[at] = *byte;
        });
        if cuts {
            bytes.truncate(length.index(bytes.len()).max(11));
        }
        if let Ok(found) = ends.read(&bytes, 1) {
            let bounds = bounds();
            prop_assert!((1..=bounds.rows).contains(&found.rows()));
            prop_assert!(found.logit_rows().len() <= bounds.logit_rows);
            prop_assert!(found.tokens().iter().all(|token| (*token as usize) < bounds.words));
            for sequence in found.sequences() {
                for (group, size) in bounds.groups.iter().enumerate() {
                    let table = found.block_table(sequence, group);
                    prop_assert!(table.len() * BLOCK >= sequence.end());
                    let mut blocks = table.iter().skip_while(|block| **block == u32::MAX);
                    prop_assert!(blocks.all(|block| (*block as usize) < size.blocks));
                }
            }
        }
    }
}

#[test]
fn tables_travel_once() {
    let long = |position: usize| {
        let sequence = SequenceStep {
            position,
            tokens: vec![5],
            logits: 1,
            hidden: 0,
            is_long: false,
            has_types: false,
            state: None,
            saves: Vec::new(),
            adapters: Vec::new(),
            blocks: (0..20).collect(),
        };
        batch(&(vec![sequence], (Vec::new(), Vec::new())))
    };
    let mut ends = Ends::new();
    ends.write(&long(300));
    let first = ends.writer.bytes.len();
    ends.write(&long(301));
    let second = ends.writer.bytes.len();
    // 19 blocks of the first group, and 2 in sight of the second.
    assert_eq!(first - second, 4 * (19 + 2));
}

#[test]
fn other_messages_are_refused_with_what_was_expected() {
    let mut writer = MessageWriter::default();
    writer.begin(MessageKind::End);
    assert_eq!(MessageReader::begin(&writer.bytes, 0).unwrap().0, MessageKind::End);
    let problem = |bytes: &[u8], number| MessageReader::begin(bytes, number).unwrap_err();
    assert_eq!(problem(&writer.bytes, 3), "expected message 3, found 0");
    assert_eq!(problem(&writer.bytes[..5], 0), "expected 8 bytes more, found 2");
    let mut other = writer.bytes.clone();
    other[0] = 7;
    assert_eq!(problem(&other, 0), "expected version 3, found 7");
    other = writer.bytes.clone();
    other[2] = 99;
    assert_eq!(problem(&other, 0), "expected a kind of message, found 99");
}
