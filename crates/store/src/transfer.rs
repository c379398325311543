//! Files that carry extents from one folder to another: `.gkvx`.
//!
//! All integers are little-endian:
//!
//! ```text
//! 0    8 bytes  "GANNETKX"
//! 8    u32      version
//! 12   u32      bytes of the header, a multiple of 4096
//! 16   16 bytes root
//! 32   u32      extents
//! 36   u32      tokens
//! 40   u32      bytes of the description
//! 44   tokens × u32: the tokens of the chain, with the rest that fills no block
//!      the description of the root, JSON
//!      u32      CRC-32C of all before it, then zeros
//! ```
//!
//! Behind the header come the extents, one after the other, as their own files are when they are
//! not sealed.

use crate::header::{Header, LayerCheck, Outline, PAGE, Problem};
use base::Name;
use std::io::{self, Read, Seek, SeekFrom, Write};

const MAGIC: &[u8; 8] = b"GANNETKX";
const VERSION: u32 = 1;
/// Bytes before the tokens.
const FIXED: usize = 44;
/// Most tokens.
const MAX_TOKENS: usize = 4 << 20;
/// Most bytes of a description.
const MAX_ABOUT: usize = 64 << 10;
/// Most bytes of an extent, which is held in memory.
const MAX_EXTENT: u64 = 1 << 30;

/// Why a file of extents cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The system's error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not as it was written.
    #[error("extent {extent}: {problem}")]
    Extent {
        /// Number of the extent, counted from 1.
        extent: u32,
        /// What is wrong.
        problem: Problem,
    },
    /// The header of the file is not as it was written.
    #[error("{0}")]
    Header(Problem),
}

fn wrong(what: impl Into<String>) -> TransferError {
    TransferError::Header(Problem::Corrupt(what.into()))
}

/// Writes a file of extents.
pub struct TransferWriter<W> {
    out: W,
    root: Name,
    tokens: Vec<u32>,
    about: String,
    extents: u32,
    bytes: u64,
}

impl<W: Write + Seek> TransferWriter<W> {
    /// Begins a file of extents of a root, which is described as JSON, with the tokens of their
    /// chain.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn new(out: W, root: Name, about: &str, tokens: &[u32]) -> io::Result<Self> {
        let about = if about.len() > MAX_ABOUT { "{}" } else { about }.to_owned();
        let tokens = tokens[..tokens.len().min(MAX_TOKENS)].to_vec();
        let mut writer = Self { out, root, tokens, about, extents: 0, bytes: 0 };
        let header = writer.header();
        writer.out.write_all(&header)?;
        writer.bytes = header.len() as u64;
        Ok(writer)
    }

    fn header(&self) -> Vec<u8> {
        let bytes = unpadded(self.tokens.len(), self.about.len()).next_multiple_of(PAGE);
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend((bytes as u32).to_le_bytes());
        header.extend(self.root.to_bytes());
        header.extend(self.extents.to_le_bytes());
        header.extend((self.tokens.len() as u32).to_le_bytes());
        header.extend((self.about.len() as u32).to_le_bytes());
        header.extend(self.tokens.iter().flat_map(|token| token.to_le_bytes()));
        header.extend(self.about.as_bytes());
        header.extend(crc32c::crc32c(&header).to_le_bytes());
        header.resize(bytes, 0);
        header
    }

    /// Appends an extent with the bytes of its blocks, one after the other. Its root becomes that
    /// of the file, its checksums those of the bytes.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&mut self, mut header: Header, bytes: &mut [u8]) -> io::Result<()> {
        header.outline.root = self.root;
        header.outline.seal = None;
        header.outline.checksums.clear();
        header.protect(bytes, None);
        self.out.write_all(&header.encode(None))?;
        let own = header.outline.block_bytes() as usize;
        let padding = vec![0; own.next_multiple_of(PAGE) - own];
        for block in bytes.chunks(own.max(1)) {
            self.out.write_all(block)?;
            self.out.write_all(&padding)?;
        }
        self.extents += 1;
        self.bytes += header.outline.file_bytes();
        Ok(())
    }

    /// Ends the file; returns it with its length.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        let header = self.header();
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header)?;
        self.out.flush()?;
        Ok((self.out, self.bytes))
    }
}

/// Reads a file of extents, one at a time.
pub struct TransferReader<R> {
    input: R,
    root: Name,
    tokens: Vec<u32>,
    about: String,
    extents: u32,
    read: u32,
}

