//! A model on a server with OpenAI's protocol.
//!
//! Invariant: messages are sent as they came, with their reasoning, so that a server that keeps
//! turns by the ids of their calls finds them. No two calls of a conversation have the same id.

use crate::message_json::{message_json, parsed_arguments};
use crate::model::{AgentModel, AnswerStart};
use crate::token_count::tokens;
use api::{
    AnswerOptions, ApiError, CallEvent, ChatRequest, Delta, Done, Finish, Message, Part,
    SamplingOptions, SettledAnswer, TextEvent, Tool, ToolCall, ToolChoice, TranscriptMark, Usage,
};
use client::{ChatEvent, ChatQuery, ChatStream, ClientError, QuerySampling, RemoteServer, Wait};
use engine::Timings;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::time::Duration;
use text::GrammarSource;

/// The variable of the effort of reasoning.
const EFFORT: &str = "reasoning_effort";
/// The most tokens of reasoning, as Gannet and llama.cpp name them.
const BUDGET: &str = "thinking_budget_tokens";

/// The code of a refusal since the prompt is longer than the context.
const FULL: &str = "context_length_exceeded";

/// The longest time in which nothing comes: prompts are computed in silence.
const IDLE: Duration = Duration::from_secs(1800);

/// A conversation with the model of a server.
#[derive(Debug)]
pub struct RemoteModel {
    server: RemoteServer,
    name: String,
    context: usize,
    messages: Vec<Message>,
    tools: Vec<Value>,
    /// The variables of the template there.
    variables: Map<String, Value>,
    answer: Option<RemoteAnswer>,
    /// What answers are sampled with, unless their options say otherwise.
    sampling: SamplingOptions,
    /// The server's counts of its tokens with the messages that each includes, the last one at the
    /// end.
    counts: Vec<(usize, usize)>,
}

/// An answer that is being made.
#[derive(Debug)]
struct RemoteAnswer {
    stream: ChatStream,
    message: Message,
    content: String,
    /// The texts of the arguments of the calls.
    arguments: Vec<String>,
    /// The ids of all calls of the conversation.
    ids: HashSet<String>,
    finish: Option<Finish>,
    usage: Usage,
    has_ended: bool,
}

impl RemoteModel {
    /// A conversation with the model `name` of `server`, whose context has so many tokens, with
    /// the messages, tools, sampling and variables of `request`.
    pub fn new(
        server: RemoteServer,
        (name, context): (String, usize),
        request: ChatRequest,
    ) -> Self {
        let ChatRequest { messages, tools, sampling, template_kwargs: variables, .. } = request;
        let tools = tools.iter().map(tool_json).collect();
        let (answer, counts) = (None, Vec::new());
        Self { server, name, context, messages, tools, variables, answer, sampling, counts }
    }

    fn query(&self, options: &AnswerOptions) -> ChatQuery {
        let sampling = options.sampling.over(&self.sampling);
        let wide = |value: Option<f32>| value.map(f64::from);
        let mut extra = self.extra();
        extra.extend(further(&sampling));
        if let Some(tokens) = options.reasoning_budget {
            extra.insert(BUDGET.to_owned(), tokens.into());
        }
        if let Some(GrammarSource::JsonSchema(schema)) = &options.grammar {
            let schema = json!({"name": "answer", "strict": true, "schema": schema});
            let format = json!({"type": "json_schema", "json_schema": schema});
            extra.insert("response_format".to_owned(), format);
        }
        ChatQuery {
            model: self.name.clone(),
            messages: self.messages.iter().map(message_json).collect(),
            tools: self.tools.clone(),
            tool_choice: (options.tool_choice == ToolChoice::None).then(|| "none".into()),
            sampling: QuerySampling {
                max_tokens: sampling.max_tokens.and_then(|tokens| tokens.try_into().ok()),
                temperature: wide(sampling.temperature),
                top_p: wide(sampling.top_p),
                top_k: sampling.top_k.and_then(|k| k.try_into().ok()),
                seed: sampling.seed,
                presence_penalty: wide(sampling.presence_penalty),
                frequency_penalty: wide(sampling.frequency_penalty),
                stop: sampling.stop,
            },
            extra,
        }
    }

    /// Asks for an answer; again without the limit of reasoning where a server does not know it.
    fn ask(&self, mut query: ChatQuery, wait: Wait<'_>) -> Result<ChatStream, ClientError> {
        match self.server.chat(&query, wait) {
            Err(ClientError::Refused { status: Some(400), code, .. })
                if code.as_deref() != Some(FULL) && query.extra.remove(BUDGET).is_some() =>
            {
                self.server.chat(&query, wait)
            }
            stream => stream,
        }
    }

    /// The variables as members of a request: the effort has one of its own.
    fn extra(&self) -> Map<String, Value> {
        let mut variables = self.variables.clone();
        let effort = variables.remove_entry(EFFORT);
        let others = (!variables.is_empty())
            .then(|| ("chat_template_kwargs".to_owned(), Value::Object(variables)));
        effort.into_iter().chain(others).collect()
    }

