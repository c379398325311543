//! The bytes of messages from rank 0 to the others, little-endian: a version, a kind and a number,
//! and what the kind has.

use base::Name;

/// The version of all messages.
const VERSION: u16 = 3;

/// Bytes of a long message; longer ones take more memory.
pub(crate) const MESSAGE_BYTES: usize = 1 << 16;

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Compute a batch, on the first of several stages up to its outputs.
    Step = 0,
    /// Copy states.
    CopyStates = 1,
    /// End.
    End = 2,
    /// Compute the outputs of the oldest batch, on the first of several stages.
    Land = 3,
    /// Open the store of blocks, and answer whether it is open.
    OpenStore = 4,
    /// Store blocks of the cache.
    KeepBlocks = 5,
    /// Begin to read stored blocks.
    ReadBlocks = 6,
    /// Copy blocks that were read into the cache, and answer how many.
    FillBlocks = 7,
    /// Forget blocks that are being read.
    DropBlocks = 8,
    /// Read an adapter, and answer what it is.
    OpenAdapter = 9,
    /// Forget an adapter.
    ForgetAdapter = 10,
    /// As [`Step`](Self::Step), of a batch that no trace and no profile of experts counts.
    UnrecordedStep = 11,
}

impl MessageKind {
    const ALL: [Self; 12] = [
        Self::Step,
        Self::CopyStates,
        Self::End,
        Self::Land,
        Self::OpenStore,
        Self::KeepBlocks,
        Self::ReadBlocks,
        Self::FillBlocks,
        Self::DropBlocks,
        Self::OpenAdapter,
        Self::ForgetAdapter,
        Self::UnrecordedStep,
    ];
}

/// Writes a message into bytes that are kept.
#[derive(Debug)]
pub(crate) struct MessageWriter {
    pub bytes: Vec<u8>,
    /// Number of messages before this one.
    number: u64,
}

impl Default for MessageWriter {
    fn default() -> Self {
        Self { bytes: Vec::with_capacity(MESSAGE_BYTES), number: 0 }
    }
}

impl MessageWriter {
    /// Begins the next message.
    pub fn begin(&mut self, kind: MessageKind) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&VERSION.to_le_bytes());
        self.bytes.push(kind as u8);
        self.bytes.extend_from_slice(&self.number.to_le_bytes());
        self.number += 1;
    }

    pub fn number(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// A length or a place, which is far below 2³².
    pub fn size(&mut self, size: usize) {
        self.number(size as u32);
    }

    pub fn numbers(&mut self, numbers: &[u32]) {
        numbers.iter().for_each(|number| self.number(*number));
    }

    /// A number of 64 bits.
    pub fn long(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    pub fn name(&mut self, name: Name) {
        self.bytes.extend_from_slice(&name.to_bytes());
    }

    pub fn text(&mut self, text: &str) {
        self.size(text.len());
        self.bytes.extend_from_slice(text.as_bytes());
    }
}

/// Reads a message, each length of which is checked.
#[derive(Debug)]
pub(crate) struct MessageReader<'a> {
    rest: &'a [u8],
}

impl<'a> MessageReader<'a> {
    /// Begins with message `number`.
    ///
    /// # Errors
    /// If it is none, of another version, or another message.
    pub fn begin(bytes: &'a [u8], number: u64) -> Result<(MessageKind, Self), String> {
        let mut reader = Self::of(bytes);
        let version = u16::from_le_bytes(reader.array()?);
        if version != VERSION {
            return Err(format!("expected version {VERSION}, found {version}"));
        }
        let [kind] = reader.array()?;
        let found = u64::from_le_bytes(reader.array()?);
        if found != number {
            return Err(format!("expected message {number}, found {found}"));
        }
        let known = MessageKind::ALL.into_iter().find(|known| *known as u8 == kind);
        let kind = known.ok_or_else(|| format!("expected a kind of message, found {kind}"))?;
        Ok((kind, reader))
    }

    /// What [`MessageWriter`] has written without a beginning.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let left = self.rest.len();
        let wrong = || format!("expected {N} bytes more, found {left}");
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(wrong)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// The next number.
    ///
    /// # Errors
    /// If the message ends before.
    pub fn number(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of 64 bits.
    ///
    /// # Errors
    /// If the message ends before.
    pub fn long(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    /// A name of a block.
    ///
    /// # Errors
    /// If the message ends before.
    pub fn name(&mut self) -> Result<Name, String> {
        self.array().map(Name::from_bytes)
    }

    /// A number below `end`, named `what` in errors.
    ///
    /// # Errors
    /// If there is none, or a larger one.
    pub fn below(&mut self, end: usize, what: &str) -> Result<usize, String> {
        let found = self.number()? as usize;
        if found < end {
            Ok(found)
        } else {
            Err(format!("{what}: expected less than {end}, found {found}"))
        }
    }

    /// A number of at most `most` items, named `what` in errors.
    ///
    /// # Errors
    /// If there is none, or a larger one.
    pub fn count(&mut self, most: usize, what: &str) -> Result<usize, String> {
        self.below(most.saturating_add(1), what)
    }

    /// Adds `count` numbers below `end`, named `what` in errors, to `numbers`.
    ///
    /// # Errors
    /// If there are fewer, or one is larger.
    pub fn numbers(
        &mut self,
        (count, end): (usize, usize),
        numbers: &mut Vec<u32>,
        what: &str,
    ) -> Result<(), String> {
        (0..count).try_for_each(|_| {
            numbers.push(self.below(end, what)? as u32);
            Ok(())
        })
    }

    /// A text after its length.
    ///
    /// # Errors
    /// If the message ends before, or it is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, String> {
        let length = self.count(self.rest.len(), "length of a text")?;
        let (text, rest) = self.rest.split_at_checked(length).ok_or("expected a whole text")?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|error| error.to_string())
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// If something is.
    pub fn end(&self) -> Result<(), String> {
        let left = self.rest.len();
        if left == 0 { Ok(()) } else { Err(format!("expected the end, found {left} bytes more")) }
    }
}