impl<R: Read> TransferReader<R> {
    /// Reads the header of a file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not one of this version.
    pub fn new(mut input: R) -> Result<Self, TransferError> {
        let mut header = read_bytes(&mut input, MAGIC.len()).unwrap_or_default();
        if header != MAGIC {
            return Err(wrong("expected GANNETKX at the start"));
        }
        header.extend(read_bytes(&mut input, PAGE - MAGIC.len())?);
        let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        if number(8) > VERSION {
            return Err(wrong(format!("version {}, which is later than {VERSION}", number(8))));
        }
        let [version, bytes, extents] = [8, 12, 32].map(|at| number(at) as usize);
        let [tokens, about] = [36, 40].map(|at| number(at) as usize);
        let unpadded = unpadded(tokens.min(MAX_TOKENS), about.min(MAX_ABOUT));
        let is_long = tokens > MAX_TOKENS || about > MAX_ABOUT;
        if version == 0 || is_long || bytes != unpadded.next_multiple_of(PAGE) {
            let what = format!("{tokens} tokens and a description of {about} bytes");
            return Err(wrong(format!("a header of {bytes} bytes with {what}")));
        }
        header.extend(read_bytes(&mut input, bytes - PAGE)?);
        let (checked, rest) = header.split_at(unpadded - 4);
        let is_padded = rest[4..].iter().all(|byte| *byte == 0);
        if crc32c::crc32c(checked).to_le_bytes() != rest[..4] || !is_padded {
            return Err(wrong("the checksum of the header is wrong"));
        }
        let root = Name::from_bytes(std::array::from_fn(|byte| header[16 + byte]));
        let (tokens, about) = checked[FIXED..].split_at(4 * tokens);
        let (tokens, _) = tokens.as_chunks();
        let tokens = tokens.iter().map(|token| u32::from_le_bytes(*token)).collect();
        let about = String::from_utf8_lossy(about).into_owned();
        Ok(Self { input, root, tokens, about, extents: extents as u32, read: 0 })
    }

    /// The root of all extents.
    pub fn root(&self) -> Name {
        self.root
    }

    /// The tokens of the chain, with the rest that fills no block.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The description of the root: JSON, as it was written.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Number of extents.
    pub fn extents(&self) -> u32 {
        self.extents
    }

    /// The next extent with the bytes of its blocks, one after the other; `None` at the end.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not as it was written.
    pub fn next_extent(&mut self) -> Result<Option<(Header, Vec<u8>)>, TransferError> {
        if self.read == self.extents {
            return match self.input.read(&mut [0])? {
                0 => Ok(None),
                _ => Err(wrong(format!("more behind the last of {} extents", self.extents))),
            };
        }
        self.read += 1;
        self.read_extent().map(Some).map_err(|error| match error {
            TransferError::Header(problem) => TransferError::Extent { extent: self.read, problem },
            other => other,
        })
    }

    fn read_extent(&mut self) -> Result<(Header, Vec<u8>), TransferError> {
        let mut start = read_bytes(&mut self.input, PAGE)?;
        let length = Outline::length_of(&start).map_err(TransferError::Header)?;
        if length > MAX_EXTENT {
            return Err(wrong(format!("{length} bytes, expected at most {MAX_EXTENT}")));
        }
        let bytes = Outline::bytes_of(&start, length).map_err(TransferError::Header)?;
        start.extend(read_bytes(&mut self.input, bytes - PAGE)?);
        let header = Header::decode(&start, length, None).map_err(TransferError::Header)?;
        let outline = &header.outline;
        if outline.root != self.root {
            return Err(wrong("it is of another root"));
        }
        let own = outline.block_bytes() as usize;
        let check = LayerCheck::new(outline, None);
        let mut all = Vec::new();
        for block in 0..outline.blocks {
            let mut padded = read_bytes(&mut self.input, own.next_multiple_of(PAGE))?;
            let (mut rest, padding) = padded.split_at_mut(own);
            if padding.iter().any(|byte| *byte != 0) {
                return Err(wrong(format!("block {block}: the padding is wrong")));
            }
            for (layer, length) in (outline.first_layer as usize..).zip(&outline.layer_bytes) {
                let (data, behind) = std::mem::take(&mut rest).split_at_mut(*length as usize);
                rest = behind;
                if !check.is_valid(block, layer, data) {
                    let what = format!("block {block}, layer {layer}: the checksum is wrong");
                    return Err(wrong(what));
                }
            }
            all.extend(&padded[..own]);
        }
        Ok((header, all))
    }
}

/// Bytes of the header without its padding.
fn unpadded(tokens: usize, about: usize) -> usize {
    FIXED + 4 * tokens + about + 4
}

/// Reads this many bytes, and takes no more memory than the input fills.
fn read_bytes(input: &mut impl Read, count: usize) -> Result<Vec<u8>, TransferError> {
    let mut bytes = Vec::new();
    input.take(count as u64).read_to_end(&mut bytes)?;
    match bytes.len() == count {
        true => Ok(bytes),
        false => Err(wrong("the file is cut off")),
    }
}
