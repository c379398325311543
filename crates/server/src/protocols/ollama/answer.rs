//! The answers of `/api/chat` and `/api/generate`, whole and line by line.

use crate::generate::answer::{Answer, AnswerCall, Collected};
use crate::generate::flow::{Delivery, Generation, Reply};
use crate::http::error::HttpError;
use crate::http::models::KeepAlive;
use crate::http::protocol::Protocol;
use crate::http::random;
use crate::http::sse::{Frame, Framing};
use crate::protocols::ollama::keep_alive;
use crate::protocols::ollama::line::{
    self, Called, CalledFunction, ChatLine, End, GenerateLine, Logprob, Said,
};
use crate::protocols::ollama::protocol::Ollama;
use crate::protocols::warnings::Warnings;
use api::{
    CallEvent, Delta, Done, Finish, Prepared, Prompt, RequestOptions, SamplingOptions, Service,
    TextEvent, TextRequest, TokenText, Usage,
};
use serde_json::{Value, json};
use std::time::SystemTime;

/// Which of the two it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    Chat,
    Generate,
}

/// Writes answers.
#[derive(Debug)]
pub(crate) struct OllamaAnswer {
    model: String,
    kind: AnswerKind,
    /// Whether the lines have log probabilities.
    logprobs: bool,
    /// The ids of the prompt and of the answer so far, if the last line is to have them.
    pub context: Option<Vec<u32>>,
    /// What the request asked for and does not get.
    pub warnings: Warnings,
    /// Holds the call that is being made. Ollama's clients read whole calls only.
    gathered: Collected,
}

impl OllamaAnswer {
    /// For an answer of `model`.
    pub fn new(model: &str, kind: AnswerKind, logprobs: bool) -> Self {
        let (context, warnings, gathered) = Default::default();
        Self { model: model.to_owned(), kind, logprobs, context, warnings, gathered }
    }

    /// The computation of this answer, which is a stream unless the client says otherwise.
    pub fn generation(self, prompt: Prepared, stream: Option<bool>) -> Reply<Self> {
        Reply::Generate(Box::new(Generation {
            prompts: vec![prompt],
            per_prompt: 1,
            options: RequestOptions::default(),
            id: random::id("ollama-"),
            answer: self,
            delivery: Delivery::of(stream.unwrap_or(true)),
        }))
    }

    /// The answer to a request that asks for no computation but to load or unload the model. Its
    /// sampling, and the ids `before` its prompt, must be valid all the same.
    ///
    /// # Errors
    /// If an option is out of range.
    pub fn idle(
        mut self,
        service: &Service,
        unload: bool,
        before: Vec<u32>,
        sampling: SamplingOptions,
    ) -> Result<Reply<Self>, HttpError> {
        let prompt = Prompt::Ids(if before.is_empty() { vec![0] } else { before });
        let request = TextRequest { prompt, add_special: false, sampling, grammar: None };
        service.prepare_text(&request).map_err(|error| HttpError::of(error, "options"))?;
        let end = End::idle(if unload { "unload" } else { "load" });
        Ok(Reply::Ready(self.line(Said::default(), None, end)))
    }

    /// The answer to a request to unload a model that is not loaded.
    pub fn unloaded(mut self) -> Value {
        self.line(Said::default(), None, End::idle("unload"))
    }

    fn line(&mut self, said: Said, logprobs: Option<Vec<Logprob>>, end: End) -> Value {
        let (model, created_at) = (self.model.clone(), line::time(SystemTime::now()));
        let done = end.done_reason.is_some();
        let warnings = if done { std::mem::take(&mut self.warnings) } else { Warnings::default() };
        match self.kind {
            AnswerKind::Chat => {
                let message = Said { role: "assistant", ..said };
                json!(ChatLine { model, created_at, message, logprobs, done, warnings, end })
            }
            AnswerKind::Generate => {
                let Said { content: response, thinking, .. } = said;
                let context = if done { self.context.take() } else { None };
                json!(GenerateLine {
                    model,
                    created_at,
                    response,
                    thinking,
                    logprobs,
                    done,
                    context,
                    warnings,
                    end
                })
            }
        }
    }

    /// A line of text; tokens without text get one only if it has log probabilities.
    fn text(&mut self, delta: &Delta, said: Said) -> Vec<Frame> {
        let logprobs = self.logprobs(&delta.tokens);
        if delta.text.is_empty() && logprobs.is_none() {
            return Vec::new();
        }
        vec![Frame::Data(self.line(said, logprobs, End::default()))]
    }

