//! The answer of `POST /completion` and `POST /infill`, whole and as events.

use crate::generate::answer::{Answer, Collected};
use crate::generate::logprobs::finite;
use crate::http::error::HttpError;
use crate::http::protocol::Protocol;
use crate::http::sse::Frame;
use crate::protocols::llama::Llama;
use api::{Delta, Done, Finish, TextEvent, TokenText, TopToken, Usage};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::Instant;
use utoipa::ToSchema;

/// The parts of an answer that are shown.
#[derive(Clone, Debug)]
pub(crate) struct AnswerView {
    /// Ids of its tokens.
    pub tokens: bool,
    /// Log probabilities.
    pub probabilities: bool,
    /// Times with every piece.
    pub timings: bool,
    /// Nothing of what was generated.
    pub unseen: bool,
    /// Only these members; all where there are none.
    pub fields: Vec<String>,
    pub settings: Value,
    /// Tokens of each prompt.
    pub prompts: Vec<usize>,
}

/// Writes completions.
#[derive(Debug)]
pub(crate) struct CompletionAnswer {
    model: String,
    view: AnswerView,
    started: Instant,
    choices: Vec<ChoiceProgress>,
}

/// How far one answer is.
#[derive(Clone, Debug)]
struct ChoiceProgress {
    prompt_tokens: usize,
    tokens: usize,
    first: Option<Instant>,
}

/// Tokens and times of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
struct Timings {
    /// Prompt tokens found in the cache.
    cache_n: usize,
    /// Prompt tokens computed.
    prompt_n: usize,
    prompt_ms: f64,
    prompt_per_token_ms: f64,
    prompt_per_second: f64,
    /// Tokens generated.
    predicted_n: usize,
    predicted_ms: f64,
    predicted_per_token_ms: f64,
    predicted_per_second: f64,
}

impl Timings {
    /// Of counts and seconds: cached and computed prompt tokens, generated ones.
    fn new(counts: [usize; 3], prefill_s: f64, decode_s: f64) -> Self {
        let [cache_n, prompt_n, predicted_n] = counts;
        Self {
            cache_n,
            prompt_n,
            prompt_ms: 1e3 * prefill_s,
            prompt_per_token_ms: share(1e3 * prefill_s, prompt_n as f64),
            prompt_per_second: share(prompt_n as f64, prefill_s),
            predicted_n,
            predicted_ms: 1e3 * decode_s,
            predicted_per_token_ms: share(1e3 * decode_s, predicted_n as f64),
            predicted_per_second: share(predicted_n as f64, decode_s),
        }
    }

    /// Of an answer that has ended.
    fn of(done: &Done) -> Self {
        let usage = &done.usage;
        let computed = usage.prompt_tokens.saturating_sub(usage.cached_tokens);
        let counts = [usage.cached_tokens, computed, usage.completion_tokens];
        Self::new(counts, done.timings.prefill_s, done.timings.decode_s)
    }
}

/// JSON knows no infinities: a share of nothing is nothing.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// A piece of an answer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LlamaPiece)]
pub(crate) struct AnswerPiece {
    index: usize,
    content: String,
    tokens: Vec<u32>,
    /// Whether this is the end of the answer.
    stop: bool,
    id_slot: i64,
    tokens_predicted: usize,
    tokens_evaluated: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_probabilities: Option<Vec<Probability>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
}

/// An answer, or those to several prompts.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
#[schema(as = LlamaCompletions)]
#[allow(dead_code, clippy::large_enum_variant, reason = "describes what is put together by hand")]
pub(crate) enum Completions {
    One(Completion),
    Several(Vec<Completion>),
}

/// A whole answer, or the end of one that was streamed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LlamaCompletion)]
pub(crate) struct Completion {
    #[serde(flatten)]
    piece: AnswerPiece,
    model: String,
    generation_settings: Value,
    /// `eos`, `limit` or `word`.
    stop_type: &'static str,
    stopping_word: String,
    /// Never: what does not fit is refused.
    truncated: bool,
    /// Prompt tokens found in the cache.
    tokens_cached: usize,
    has_new_line: bool,
}

/// A token with its log probability.
#[derive(Debug, Serialize, ToSchema)]
struct Probability {
    #[serde(flatten)]
    token: Likely,
    top_logprobs: Vec<Likely>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LlamaLikely)]
struct Likely {
    id: u32,
    token: String,
    bytes: Vec<u8>,
    logprob: f64,
}

impl Likely {
    fn new(id: u32, text: &str, bytes: &[u8], logprob: f32) -> Self {
        let logprob = finite(logprob);
        Self { id, token: text.to_owned(), bytes: bytes.to_vec(), logprob }
    }
}

fn probability(token: &TokenText) -> Probability {
    let top = |top: &TopToken| Likely::new(top.id, &top.text, &top.bytes, top.logprob);
    Probability {
        token: Likely::new(token.id, &token.text, &token.bytes, token.logprob),
        top_logprobs: token.top.iter().map(top).collect(),
    }
}

