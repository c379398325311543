//! From token ids back to text: incremental decoding, then the split of reasoning from content,
//! then stop strings on the content.
//!
//! Every token is reported with the piece of text that carries its first byte; tokens behind a
//! matched stop string are not reported.

use crate::request::{Form, Reasoning};
use engine::TokenLogprobs;
use std::collections::VecDeque;
use std::sync::Arc;
use text::{IncrementalDecoder, Part, StopStrings, TextAssets, ThinkSplitter};

/// A piece of text, and the tokens it came from if their log probabilities were asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// The text; empty only where tokens have no text of their own.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<TokenText>,
}

/// A token with its log probability.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenText {
    /// Its id.
    pub id: u32,
    /// Its bytes as text; what is not UTF-8 alone is shown as U+FFFD.
    pub text: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Natural log probability.
    pub logprob: f32,
    /// The most likely tokens in its place, best first.
    pub top: Vec<TopToken>,
}

/// A token that could have been chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct TopToken {
    /// Its id.
    pub id: u32,
    /// Its bytes as text; what is not UTF-8 alone is shown as U+FFFD.
    pub text: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Natural log probability.
    pub logprob: f32,
}

/// Text that is ready to be shown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    Reasoning(Delta),
    Content(Delta),
}

/// What one token, or the end, brought.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub pieces: Vec<Piece>,
    /// The stop string that came up.
    pub stop: Option<String>,
}

/// The running text of one answer.
#[derive(Debug)]
pub(crate) struct Assembler {
    assets: Arc<TextAssets>,
    decoder: IncrementalDecoder,
    splitter: Option<ThinkSplitter>,
    stops: StopStrings,
    stop_strings: Vec<String>,
    /// Tokens of which no text has come out of the decoder and the splitter yet.
    undecided: Vec<TokenText>,
    undecided_count: usize,
    part: Part,
    reasoning_tokens: usize,
    /// Tokens that may belong to a stop string, and where in the content each begins.
    held: VecDeque<(usize, TokenText)>,
    /// Bytes of content that went into the stop strings, and that came out.
    taken: usize,
    given: usize,
}

impl Assembler {
    /// For an answer that ends at `stop_strings`.
    pub fn new(assets: Arc<TextAssets>, stop_strings: &[String], form: Form) -> Self {
        let splitter = match form.reasoning {
            Reasoning::Unsplit => None,
            Reasoning::Possible => Some(ThinkSplitter::new(false)),
            Reasoning::Open => Some(ThinkSplitter::new(true)),
        };
        let open = form.reasoning == Reasoning::Open;
        let decoder = match form.continues {
            true => IncrementalDecoder::continuing(true),
            false => IncrementalDecoder::new(&assets.tokenizer, true),
        };
        Self {
            decoder,
            assets,
            splitter,
            stops: StopStrings::new(stop_strings.iter().cloned()),
            stop_strings: stop_strings.to_vec(),
            undecided: Vec::new(),
            undecided_count: 0,
            part: if open { Part::Reasoning } else { Part::Content },
            reasoning_tokens: 0,
            held: VecDeque::new(),
            taken: 0,
            given: 0,
        }
    }

    /// The text that the next token completes.
    pub fn push(&mut self, id: u32, logprobs: Option<TokenLogprobs>) -> Step {
        self.undecided_count += 1;
        if let Some(logprobs) = logprobs {
            let token = self.token_text(id, &logprobs);
            self.undecided.push(token);
        }
        let text = self.decoder.push(&self.assets.tokenizer, id);
        let parts = match &mut self.splitter {
            Some(splitter) => splitter.push(&text),
            None => vec![(Part::Content, text)],
        };
        self.place(parts)
    }

    /// The text that was held back, once no token follows.
    pub fn finish(&mut self) -> Step {
        let rest = self.decoder.finish();
        let parts = match &mut self.splitter {
            Some(splitter) => [splitter.push(&rest), splitter.finish()].concat(),
            None => vec![(Part::Content, rest)],
        };
        let mut step = self.place(parts);
        if step.stop.is_none() {
            let text = self.stops.finish();
            self.given = usize::MAX;
            self.hold_undecided();
            self.emit(text, &mut step);
        }
        step
    }

    /// Tokens so far that were reasoning.
    pub fn reasoning_tokens(&self) -> usize {
        let undecided = if self.part == Part::Reasoning { self.undecided_count } else { 0 };
        self.reasoning_tokens + undecided
    }

    fn place(&mut self, parts: Vec<(Part, String)>) -> Step {
        let mut step = Step::default();
        for (part, text) in parts.into_iter().filter(|(_, text)| !text.is_empty()) {
            self.part = part;
            let count = std::mem::take(&mut self.undecided_count);
            match part {
                Part::Content => self.content(&text, &mut step),
                Part::Reasoning => {
                    self.reasoning_tokens += count;
                    let tokens = std::mem::take(&mut self.undecided);
                    step.pieces.push(Piece::Reasoning(Delta { text, tokens }));
                }
            }
        }
        step
    }

    fn content(&mut self, text: &str, step: &mut Step) {
        self.hold_undecided();
        self.taken += text.len();
        let stopped = self.stops.push(text);
        self.given += stopped.text.len();
        step.stop = stopped.stopped.map(|index| self.stop_strings[index].clone());
        self.emit(stopped.text, step);
    }

    fn hold_undecided(&mut self) {
        let taken = self.taken;
        self.held.extend(self.undecided.drain(..).map(|token| (taken, token)));
    }

    fn emit(&mut self, text: String, step: &mut Step) {
        let begun = self.held.partition_point(|&(start, _)| start < self.given);
        let tokens: Vec<TokenText> = self.held.drain(..begun).map(|(_, token)| token).collect();
        if !text.is_empty() || !tokens.is_empty() {
            step.pieces.push(Piece::Content(Delta { text, tokens }));
        }
    }

    /// A token with its log probability.
    pub fn token_text(&self, id: u32, logprobs: &TokenLogprobs) -> TokenText {
        let (text, bytes) = self.shown(id);
        let top = logprobs.top.iter().map(|&(id, logprob)| {
            let (text, bytes) = self.shown(id);
            TopToken { id, text, bytes, logprob }
        });
        TokenText { id, text, bytes, logprob: logprobs.logprob, top: top.collect() }
    }

    fn shown(&self, id: u32) -> (String, Vec<u8>) {
        let bytes = self.assets.tokenizer.token_bytes(id);
        (String::from_utf8_lossy(bytes).into_owned(), bytes.to_vec())
    }
}