    /// Adds `tokens` to the context; gives their log probabilities.
    fn logprobs(&mut self, tokens: &[TokenText]) -> Option<Vec<Logprob>> {
        if let Some(context) = &mut self.context {
            context.extend(tokens.iter().map(|token| token.id));
        }
        (self.logprobs && !tokens.is_empty()).then(|| line::logprobs(tokens))
    }

    /// The end of the answer. The token that closed it is part of the context.
    fn end(&mut self, done: &Done) -> End {
        if let (Some(context), Finish::StopId(id)) = (&mut self.context, &done.finish) {
            context.push(*id);
        }
        End::of(done)
    }

    fn call(&mut self, event: CallEvent) -> Vec<Frame> {
        let ended = matches!(event, CallEvent::End { .. });
        self.gathered.add(TextEvent::Call(event));
        if ended { self.called() } else { Vec::new() }
    }

    /// The line of the gathered call, if there is one.
    fn called(&mut self) -> Vec<Frame> {
        let Some(call) = self.gathered.calls.pop() else { return Vec::new() };
        let mut said = Said::default();
        said.add_call(call.index, &call);
        vec![Frame::Data(self.line(said, None, End::default()))]
    }
}

impl Said {
    fn add_call(&mut self, index: usize, call: &AnswerCall) {
        let arguments = call.members();
        let function = CalledFunction { index, name: call.name.clone(), arguments };
        self.tool_calls.push(Called { id: call.id.clone(), function });
    }
}

impl Answer for OllamaAnswer {
    const FRAMING: Framing = Framing::Lines;
    const STREAMS: bool = true;

    fn keep_alive(body: &Value) -> Option<KeepAlive> {
        keep_alive::of_body(body)
    }

    fn frames(&mut self, _: usize, event: TextEvent) -> Vec<Frame> {
        match event {
            TextEvent::Reasoning(delta) => {
                let thinking = Some(delta.text.clone());
                self.text(&delta, Said { thinking, ..Said::default() })
            }
            TextEvent::Content(delta) => {
                let content = delta.text.clone();
                self.text(&delta, Said { content, ..Said::default() })
            }
            TextEvent::Call(event) => self.call(event),
            TextEvent::Done(done) => {
                // A call that the limit of tokens has cut.
                let mut lines = self.called();
                let end = self.end(&done);
                lines.push(Frame::Data(self.line(Said::default(), None, end)));
                lines
            }
            _ => Vec::new(),
        }
    }

    fn refused(error: &HttpError) -> Vec<Frame> {
        vec![Frame::Data(Ollama::json(error))]
    }

    /// Every line must be an object of the answer.
    fn waiting() -> Option<Frame> {
        None
    }