impl CompletionAnswer {
    /// For so many answers of `model` to each prompt.
    pub fn new(model: &str, view: AnswerView, choices: usize) -> Self {
        let choice = |&prompt_tokens| ChoiceProgress { prompt_tokens, tokens: 0, first: None };
        let choices = view.prompts.iter().flat_map(|n| vec![choice(n); choices]).collect();
        Self { model: model.to_owned(), view, started: Instant::now(), choices }
    }

    fn piece(&self, index: usize, content: &str, tokens: &[TokenText]) -> AnswerPiece {
        let shown = if self.view.unseen { &[] } else { tokens };
        let ids = shown.iter().filter(|_| self.view.tokens).map(|token| token.id);
        let probabilities = self.view.probabilities && !shown.is_empty();
        AnswerPiece {
            index,
            content: if self.view.unseen { String::new() } else { content.to_owned() },
            tokens: ids.collect(),
            stop: false,
            id_slot: -1,
            tokens_predicted: self.choices[index].tokens,
            tokens_evaluated: self.choices[index].prompt_tokens,
            completion_probabilities: probabilities
                .then(|| shown.iter().map(probability).collect()),
            timings: None,
        }
    }

    fn text(&mut self, index: usize, delta: &Delta) -> Vec<Frame> {
        if self.view.unseen {
            return Vec::new();
        }
        let choice = &mut self.choices[index];
        choice.tokens += delta.tokens.len();
        let first = *choice.first.get_or_insert_with(Instant::now);
        let counts = [0, choice.prompt_tokens, choice.tokens];
        let mut piece = self.piece(index, &delta.text, &delta.tokens);
        piece.timings = self.view.timings.then(|| {
            let prefill = (first - self.started).as_secs_f64();
            Timings::new(counts, prefill, first.elapsed().as_secs_f64())
        });
        vec![Frame::Data(json!(piece))]
    }

    /// The end of an answer, with all that no piece of it had.
    fn end(&self, index: usize, content: &str, tokens: &[TokenText], done: &Done) -> Value {
        let (stop_type, stopping_word) = match &done.finish {
            Finish::StopId(_) | Finish::ToolCalls | Finish::Complete => ("eos", String::new()),
            Finish::StopString(word) => ("word", word.clone()),
            Finish::Length => ("limit", String::new()),
        };
        let usage = &done.usage;
        let mut piece = self.piece(index, content, tokens);
        piece.stop = true;
        piece.tokens_predicted = if self.view.unseen { 0 } else { usage.completion_tokens };
        piece.tokens_evaluated = usage.prompt_tokens;
        piece.timings = Some(Timings::of(done));
        let whole = json!(Completion {
            has_new_line: piece.content.contains('\n'),
            piece,
            model: self.model.clone(),
            generation_settings: self.view.settings.clone(),
            stop_type,
            stopping_word,
            truncated: false,
            tokens_cached: usage.cached_tokens,
        });
        wanted(whole, &self.view.fields)
    }
}

/// The members of `whole` at these paths, each under the last part of its path.
fn wanted(whole: Value, fields: &[String]) -> Value {
    if fields.is_empty() {
        return whole;
    }
    let member = |path: &String| {
        let found = path.split('/').try_fold(&whole, |value, name| value.get(name))?;
        Some((path.rsplit('/').next()?.to_owned(), found.clone()))
    };
    Value::Object(fields.iter().filter_map(member).collect::<Map<_, _>>())
}

impl Answer for CompletionAnswer {
    fn frames(&mut self, index: usize, event: TextEvent) -> Vec<Frame> {
        match event {
            TextEvent::Content(delta) | TextEvent::Reasoning(delta) => self.text(index, &delta),
            TextEvent::Done(done) => vec![Frame::Data(self.end(index, "", &[], &done))],
            _ => Vec::new(),
        }
    }

    fn broken(&mut self, error: &HttpError) -> Vec<Frame> {
        vec![Frame::Data(Llama::json(error))]
    }

    fn whole(&mut self, choices: Vec<Collected>, _: &Usage) -> Value {
        let all = choices.iter().enumerate().filter_map(|(index, choice)| {
            Some(self.end(index, &choice.content, &choice.tokens, choice.done.as_ref()?))
        });
        let mut all: Vec<Value> = all.collect();
        if all.len() == 1 { all.remove(0) } else { all.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_their_paths() {
        let whole = json!({"content": "x", "timings": {"prompt_n": 3}, "stop": true});
        let fields = ["content", "timings/prompt_n", "no/such", "content/deeper"];
        let found = wanted(whole.clone(), &fields.map(str::to_owned));
        assert_eq!(found, json!({"content": "x", "prompt_n": 3}));
        assert_eq!(wanted(whole.clone(), &[]), whole);
    }

    #[test]
    fn nothing_takes_no_time() {
        assert_eq!(Timings::new([0, 0, 0], 0.0, 0.0), Timings::default());
        let timings = Timings::new([3, 10, 4], 2.0, 0.5);
        assert_eq!((timings.prompt_per_token_ms, timings.predicted_per_second), (200.0, 8.0));
    }
}
