//! The answer of `POST /completion` and `POST /infill`, whole and as events.

use crate::generate::answer::{Answer, Collected};
use crate::generate::logprobs::finite;
use crate::generate::options::Telemetry;
use crate::generate::timings::{ChoiceProgress, PromptProgress, Timings};
use crate::http::described::described;
use crate::http::error::HttpError;
use crate::http::protocol::Protocol;
use crate::http::slots::SlotTable;
use crate::http::sse::Frame;
use crate::protocols::llama::protocol::Llama;
use crate::protocols::warnings::Warnings;
use api::{Delta, Done, Finish, TextEvent, TokenText, TopToken, Usage};
use base::math;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// The parts of an answer that are shown.
#[derive(Clone, Debug)]
pub(crate) struct AnswerView {
    /// Ids of its tokens.
    pub tokens: bool,
    /// Log probabilities.
    pub probabilities: bool,
    /// Probabilities are reported after all samplers.
    pub sampled: bool,
    /// What the pieces of a stream report of the computation.
    pub telemetry: Telemetry,
    /// Nothing of what was generated.
    pub unseen: bool,
    /// Only these members; all where there are none.
    pub fields: Vec<String>,
    pub settings: Value,
    /// The prompts.
    pub prompts: Vec<ShownPrompt>,
    /// What the request asked for and does not get.
    pub warnings: Warnings,
}

/// A prompt as answers report it.
#[derive(Clone, Debug)]
pub(crate) struct ShownPrompt {
    /// Its tokens as text.
    pub text: String,
    /// How many these are.
    pub tokens: usize,
}

/// Writes completions.
#[derive(Debug)]
pub(crate) struct CompletionAnswer {
    model: String,
    view: AnswerView,
    /// Answers to each prompt.
    per_prompt: usize,
    choices: Vec<ChoiceProgress>,
    slot: Option<BoundSlot>,
}

/// The slot whose tokens become those of an answer.
#[derive(Debug)]
pub(crate) struct BoundSlot {
    slots: Arc<SlotTable>,
    id: usize,
    /// The prompt and what was generated so far.
    tokens: Vec<u32>,
}

impl BoundSlot {
    /// The slot of this number with a prompt, if there is such a slot and one prompt.
    pub fn new(slots: Arc<SlotTable>, id: i64, prompts: &[Vec<u32>]) -> Option<Self> {
        let id = usize::try_from(id).ok().filter(|id| slots.has(*id))?;
        let [prompt] = prompts else { return None };
        Some(Self { slots, id, tokens: prompt.clone() })
    }

    /// Begins the request; returns whether it computes its prompt anew.
    pub fn begin(&self) -> bool {
        self.slots.begin(self.id)
    }

    fn add(&mut self, event: &TextEvent) {
        match event {
            TextEvent::Content(delta) | TextEvent::Reasoning(delta) => {
                self.tokens.extend(delta.tokens.iter().map(|token| token.id));
            }
            TextEvent::Done(done) => {
                if !matches!(done.finish, Finish::StopId(_)) {
                    // The last token was sampled and not computed.
                    self.tokens.pop();
                }
                self.slots.set(self.id, std::mem::take(&mut self.tokens));
            }
            _ => {}
        }
    }
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
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_progress: Option<PromptProgress>,
}

described! {
    /// An answer, or those to several prompts.
    pub(crate) name Completions as "LlamaCompletions" = Completion | [Completion];
}

/// A whole answer, or the end of one that was streamed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LlamaCompletion)]
pub(crate) struct Completion {
    #[serde(flatten)]
    piece: AnswerPiece,
    model: String,
    /// The tokens of the prompt as text.
    prompt: String,
    generation_settings: Value,
    /// `eos`, `limit` or `word`.
    stop_type: &'static str,
    stopping_word: String,
    /// Never: what does not fit is refused.
    truncated: bool,
    /// Prompt tokens found in the cache.
    tokens_cached: usize,
    has_new_line: bool,
    /// What the request asked for and did not get; an extension.
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    #[schema(required = false)]
    warnings: Warnings,
}

