//! SentencePiece vocabularies in GGUF (`tokenizer.ggml.model` = `llama`): merging by score.
//!
//! Follows llama.cpp: the text is split into characters; neighbours whose concatenation is a token
//! are merged, best score first and leftmost among equals; a symbol that is no token in the end is
//! spelled in bytes.

use crate::added::{AddedTokens, Specials};
use crate::vocab::{TokenKind, Vocab};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The scores and rules of a vocabulary.
#[derive(Debug)]
pub(crate) struct SentencePiece {
    pub added: AddedTokens,
    /// By token id.
    pub scores: Vec<f32>,
    /// The token of each byte, if there is one.
    pub bytes: Box<[Option<u32>; 256]>,
    pub unk: Option<u32>,
    /// Whether a space is added before text at the start and after an added token.
    pub space_prefix: bool,
}

impl SentencePiece {
    /// Returns the ids of `text`, nothing added. `at_start` says that no other text comes before.
    pub fn encode(
        &self,
        text: &str,
        specials: Specials,
        vocab: &Vocab,
        at_start: bool,
    ) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut after_token = at_start;
        for piece in self.added.split(text, specials) {
            if let Some(id) = piece.token {
                ids.push(id);
            } else {
                let prefix = if self.space_prefix && after_token { "▁" } else { "" };
                let part = format!("{prefix}{}", text[piece.range].replace(' ', "▁"));
                Merger::new(&part, self, vocab).run(&mut ids);
            }
            after_token = piece.token.is_some();
        }
        ids
    }

    fn spell(&self, text: &str, ids: &mut Vec<u32>) {
        ids.extend(text.bytes().filter_map(|byte| self.bytes[usize::from(byte)].or(self.unk)));
    }
}

/// A run of the text; empty once merged into its left neighbour.
struct Symbol {
    start: usize,
    len: usize,
    prev: Option<usize>,
    next: Option<usize>,
}

/// Two neighbours whose concatenation is a token. The greatest one is merged first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Bigram {
    /// In the order of the scores.
    rank: i32,
    left: Reverse<usize>,
    right: usize,
    len: usize,
}

/// Returns an integer in the order of [`f32::total_cmp`].
fn rank(score: f32) -> i32 {
    let bits = score.to_bits() as i32;
    bits ^ ((bits >> 31) as u32 >> 1) as i32
}

/// The merging of one piece of text.
struct Merger<'a> {
    text: &'a str,
    spm: &'a SentencePiece,
    vocab: &'a Vocab,
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Bigram>,
}

impl<'a> Merger<'a> {
    fn new(text: &'a str, spm: &'a SentencePiece, vocab: &'a Vocab) -> Self {
        let chars = text.char_indices().enumerate();
        let mut symbols: Vec<Symbol> = chars
            .map(|(index, (start, c))| Symbol {
                start,
                len: c.len_utf8(),
                prev: index.checked_sub(1),
                next: Some(index + 1),
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.next = None;
        }
        Merger { text, spm, vocab, symbols, queue: BinaryHeap::new() }
    }

    fn run(mut self, ids: &mut Vec<u32>) {
        for right in 1..self.symbols.len() {
            self.consider(Some(right - 1), Some(right));
        }
        while let Some(bigram) = self.queue.pop() {
            self.merge(&bigram);
        }
        self.emit(ids);
    }

    /// Queues a pair if it makes a token.
    fn consider(&mut self, left: Option<usize>, right: Option<usize>) {
        let (Some(left), Some(right)) = (left, right) else { return };
        let start = self.symbols[left].start;
        let len = self.symbols[left].len + self.symbols[right].len;
        if let Some(id) = self.token_at(start, len) {
            let score = self.spm.scores.get(id as usize).copied().unwrap_or(0.0);
            self.queue.push(Bigram { rank: rank(score), left: Reverse(left), right, len });
        }
    }

    /// Returns the token of a part of the text; control tokens are never made from text.
    fn token_at(&self, start: usize, len: usize) -> Option<u32> {
        let id = self.vocab.id(&self.text[start..start + len])?;
        (self.vocab.get(id)?.kind != TokenKind::Special).then_some(id)
    }

    /// Merges a pair unless one side has changed since it was queued.
    fn merge(&mut self, bigram: &Bigram) {
        let &Bigram { left: Reverse(left), right, len, .. } = bigram;
        let (left_len, right_len) = (self.symbols[left].len, self.symbols[right].len);
        if left_len == 0 || right_len == 0 || left_len + right_len != len {
            return;
        }
        let next = self.symbols[right].next;
        self.symbols[left].len = len;
        self.symbols[right].len = 0;
        self.symbols[left].next = next;
        if let Some(next) = next {
            self.symbols[next].prev = Some(left);
        }
        self.consider(self.symbols[left].prev, Some(left));
        self.consider(Some(left), next);
    }

    fn emit(&self, ids: &mut Vec<u32>) {
        for symbol in self.symbols.iter().filter(|s| s.len > 0) {
            match self.token_at(symbol.start, symbol.len) {
                Some(id) => ids.push(id),
                None => self.spm.spell(&self.text[symbol.start..symbol.start + symbol.len], ids),
            }
        }
    }
}