    /// The error of a server; one of a full context has its own kind.
    fn error(&self, error: ClientError) -> ApiError {
        match &error {
            ClientError::Refused { code: Some(code), .. } if code == FULL => {
                let (least_tokens, context_length) = (self.used(), self.context);
                ApiError::FarBeyondContext { least_tokens, context_length }
            }
            _ => ApiError::Engine(error.to_string()),
        }
    }
}

impl AgentModel for RemoteModel {
    fn messages(&self) -> &[Message] {
        &self.messages
    }

    fn extend(&mut self, messages: Vec<Message>) {
        self.messages.extend(messages);
    }

    fn begin(
        &mut self,
        options: &AnswerOptions,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<AnswerStart, ApiError> {
        let wait = Wait { idle: IDLE, cancelled: is_cancelled };
        let stream = match self.ask(self.query(options), wait) {
            Err(ClientError::Cancelled) => {
                return Ok(AnswerStart { prompt_tokens: self.used(), rendered_anew: None });
            }
            stream => stream.map_err(|error| self.error(error))?,
        };
        let message = Message { role: "assistant".into(), ..Message::default() };
        let calls = self.messages.iter().flat_map(|message| &message.calls);
        self.answer = Some(RemoteAnswer {
            stream,
            message,
            content: String::new(),
            arguments: Vec::new(),
            ids: calls.filter_map(|call| call.id.clone()).collect(),
            finish: None,
            usage: Usage::default(),
            has_ended: false,
        });
        Ok(AnswerStart { prompt_tokens: self.used(), rendered_anew: None })
    }

    fn next(&mut self, is_cancelled: &dyn Fn() -> bool) -> Option<TextEvent> {
        let wait = Wait { idle: IDLE, cancelled: is_cancelled };
        loop {
            let answer = self.answer.as_mut().filter(|answer| !answer.has_ended)?;
            match answer.stream.next(wait) {
                Ok(Some(event)) => {
                    if let Some(event) = answer.take(event) {
                        return Some(event);
                    }
                }
                Ok(None) => return Some(answer.done()),
                Err(ClientError::Cancelled) => return None,
                Err(error) => {
                    answer.has_ended = true;
                    return Some(TextEvent::Failed(self.error(error)));
                }
            }
        }
    }

    fn settle(&mut self) -> Option<SettledAnswer> {
        let answer = self.answer.take()?;
        let usage = answer.usage;
        let message = answer.settled()?;
        self.messages.push(message.clone());
        if usage.prompt_tokens > 0 {
            let used = usage.prompt_tokens + usage.completion_tokens;
            self.counts.push((used, self.messages.len()));
        }
        Some(SettledAnswer { message, tokens: None, dropped: 0 })
    }

    fn mark(&self) -> TranscriptMark {
        TranscriptMark(self.messages.len())
    }

    fn rewind(&mut self, mark: TranscriptMark) {
        self.answer = None;
        self.messages.truncate(mark.0);
        self.counts.retain(|(_, messages)| *messages <= mark.0);
    }

    fn restart(&mut self, messages: Vec<Message>) -> Result<(), ApiError> {
        (self.answer, self.messages, self.counts) = (None, messages, Vec::new());
        Ok(())
    }

    fn set_variables(&mut self, variables: Map<String, Value>) -> Result<Option<usize>, ApiError> {
        self.variables = variables;
        Ok(None)
    }

    fn used(&self) -> usize {
        let (known, messages) = self.counts.last().copied().unwrap_or_default();
        known + tokens(self.messages.get(messages..).unwrap_or_default())
    }

    fn context(&self) -> usize {
        self.context
    }
}

impl RemoteAnswer {
    /// Takes an event of the server; gives the event of the answer, if it is one.
    fn take(&mut self, event: ChatEvent) -> Option<TextEvent> {
        let delta = |text| Delta { text, tokens: Vec::new() };
        match event {
            ChatEvent::Reasoning(text) => {
                self.message.reasoning.get_or_insert_default().push_str(&text);
                Some(TextEvent::Reasoning(delta(text)))
            }
            ChatEvent::Content(text) => {
                self.content.push_str(&text);
                Some(TextEvent::Content(delta(text)))
            }
            ChatEvent::CallStart { index, id, name } => {
                let id = self.unique(id);
                let (call_id, call_name) = (Some(id.clone()), name.clone());
                let call = ToolCall { id: call_id, name: call_name, ..ToolCall::default() };
                self.message.calls.push(call);
                self.arguments.push(String::new());
                Some(TextEvent::Call(CallEvent::Start { index, id, name }))
            }
            ChatEvent::CallArguments { index, delta } => {
                if let Some(text) = self.arguments.get_mut(index) {
                    text.push_str(&delta);
                }
                Some(TextEvent::Call(CallEvent::Arguments { index, delta }))
            }
            ChatEvent::Finish(reason) => {
                self.finish = Some(match reason.as_str() {
                    "length" => Finish::Length,
                    "tool_calls" => Finish::ToolCalls,
                    _ => Finish::Complete,
                });
                None
            }
            ChatEvent::Usage { prompt, cached, completion } => {
                let count = |tokens: u64| usize::try_from(tokens).unwrap_or(usize::MAX / 4);
                self.usage.prompt_tokens = count(prompt).min(usize::MAX / 4);
                self.usage.cached_tokens = count(cached.unwrap_or_default());
                self.usage.completion_tokens = count(completion).min(usize::MAX / 4);
                None
            }
        }
    }