/// A token with its probability and those of the likeliest ones.
#[derive(Debug, Serialize, ToSchema)]
struct Probability {
    #[serde(flatten)]
    token: Likely,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<Likely>>,
    /// In place of `top_logprobs` with `post_sampling_probs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_probs: Option<Vec<Likely>>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LlamaLikely)]
struct Likely {
    id: u32,
    token: String,
    bytes: Vec<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprob: Option<f64>,
    /// In place of `logprob` with `post_sampling_probs`: the probability after all samplers.
    #[serde(skip_serializing_if = "Option::is_none")]
    prob: Option<f64>,
}

impl Likely {
    fn new(id: u32, text: &str, bytes: &[u8], logprob: f32, sampled: bool) -> Self {
        let (token, bytes) = (text.to_owned(), bytes.to_vec());
        let prob = sampled.then(|| math::exp(f64::from(logprob)));
        Self { id, token, bytes, logprob: (!sampled).then(|| finite(logprob)), prob }
    }
}

fn probability(token: &TokenText, sampled: bool) -> Probability {
    let top = |top: &TopToken| Likely::new(top.id, &top.text, &top.bytes, top.logprob, sampled);
    let all = token.top.iter().map(top).collect();
    let (top_logprobs, top_probs) = if sampled { (None, Some(all)) } else { (Some(all), None) };
    let TokenText { id, text, bytes, logprob, .. } = token;
    Probability { token: Likely::new(*id, text, bytes, *logprob, sampled), top_logprobs, top_probs }
}

impl CompletionAnswer {
    /// For so many answers of `model` to each prompt.
    pub fn new(model: &str, view: AnswerView, choices: usize, slot: Option<BoundSlot>) -> Self {
        let all = vec![ChoiceProgress::default(); view.prompts.len() * choices];
        Self { model: model.to_owned(), view, per_prompt: choices, choices: all, slot }
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
            id_slot: self.slot.as_ref().map_or(-1, |slot| slot.id as i64),
            tokens_predicted: self.choices[index].generated(),
            tokens_evaluated: self.view.prompts[index / self.per_prompt].tokens,
            completion_probabilities: probabilities
                .then(|| shown.iter().map(|token| probability(token, self.view.sampled)).collect()),
            timings: self.view.telemetry.timings.then(|| self.choices[index].timings()),
            prompt_progress: None,
        }
    }

    fn text(&mut self, index: usize, delta: &Delta) -> Vec<Frame> {
        if self.view.unseen {
            return Vec::new();
        }
        self.choices[index].add(delta);
        vec![Frame::Data(json!(self.piece(index, &delta.text, &delta.tokens)))]
    }

    /// The piece about the prompt, if it was asked for.
    fn progress(&mut self, index: usize, counts: [usize; 3]) -> Vec<Frame> {
        let [cached, done, total] = counts;
        let progress = self.choices[index].prefill(cached, done, total);
        if !self.view.telemetry.progress {
            return Vec::new();
        }
        let piece = AnswerPiece { prompt_progress: Some(progress), ..self.piece(index, "", &[]) };
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
            prompt: self.view.prompts[index / self.per_prompt].text.clone(),
            generation_settings: self.view.settings.clone(),
            stop_type,
            stopping_word,
            truncated: false,
            tokens_cached: usage.cached_tokens,
            warnings: self.view.warnings.clone(),
        });
        wanted(whole, &self.view.fields)
    }
}

/// The members of `whole` at these paths, each under its path.
fn wanted(whole: Value, fields: &[String]) -> Value {
    if fields.is_empty() {
        return whole;
    }
    let member = |path: &String| {
        let found = path.split('/').try_fold(&whole, |value, name| value.get(name))?;
        Some((path.clone(), found.clone()))
    };
    Value::Object(fields.iter().filter_map(member).collect::<Map<_, _>>())
}

impl Answer for CompletionAnswer {
    fn note(&mut self, _: usize, event: &TextEvent) {
        self.slot.iter_mut().for_each(|slot| slot.add(event));
    }

    fn frames(&mut self, index: usize, event: TextEvent) -> Vec<Frame> {
        self.note(index, &event);
        match event {
            TextEvent::Content(delta) | TextEvent::Reasoning(delta) => self.text(index, &delta),
            TextEvent::Prefill { cached, done, total } => {
                self.progress(index, [cached, done, total])
            }
            TextEvent::Done(done) => vec![Frame::Data(self.end(index, "", &[], &done))],
            _ => Vec::new(),
        }
    }

    fn refused(error: &HttpError) -> Vec<Frame> {
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
        assert_eq!(found, json!({"content": "x", "timings/prompt_n": 3}));
        assert_eq!(wanted(whole.clone(), &[]), whole);
    }
}
