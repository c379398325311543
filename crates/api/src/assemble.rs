//! Turns token ids into text: incremental decoding, then the split into reasoning, content and
//! calls, then stop strings on the content.
//!
//! Every token is reported with the piece of text that carries its first byte; tokens of calls and
//! tokens after a matched stop string are not reported.

use crate::event::{CallEvent, Delta, TextEvent, TokenText, TopToken};
use crate::ids::{derived_id, unique_id};
use crate::message::ToolCall;
use crate::replay::arguments;
use crate::request::{OutputSpec, StopTexts};
use engine::TokenLogprobs;
use std::collections::VecDeque;
use std::sync::Arc;
use text::{IncrementalDecoder, OutputEvent, OutputParser, StopStrings, TextAssets};

/// The result of one token or of the end of generation.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// Reasoning, content and calls that no later token changes.
    pub pieces: Vec<TextEvent>,
    /// The stop string that the text reached.
    pub stop: Option<String>,
    /// The answer is complete before the model ends it.
    pub complete: bool,
}

/// The state of one answer's text.
#[derive(Debug)]
pub(crate) struct Assembler {
    assets: Arc<TextAssets>,
    decoder: IncrementalDecoder,
    parser: OutputParser,
    stops: StopStrings,
    stop_texts: StopTexts,
    /// Tokens that the decoder and the parser still hold back.
    undecided: Vec<TokenText>,
    undecided_count: usize,
    /// Tokens so far, and of these the ones before an unfinished call.
    count: usize,
    before_call: Option<usize>,
    reasoning_tokens: usize,
    /// Tokens that may belong to a stop string, and where in the content each begins.
    held: VecDeque<(usize, TokenText)>,
    /// Bytes of content passed to the stop strings, and returned by them.
    taken: usize,
    given: usize,
    call_prefix: &'static str,
    /// The unique name of the answer, if it has one, from which the ids of its calls follow.
    name: Option<String>,
    /// The calls so far; the last one's arguments grow as text.
    calls: Vec<ToolCall>,
    arguments: String,
    /// Number of calls started, malformed ones included.
    announced: usize,
    broken: bool,
    content: String,
}

impl Assembler {
    /// Creates the state of the answer `name`, which ends at `stop_texts`.
    pub fn new(
        assets: Arc<TextAssets>,
        stop_texts: StopTexts,
        form: &OutputSpec,
        name: Option<String>,
    ) -> Self {
        let decoder = match form.continues {
            true => IncrementalDecoder::continuing(true),
            false => IncrementalDecoder::new(&assets.tokenizer, true),
        };
        Self {
            decoder: decoder.showing(assets.tokenizer.special_among(&form.output.markers())),
            assets,
            parser: OutputParser::new(&form.output),
            stops: StopStrings::new(stop_texts.strings.iter().cloned()),
            stop_texts,
            undecided: Vec::new(),
            undecided_count: 0,
            count: 0,
            before_call: None,
            reasoning_tokens: 0,
            held: VecDeque::new(),
            taken: 0,
            given: 0,
            call_prefix: form.call_prefix,
            name,
            calls: Vec::new(),
            arguments: String::new(),
            announced: 0,
            broken: false,
            content: String::new(),
        }
    }

    /// Adds a token and returns the text that it completes.
    pub fn push(&mut self, id: u32, logprobs: Option<TokenLogprobs>) -> Step {
        self.undecided_count += 1;
        self.count += 1;
        if let Some(logprobs) = logprobs {
            let token = self.token_text(id, &logprobs);
            self.undecided.push(token);
        }
        let text = self.decoder.push(&self.assets.tokenizer, id);
        let events = self.parser.push(&text);
        let mut step = self.place(events);
        step.complete = self.parser.is_complete();
        step
    }

    /// Ends the answer and returns the text held back; `truncated` if a limit ended it.
    pub fn finish(&mut self, truncated: bool) -> Step {
        let rest = self.decoder.finish();
        let mut events = self.parser.push(&rest);
        events.extend(self.parser.finish(truncated));
        let mut step = self.place(events);
        if self.parser.is_unfinished() {
            self.undecided.clear();
        }
        if step.stop.is_none() {
            let text = self.stops.finish();
            self.given = usize::MAX;
            self.hold_undecided();
            self.emit(text, &mut step);
        }
        step
    }