    /// The server's id of a call, or another if an earlier call has it too: results are found by
    /// ids.
    fn unique(&mut self, id: Option<String>) -> String {
        let others = (self.ids.len() + 1..).map(|number| format!("call-{number}"));
        let mut ids = id.into_iter().chain(others);
        let unused = ids.find(|id| !self.ids.contains(id));
        let unused = unused.expect("one of more numbers than ids is unused");
        self.ids.insert(unused.clone());
        unused
    }

    fn done(&mut self) -> TextEvent {
        self.has_ended = true;
        let finish = self.finish.clone().unwrap_or(Finish::Complete);
        let (usage, timings) = (self.usage, Timings::default());
        TextEvent::Done(Done { finish, usage, timings, receipt: None })
    }

    /// The message, without a call that was cut off; `None` if nothing has come.
    fn settled(mut self) -> Option<Message> {
        let is_whole = !matches!(self.finish, None | Some(Finish::Length));
        let texts = std::mem::take(&mut self.arguments);
        for (call, text) in self.message.calls.iter_mut().zip(texts) {
            call.arguments = parsed_arguments(text);
        }
        if !is_whole && self.message.calls.last().is_some_and(|it| !it.arguments.is_object()) {
            self.message.calls.pop();
        }
        let Message { reasoning, calls, .. } = &self.message;
        if self.content.is_empty() && reasoning.is_none() && calls.is_empty() {
            return None;
        }
        // Templates expect a text where there are no calls.
        if calls.is_empty() || !self.content.is_empty() {
            self.message.content = vec![Part::Text(self.content)];
        }
        Some(self.message)
    }
}

/// What OpenAI's API has no members for, by the names that servers of open models have.
fn further(sampling: &SamplingOptions) -> impl Iterator<Item = (String, Value)> {
    let rows = [
        ("min_p", sampling.min_p),
        ("typical_p", sampling.typical_p),
        ("repetition_penalty", sampling.repeat_penalty),
    ];
    let given = |(name, value): (&str, Option<f32>)| Some((name.to_owned(), json!(value?)));
    rows.into_iter().filter_map(given)
}

/// A tool in the form of OpenAI's API.
fn tool_json(tool: &Tool) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name, "description": tool.description, "parameters": tool.parameters,
            "strict": tool.strict,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(sampling: SamplingOptions) -> RemoteModel {
        let server = RemoteServer::new("http://127.0.0.1:1", None).unwrap();
        let request = ChatRequest { sampling, ..ChatRequest::default() };
        RemoteModel::new(server, ("m".to_owned(), 1000), request)
    }

    #[test]
    fn a_query_has_the_sampling_of_its_options_and_else_of_the_conversation() {
        let model = model(SamplingOptions {
            temperature: Some(0.5),
            top_p: Some(0.25),
            min_p: Some(0.125),
            repeat_penalty: Some(1.5),
            seed: Some(7),
            ..SamplingOptions::default()
        });
        let sampling = SamplingOptions {
            temperature: Some(0.0),
            max_tokens: Some(9),
            ..SamplingOptions::default()
        };
        let options =
            AnswerOptions { sampling, reasoning_budget: Some(0), ..AnswerOptions::default() };
        let query = model.query(&options);
        let QuerySampling { temperature, top_p, seed, max_tokens, .. } = query.sampling;
        assert_eq!((temperature, top_p), (Some(0.0), Some(0.25)));
        assert_eq!((seed, max_tokens), (Some(7), Some(9)));
        let extra = json!({"min_p": 0.125, "repetition_penalty": 1.5, "thinking_budget_tokens": 0});
        assert_eq!(Value::Object(query.extra), extra);
        let query = model.query(&AnswerOptions::default());
        assert_eq!((query.sampling.temperature, query.sampling.max_tokens), (Some(0.5), None));
        assert_eq!(query.extra.get("thinking_budget_tokens"), None);
    }

    #[test]
    fn what_is_taken_back_leaves_the_count_before() {
        let mut model = model(SamplingOptions::default());
        model.extend(vec![Message::user("one"), Message::assistant("two")]);
        model.counts.push((700, 2));
        let (mark, used) = (model.mark(), model.used());
        assert_eq!(used, 700);
        model.extend(vec![Message::user("sum up"), Message::assistant("summary")]);
        model.counts.push((900, 4));
        assert_eq!(model.used(), 900);
        model.rewind(mark);
        assert_eq!(model.used(), used);
    }
}
