//! Messages about blocks on disk: rank 0 decides what is stored and found, and each rank stores and
//! reads the bytes of its own layers.

use super::message::{MessageKind, MessageReader, MessageWriter};
use super::step_message::BatchBounds;
use base::Name;
use store::MAX_BLOCKS;

/// The ticket of the answer to [`DiskTask::Open`], which no other task has.
pub(crate) const OPEN_TICKET: u64 = 0;

/// Blocks of one kind that follow each other, each with its name and its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedBlocks {
    pub kind: usize,
    pub blocks: Vec<(Name, Vec<u32>)>,
}

/// Blocks that each rank stores: an extent of the store without its bytes, and where these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptBlocks {
    pub named: NamedBlocks,
    /// Name of the block before the first.
    pub parent: Name,
    /// Blocks before the first.
    pub depth: u32,
    /// Microseconds that it took to compute them.
    pub micros: u64,
    /// The block or the state slot of each in the cache.
    pub places: Vec<u32>,
    /// Whether a rank waits for a buffer where it has none, and does not drop them.
    pub waits: bool,
}

/// What a rank does with its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskTask {
    /// Open what is stored of weights with this digest, and answer under [`OPEN_TICKET`] whether
    /// it is open.
    Open {
        digest: String,
    },
    Keep(KeptBlocks),
    Read {
        ticket: u64,
        named: NamedBlocks,
    },
    /// Copy the first blocks, of this kind, that were read under a ticket to these places, and
    /// answer under the ticket how many.
    Fill {
        ticket: u64,
        kind: usize,
        places: Vec<u32>,
    },
    Drop {
        ticket: u64,
    },
}

impl DiskTask {
    /// Writes the task as the next message.
    pub fn write(&self, writer: &mut MessageWriter) {
        writer.begin(self.kind());
        match self {
            Self::Open { digest } => writer.text(digest),
            Self::Keep(kept) => {
                let KeptBlocks { named, parent, depth, micros, places, waits } = kept;
                writer.number(u32::from(*waits));
                writer.name(*parent);
                writer.number(*depth);
                writer.long(*micros);
                named.write(writer);
                writer.numbers(places);
            }
            Self::Read { ticket, named } => {
                writer.long(*ticket);
                named.write(writer);
            }
            Self::Fill { ticket, kind, places } => {
                writer.long(*ticket);
                writer.size(*kind);
                writer.size(places.len());
                writer.numbers(places);
            }
            Self::Drop { ticket } => writer.long(*ticket),
        }
    }

    /// The kind of the task's message.
    fn kind(&self) -> MessageKind {
        match self {
            Self::Open { .. } => MessageKind::OpenStore,
            Self::Keep(_) => MessageKind::KeepBlocks,
            Self::Read { .. } => MessageKind::ReadBlocks,
            Self::Fill { .. } => MessageKind::FillBlocks,
            Self::Drop { .. } => MessageKind::DropBlocks,
        }
    }
}

impl NamedBlocks {
    fn write(&self, writer: &mut MessageWriter) {
        writer.size(self.kind);
        writer.size(self.blocks.len());
        for (name, tokens) in &self.blocks {
            writer.name(*name);
            writer.size(tokens.len());
            writer.numbers(tokens);
        }
    }
}

/// A kind of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockKind {
    /// Number of places in the cache.
    pub places: usize,
    /// Whether its blocks belong to states, of which each is stored alone.
    pub is_of_state: bool,
}

/// What tasks for a cache can hold.
pub(crate) struct DiskTaskBounds<'a> {
    pub batch: &'a BatchBounds,
    pub kinds: &'a [BlockKind],
}