    /// The calls of the answer and its visible text, if there are calls and all are well-formed.
    pub fn calls(&self) -> Option<(&[ToolCall], &str)> {
        let whole = !self.calls.is_empty() && !self.broken;
        whole.then_some((&self.calls[..], &self.content))
    }

    /// Whether text that is not part of the answer completed it, as [`OutputParser::is_cut`].
    pub fn is_cut(&self) -> bool {
        self.parser.is_cut()
    }

    /// Tokens before an unfinished call, or before text that is not decided unless the model has
    /// ended the answer.
    pub fn settled(&self, is_ended: bool) -> usize {
        let undecided = if is_ended { 0 } else { self.undecided_count };
        self.before_call.unwrap_or(self.count - undecided)
    }

    /// Number of reasoning tokens.
    pub fn reasoning_tokens(&self) -> usize {
        let undecided = if self.parser.in_reasoning() { self.undecided_count } else { 0 };
        self.reasoning_tokens + undecided
    }

    fn place(&mut self, events: Vec<OutputEvent>) -> Step {
        let mut step = Step::default();
        for event in events {
            let count = std::mem::take(&mut self.undecided_count);
            match &event {
                OutputEvent::CallStart { .. } => self.before_call = Some(self.count - count),
                OutputEvent::CallEnd | OutputEvent::CallBroken => self.before_call = None,
                _ => {}
            }
            match event {
                OutputEvent::Content(text) => self.content(&text, &mut step),
                OutputEvent::Reasoning(text) => {
                    self.reasoning_tokens += count;
                    let tokens = std::mem::take(&mut self.undecided);
                    step.pieces.push(TextEvent::Reasoning(Delta { text, tokens }));
                }
                call => self.call(call, &mut step),
            }
            if step.stop.is_some() {
                break;
            }
        }
        step
    }

    fn call(&mut self, event: OutputEvent, step: &mut Step) {
        // Text before a call can no longer become part of a stop string.
        let text = self.stops.finish();
        self.given += text.len();
        self.emit(text, step);
        self.undecided.clear();
        let index = self.announced.saturating_sub(1);
        let event = match event {
            OutputEvent::CallStart { name } => self.start_call(name),
            OutputEvent::CallArguments(delta) => {
                self.arguments.push_str(&delta);
                CallEvent::Arguments { index, delta }
            }
            OutputEvent::CallBroken => {
                self.broken = true;
                self.calls.pop();
                CallEvent::Broken { index }
            }
            _ => {
                self.end_call();
                CallEvent::End { index }
            }
        };
        step.pieces.push(TextEvent::Call(event));
    }

    fn start_call(&mut self, name: String) -> CallEvent {
        let index = self.announced;
        let id = match &self.name {
            Some(name) => derived_id(self.call_prefix, name, index, 32),
            None => unique_id(self.call_prefix, 32),
        };
        self.announced += 1;
        self.arguments.clear();
        let call = ToolCall { id: Some(id.clone()), name: name.clone(), ..ToolCall::default() };
        self.calls.push(call);
        CallEvent::Start { index, id, name }
    }

    fn end_call(&mut self) {
        let text = std::mem::take(&mut self.arguments);
        if let Some(call) = self.calls.last_mut() {
            call.arguments = arguments(&text);
        }
    }

    fn content(&mut self, text: &str, step: &mut Step) {
        self.hold_undecided();
        self.taken += text.len();
        let stopped = self.stops.push(text);
        let mut text = stopped.text;
        step.stop = stopped.stopped.map(|index| self.stop_texts.strings[index].clone());
        text.extend(step.stop.as_deref().filter(|_| self.stop_texts.included));
        self.given += text.len();
        self.emit(text, step);
    }

    fn hold_undecided(&mut self) {
        let taken = self.taken;
        self.held.extend(self.undecided.drain(..).map(|token| (taken, token)));
    }

    fn emit(&mut self, text: String, step: &mut Step) {
        let begun = self.held.partition_point(|&(start, _)| start < self.given);
        let tokens: Vec<TokenText> = self.held.drain(..begun).map(|(_, token)| token).collect();
        self.content.push_str(&text);
        if !text.is_empty() || !tokens.is_empty() {
            step.pieces.push(TextEvent::Content(Delta { text, tokens }));
        }
    }

    /// The text of token `id` and of its alternatives.
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