    fn whole(&mut self, choices: Vec<Collected>, _: &Usage) -> Value {
        let choice = choices.into_iter().next().unwrap_or_default();
        let logprobs = self.logprobs(&choice.tokens);
        let end = choice.done.as_ref().map(|done| self.end(done)).unwrap_or_default();
        let thinking = Some(choice.reasoning).filter(|text| !text.is_empty());
        let mut said = Said { content: choice.content, thinking, ..Said::default() };
        choice.calls.iter().enumerate().for_each(|(index, call)| said.add_call(index, call));
        self.line(said, logprobs, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Timings;

    fn events() -> Vec<TextEvent> {
        let delta = |text: &str| Delta { text: text.into(), tokens: Vec::new() };
        let start = |index, name: &str| {
            let (id, name) = (format!("call_{index}"), name.to_owned());
            TextEvent::Call(CallEvent::Start { index, id, name })
        };
        let arguments = |index, delta: &str| {
            TextEvent::Call(CallEvent::Arguments { index, delta: delta.into() })
        };
        let end = |index| TextEvent::Call(CallEvent::End { index });
        let timings = Timings { queued_s: 0.5, prefill_s: 1.0, decode_s: 2.0 };
        let usage = Usage { prompt_tokens: 3, completion_tokens: 9, ..Usage::default() };
        vec![
            TextEvent::Reasoning(delta("why")),
            TextEvent::Content(delta("so")),
            start(0, "f"),
            arguments(0, "{\"x\":"),
            arguments(0, " 1}"),
            end(0),
            start(1, "g"),
            end(1),
            start(2, "h"),
            arguments(2, "{"),
            TextEvent::Call(CallEvent::Broken { index: 2 }),
            TextEvent::Content(delta("h{")),
            TextEvent::Done(Done { finish: Finish::ToolCalls, usage, timings, receipt: None }),
        ]
    }

    /// Without what differs between runs.
    fn stable(mut line: Value) -> Value {
        let at = line.as_object_mut().unwrap().shift_remove("created_at").unwrap();
        assert_eq!(at.as_str().map(str::len), Some("2023-11-14T22:13:20.000000005Z".len()));
        line
    }

    fn answer() -> OllamaAnswer {
        OllamaAnswer::new("m", AnswerKind::Chat, false)
    }

    fn called(index: usize, name: &str, arguments: Value) -> Value {
        let function = json!({"index": index, "name": name, "arguments": arguments});
        json!({"id": format!("call_{index}"), "function": function})
    }

    fn last(message: Value) -> Value {
        json!({
            "model": "m", "message": message, "done": true, "done_reason": "stop",
            "total_duration": 3_500_000_000_u64, "load_duration": 500_000_000,
            "prompt_eval_count": 3, "prompt_eval_duration": 1_000_000_000,
            "eval_count": 9, "eval_duration": 2_000_000_000,
        })
    }

    #[test]
    fn calls_come_whole_and_broken_ones_not_at_all() {
        let mut answer = answer();
        let mut frames: Vec<Frame> =
            events().into_iter().flat_map(|event| answer.frames(0, event)).collect();
        frames.extend(answer.close(&Usage::default()));
        let lines = frames.into_iter().map(|frame| match frame {
            Frame::Data(line) => stable(line),
            other => panic!("{other:?}"),
        });
        let line = |extra: Value| {
            let mut message = json!({"role": "assistant", "content": ""});
            message.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            json!({"model": "m", "message": message, "done": false})
        };
        let expected = [
            line(json!({"thinking": "why"})),
            line(json!({"content": "so"})),
            line(json!({"tool_calls": [called(0, "f", json!({"x": 1}))]})),
            line(json!({"tool_calls": [called(1, "g", json!({}))]})),
            line(json!({"content": "h{"})),
            last(json!({"role": "assistant", "content": ""})),
        ];
        assert_eq!(lines.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_whole_answer_says_what_its_stream_says() {
        let mut collected = Collected::default();
        events().into_iter().for_each(|event| collected.add(event));
        let whole = stable(answer().whole(vec![collected], &Usage::default()));
        let calls = [called(0, "f", json!({"x": 1})), called(1, "g", json!({}))];
        let message = json!({"role": "assistant", "content": "soh{", "thinking": "why",
                             "tool_calls": calls});
        assert_eq!(whole, last(message));
    }

    #[test]
    fn a_call_that_is_cut_keeps_the_members_that_came() {
        let mut events = events();
        events.truncate(4);
        let usage = Usage { prompt_tokens: 3, completion_tokens: 9, ..Usage::default() };
        let timings = Timings { queued_s: 0.5, prefill_s: 1.0, decode_s: 2.0 };
        let cut = CallEvent::Arguments { index: 0, delta: " 12, \"y".into() };
        let done = Done { finish: Finish::Length, usage, timings, receipt: None };
        events.extend([TextEvent::Call(cut), TextEvent::Done(done)]);
        let mut collected = Collected::default();
        let mut stream = answer();
        let frames: Vec<Frame> =
            events.iter().flat_map(|event| stream.frames(0, event.clone())).collect();
        events.into_iter().for_each(|event| collected.add(event));
        let whole = answer().whole(vec![collected], &Usage::default());
        let call = json!([called(0, "f", json!({"x": 12}))]);
        assert_eq!(
            (&whole["message"]["tool_calls"], &whole["done_reason"]),
            (&call, &json!("length"))
        );
        let Frame::Data(line) = &frames[frames.len() - 2] else { panic!("{frames:?}") };
        assert_eq!(line["message"]["tool_calls"], call);
        let Frame::Data(last) = &frames[frames.len() - 1] else { panic!("{frames:?}") };
        assert_eq!(last["done_reason"], "length");
    }

    #[test]
    fn an_error_is_the_last_line() {
        let error = HttpError::invalid("x", "x cannot be");
        let expected = Frame::Data(json!({"error": "x cannot be"}));
        assert_eq!(answer().broken(&error), [expected]);
    }
}
