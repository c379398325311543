//! Incremental decoding: ids to text, one token at a time.
//!
//! The concatenated pieces are the text of all ids at once. A character is given out with the token
//! that completes it; bytes that can no longer become a character are given out as U+FFFD at once,
//! one per maximal broken sequence, as Unicode recommends.

use crate::tokenizer::Tokenizer;
use std::sync::Arc;

/// The state of a running decoding.
#[derive(Debug, Clone)]
pub struct IncrementalDecoder {
    pending: Vec<u8>,
    skip_special: bool,
    /// Special tokens that are not skipped.
    shown: Arc<[u32]>,
    /// Leading characters still to drop: the space that SentencePiece vocabularies add.
    strip: Option<(u8, usize)>,
}

impl IncrementalDecoder {
    /// A decoder at the start of a text.
    pub fn new(tokenizer: &Tokenizer, skip_special: bool) -> Self {
        let strip = tokenizer.decoder.strip_start;
        let strip = strip.and_then(|(c, count)| Some((u8::try_from(c).ok()?, count)));
        IncrementalDecoder { pending: Vec::new(), skip_special, shown: Arc::default(), strip }
    }

    /// A decoder that continues a text: no leading space is dropped.
    pub fn continuing(skip_special: bool) -> Self {
        IncrementalDecoder { pending: Vec::new(), skip_special, shown: Arc::default(), strip: None }
    }

    /// Returns the decoder with the special tokens `ids` not skipped.
    pub fn showing(mut self, ids: impl Into<Arc<[u32]>>) -> Self {
        self.shown = ids.into();
        self
    }

    /// Takes the next id and returns the text that it completes.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        let skipped = self.skip_special && tokenizer.is_special(id) && !self.shown.contains(&id);
        if !skipped {
            self.push_bytes(tokenizer.token_bytes(id));
        }
        self.take_finished()
    }

    /// Takes the end and returns the rest: an unfinished character becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }

    fn push_bytes(&mut self, mut bytes: &[u8]) {
        while let (Some((space, count)), Some(&first)) = (self.strip, bytes.first()) {
            if first != space || count == 0 {
                self.strip = None;
                break;
            }
            bytes = &bytes[1..];
            self.strip = Some((space, count - 1));
        }
        self.pending.extend_from_slice(bytes);
    }

    /// Returns the pending text up to the bytes that may still become a character.
    fn take_finished(&mut self) -> String {
        let unfinished = self.pending.utf8_chunks().last().map_or(0, |last| {
            let tail = last.invalid();
            if could_continue(tail) { tail.len() } else { 0 }
        });
        let rest = self.pending.split_off(self.pending.len() - unfinished);
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending = rest;
        text
    }
}

impl Tokenizer {
    /// Returns the text of `ids`; bytes that are not UTF-8 become U+FFFD, unknown ids nothing.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut decoder = IncrementalDecoder::new(self, skip_special);
        let mut text: String = ids.iter().map(|&id| decoder.push(self, id)).collect();
        text.push_str(&decoder.finish());
        text
    }
}

/// Whether `tail`, the broken end of a text, is the start of some character.
fn could_continue(tail: &[u8]) -> bool {
    matches!(std::str::from_utf8(tail), Err(e) if e.error_len().is_none())
}