impl DiskTaskBounds<'_> {
    /// The rest of a message of this kind; `None` if the kind is not that of a task.
    ///
    /// # Errors
    /// If the message ends before, or a number is too large.
    pub fn read(
        &self,
        kind: MessageKind,
        reader: &mut MessageReader<'_>,
    ) -> Result<Option<DiskTask>, String> {
        let task = match kind {
            MessageKind::OpenStore => DiskTask::Open { digest: reader.text()?.to_owned() },
            MessageKind::KeepBlocks => {
                let waits = reader.below(2, "whether to wait")? == 1;
                let (parent, depth, micros) = (reader.name()?, reader.number()?, reader.long()?);
                let named = self.named(reader)?;
                let places = self.places(reader, named.kind, named.blocks.len())?;
                DiskTask::Keep(KeptBlocks { named, parent, depth, micros, places, waits })
            }
            MessageKind::ReadBlocks => {
                DiskTask::Read { ticket: reader.long()?, named: self.named(reader)? }
            }
            MessageKind::FillBlocks => {
                let (ticket, kind) = (reader.long()?, self.kind(reader)?);
                let count = reader.count(MAX_BLOCKS, "places")?;
                let places = self.places(reader, kind, count)?;
                DiskTask::Fill { ticket, kind, places }
            }
            MessageKind::DropBlocks => DiskTask::Drop { ticket: reader.long()? },
            _ => return Ok(None),
        };
        reader.end()?;
        Ok(Some(task))
    }

    fn kind(&self, reader: &mut MessageReader<'_>) -> Result<usize, String> {
        reader.below(self.kinds.len(), "kind of blocks")
    }

    fn named(&self, reader: &mut MessageReader<'_>) -> Result<NamedBlocks, String> {
        let kind = self.kind(reader)?;
        let most = if self.kinds[kind].is_of_state { 1 } else { MAX_BLOCKS };
        let count = reader.count(most, "blocks")?;
        let block = |_| {
            let name = reader.name()?;
            let held = reader.count(self.batch.block, "tokens of a block")?;
            let mut tokens = Vec::new();
            reader.numbers((held, self.batch.words), &mut tokens, "token")?;
            Ok((name, tokens))
        };
        let blocks: Vec<(Name, Vec<u32>)> = (0..count).map(block).collect::<Result<_, String>>()?;
        // Blocks of an extent have equally many.
        match blocks.split_first() {
            Some((first, rest)) if rest.iter().all(|it| it.1.len() == first.1.len()) => {
                Ok(NamedBlocks { kind, blocks })
            }
            _ => Err("expected blocks of equally many tokens".to_owned()),
        }
    }

    /// Places in the cache of `count` blocks of a kind.
    fn places(
        &self,
        reader: &mut MessageReader<'_>,
        kind: usize,
        count: usize,
    ) -> Result<Vec<u32>, String> {
        let mut places = Vec::new();
        reader.numbers((count, self.kinds[kind].places), &mut places, "place of a block")?;
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::bounds;
    use super::*;
    use proptest::prelude::*;

    /// Two groups of rows, and states with the rows of each.
    fn kinds() -> [BlockKind; 5] {
        let kind = |(places, is_of_state)| BlockKind { places, is_of_state };
        [(60, false), (30, false), (6, true), (60, true), (30, true)].map(kind)
    }

    fn read(bytes: &[u8]) -> Result<DiskTask, String> {
        let (kind, mut reader) = MessageReader::begin(bytes, 0)?;
        let task = DiskTaskBounds { batch: &bounds(), kinds: &kinds() }.read(kind, &mut reader)?;
        Ok(task.expect("the kind is that of a task"))
    }

    fn name() -> impl Strategy<Value = Name> {
        any::<[u8; 16]>().prop_map(Name::from_bytes)
    }

    fn named() -> impl Strategy<Value = NamedBlocks> {
        let blocks = |(kind, count, tokens)| {
            let count = if kind > 1 { 1 } else { count };
            let block = (name(), prop::collection::vec(0..1000_u32, tokens));
            let blocks = prop::collection::vec(block, count);
            blocks.prop_map(move |blocks| NamedBlocks { kind, blocks })
        };
        (0..5_usize, 1..MAX_BLOCKS, 0..17_usize).prop_flat_map(blocks)
    }

    fn task() -> impl Strategy<Value = DiskTask> {
        let kept = (named(), name(), any::<u32>(), any::<u64>(), 0..6_u32);
        let kept = kept.prop_map(|(named, parent, depth, micros, place)| {
            let places = vec![place; named.blocks.len()];
            let waits = micros % 2 == 1;
            DiskTask::Keep(KeptBlocks { named, parent, depth, micros, places, waits })
        });
        let places = prop::collection::vec(0..6_u32, 0..MAX_BLOCKS);
        let fill = (any::<u64>(), 0..5_usize, places);
        prop_oneof![
            "[0-9a-f]{0,64}".prop_map(|digest| DiskTask::Open { digest }),
            kept,
            (any::<u64>(), named()).prop_map(|(ticket, named)| DiskTask::Read { ticket, named }),
            fill.prop_map(|(ticket, kind, places)| DiskTask::Fill { ticket, kind, places }),
            any::<u64>().prop_map(|ticket| DiskTask::Drop { ticket }),
        ]
    }

    proptest! {
        #[test]
        fn tasks_are_read_as_they_were_written_and_others_do_no_harm(
            task in task(),
            changes in prop::collection::vec((11..4096_usize, any::<u8>()), 0..4),
            end in 11..4096_usize,
        ) {
            let mut writer = MessageWriter::default();
            task.write(&mut writer);
            prop_assert_eq!(read(&writer.bytes), Ok(task));
            let mut bytes = writer.bytes;
            prop_assert!(read(&bytes[..end.min(bytes.len() - 1)]).is_err());
            for (at, byte) in changes {
                let len = bytes.len();
                bytes[at.min(len - 1)] = byte;
            }
            if let Ok(DiskTask::Keep(kept)) = read(&bytes) {
                let most = kinds()[kept.named.kind].places;
                prop_assert!(kept.places.iter().all(|place| (*place as usize) < most));
                prop_assert_eq!(kept.places.len(), kept.named.blocks.len());
            }
        }
    }
}
