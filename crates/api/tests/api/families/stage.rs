//! A service of one family on a scripted engine, which generates the test's text as far as the
//! request's constraint allows.

use crate::families::family::Family;
use api::{CallEvent, ChatRequest, Finish, ModelCard, Service, ServiceParts, TextEvent, Usage};
use base::Rng;
use engine::{
    Allowed, Event, Finished, ModelInfo, Outcome, Request, RequestReceiver, Submission, Timings,
    TokenSet, request_channel,
};
use formats::GenerationDefaults;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use text::{ChatTemplate, EncodeOptions, Tokenizer};

/// Most tokens of an answer.
const PATIENCE: usize = 3000;
/// What ends texts of all kinds.
const ENDS: [&str; 10] = [
    "\"",
    "}",
    "]",
    "</｜DSML｜parameter>\n",
    "</｜DSML｜invoke>\n",
    "</atem:parameter>\n",
    "</arg_value>",
    "]<]minimax[>[",
    "</think>",
    "z",
];
/// Tokens that end a part of an answer.
const CLOSING: [&str; 6] = [
    "</think>",
    "<|end|>",
    "<|eom|>",
    "</think:opensource>",
    "</arg_value:opensource>",
    "</mm:think>",
];

/// The text that the scripted model generates.
#[derive(Clone, Debug)]
pub enum Act {
    /// This text, continued after tokens that the constraint forces. Ends at the limit unless a
    /// token ends the answer.
    Say(String),
    /// Random tokens from a seed.
    Random(u64),
}

/// A service, with the script of its engine and what the engine generated.
pub struct Stage {
    pub family: &'static Family,
    pub service: Service,
    pub tokenizer: Arc<Tokenizer>,
    acts: Sender<Act>,
    played: Receiver<Played>,
}

/// A request that the engine computed.
struct Played {
    prompt: Vec<u32>,
    said: Vec<u32>,
}

/// A call as the client receives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    pub id: String,
    pub name: String,
    pub arguments: String,
    /// The call is malformed.
    pub broken: bool,
}

/// An answer with its prompt and tokens.
#[derive(Debug)]
pub struct Answer {
    pub prompt: Vec<u32>,
    /// The tokens that the stream has read.
    pub sampled: Vec<u32>,
    pub reasoning: String,
    pub content: String,
    pub calls: Vec<Heard>,
    pub finish: Finish,
    pub usage: Usage,
}

impl Stage {
    /// The family's, if its template is at hand.
    pub fn of(family: &'static Family) -> Option<Self> {
        let template = ChatTemplate::from_source(&family.template()?).expect("it is a template");
        let assets = family.assets();
        let stop = |text: &&str| assets.tokenizer.token_to_id(text).expect("ends are tokens");
        let stop_ids = family.ends.iter().map(stop).collect();
        let tokenizer = Arc::new(family.assets().tokenizer);
        let (engine, receiver) = request_channel(info(tokenizer.vocab_size()), 8);
        let (acts, script) = channel();
        let (report, played) = channel();
        let player = Player { tokenizer: Arc::clone(&tokenizer), script, report };
        std::thread::spawn(move || player.run(receiver));
        let service = Service::new(ServiceParts {
            engine,
            assets,
            template: Some(template),
            defaults: GenerationDefaults::default(),
            stop_ids,
            tool_format: None,
            card: card(),
            parallel: 1,
        });
        Some(Self { family, service, tokenizer, acts, played })
    }

    /// The answer to `request` of a model that has `act` in mind.
    pub fn ask(&self, request: &ChatRequest, act: Act) -> Answer {
        let name = self.family.name;
        self.acts.send(act).expect("the engine lives");
        let mut stream = self.service.chat(request).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::new());
        let mut done = None;
        while let Some(event) = stream.next_blocking() {
            match event {
                TextEvent::Reasoning(delta) => reasoning.push_str(&delta.text),
                TextEvent::Content(delta) => content.push_str(&delta.text),
                TextEvent::Call(event) => hear(&mut calls, event),
                TextEvent::Failed(error) => panic!("{name}: {error}"),
                TextEvent::Done(end) => done = Some(end),
                _ => {}
            }
        }
        drop(stream);
        let Played { prompt, mut said } = self.played.recv().expect("the engine reports");
        let done = done.expect("an answer has an end");
        said.truncate(done.usage.completion_tokens);
        let (finish, usage) = (done.finish, done.usage);
        Answer { prompt, sampled: said, reasoning, content, calls, finish, usage }
    }

    /// Begins what `act` answers, and gives the prompt of it once it has been played.
    pub fn play<T>(&self, act: Act, begin: impl FnOnce() -> T) -> (T, impl FnOnce() -> Vec<u32>) {
        self.acts.send(act).expect("the engine lives");
        let begun = begin();
        (begun, || self.played.recv().expect("the engine reports").prompt)
    }

    /// The prompt of a conversation.
    pub fn prompt(&self, request: &ChatRequest) -> Vec<u32> {
        let prepared = self.service.prepare_chat(request);
        prepared.unwrap_or_else(|e| panic!("{}: {e}", self.family.name)).prompt().to_vec()
    }

    /// The ids of `text`, markers recognised.
    pub fn ids(&self, text: &str) -> Vec<u32> {
        ids(&self.tokenizer, text)
    }

    pub fn text(&self, ids: &[u32]) -> String {
        self.tokenizer.decode(ids, false)
    }
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let options = EncodeOptions { add_special: false, parse_special: true };
    tokenizer.encode(text, options).expect("the script encodes")
}

fn hear(calls: &mut Vec<Heard>, event: CallEvent) {
    match event {
        CallEvent::Start { index, id, name } => {
            assert_eq!(index, calls.len());
            calls.push(Heard { id, name, arguments: String::new(), broken: false });
        }
        CallEvent::Arguments { index, delta } => calls[index].arguments.push_str(&delta),
        CallEvent::Broken { index } => calls[index].broken = true,
        CallEvent::End { .. } => {}
    }
}

impl Answer {
    /// The message that a client makes of the answer, with parsed arguments whose members are in
    /// another order.
    pub fn message(&self) -> Value {
        let call = |call: &Heard| {
            let arguments: Value = serde_json::from_str(&call.arguments).expect("they are JSON");
            let members = arguments.as_object().expect("they are an object").iter().rev();
            let arguments: Value = members
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect::<serde_json::Map<_, _>>()
                .into();
            json!({"id": call.id, "type": "function",
                "function": {"name": call.name, "arguments": arguments}})
        };
        let calls: Vec<Value> = self.calls.iter().map(call).collect();
        json!({"role": "assistant", "content": self.content, "tool_calls": calls})
    }
}

/// Plays the engine's part.
struct Player {
    tokenizer: Arc<Tokenizer>,
    script: Receiver<Act>,
    report: Sender<Played>,
}

impl Player {
    fn run(self, mut receiver: RequestReceiver) {
        while let Some(submission) = receiver.submissions.blocking_recv() {
            let Ok(act) = self.script.recv() else { return };
            let (said, event) = self.say(&submission, act);
            let Submission { request, events, .. } = submission;
            for id in &said {
                // The client may have disconnected.
                if events.blocking_send(Event::Token { id: *id, logprobs: None }).is_err() {
                    break;
                }
            }
            let _ = events.blocking_send(event);
            drop(events);
            let _ = self.report.send(Played { prompt: request.prompt, said });
        }
    }

    /// The tokens of an answer, and its end.
    fn say(&self, submission: &Submission, act: Act) -> (Vec<u32>, Event) {
        let request = &submission.request;
        let mut mind = Mind::of(act, &self.tokenizer);
        let mut constraint = request.constraint.as_ref().map(|grammar| grammar.start());
        let most = request.max_tokens.unwrap_or(PATIENCE);
        let mut said = Vec::new();
        let outcome = loop {
            let allowed = match &mut constraint {
                Some(state) if state.is_complete() => break Outcome::Complete,
                Some(state) => {
                    let mut allowed = TokenSet::new(self.tokenizer.vocab_size());
                    match state.mask(&mut allowed) {
                        Err(error) => break Outcome::Failed(error),
                        Ok(Allowed::All) => None,
                        Ok(Allowed::Listed { may_end }) => {
                            settle(&mut allowed, request, may_end);
                            Some(allowed)
                        }
                    }
                }
                None => None,
            };
            let Some(id) = mind.next(&said, allowed.as_ref(), request) else {
                break Outcome::Length;
            };
            if request.stop_ids.contains(&id) {
                break Outcome::StopId(id);
            }
            if let Some(Err(error)) = constraint.as_mut().map(|state| state.accept(id)) {
                break Outcome::Failed(error);
            }
            said.push(id);
            if said.len() == most {
                break Outcome::Length;
            }
        };
        let prompt_tokens = request.prompt.len();
        let usage =
            engine::Usage { prompt_tokens, completion_tokens: said.len(), ..Default::default() };
        let timings = Timings { queued_s: 0.0, prefill_s: 0.0, decode_s: 0.0 };
        (said, Event::Finished(Finished { outcome, usage, timings }))
    }
}

/// Stop ids may be chosen exactly where the answer may end.
fn settle(allowed: &mut TokenSet, request: &Request, may_end: bool) {
    for id in &request.stop_ids {
        if may_end { allowed.insert(*id) } else { allowed.remove(*id) }
    }
}

/// How tokens are chosen.
enum Mind<'a> {
    Script(std::iter::Peekable<std::vec::IntoIter<u32>>),
    Random(Rng, u64, &'a Tokenizer),
}

impl<'a> Mind<'a> {
    fn of(act: Act, tokenizer: &'a Tokenizer) -> Self {
        match act {
            Act::Say(text) => Mind::Script(ids(tokenizer, &text).into_iter().peekable()),
            Act::Random(seed) => Mind::Random(Rng::new(seed), seed, tokenizer),
        }
    }

    /// The next token, `None` where the script is over.
    fn next(&mut self, said: &[u32], allowed: Option<&TokenSet>, request: &Request) -> Option<u32> {
        let fits = |id: u32| allowed.is_none_or(|allowed| allowed.contains(id));
        match self {
            Mind::Script(script) => {
                let wanted = *script.peek()?;
                if fits(wanted) {
                    return script.next();
                }
                let allowed = allowed?;
                let other = (0..allowed.size() as u32).find(|id| allowed.contains(*id));
                Some(other.expect("something is allowed"))
            }
            Mind::Random(rng, seed, tokenizer) => {
                let ids: Vec<u32> =
                    (0..tokenizer.vocab_size() as u32).filter(|id| fits(*id)).collect();
                assert!(!ids.is_empty(), "a dead end after {:?}", tokenizer.decode(said, false));
                Some(choose(rng, *seed, tokenizer, said, &ids, request))
            }
        }
    }
}

/// Any token, the later the rather one that ends something.
fn choose(
    rng: &mut Rng,
    seed: u64,
    tokenizer: &Tokenizer,
    said: &[u32],
    allowed: &[u32],
    request: &Request,
) -> u32 {
    let stop = allowed.iter().find(|id| request.stop_ids.contains(id));
    let more = allowed.iter().find(|id| !request.stop_ids.contains(id));
    // Where the answer may end, one model in two continues for a while.
    match (stop, more) {
        (Some(_), Some(more)) if seed % 2 == 1 && said.len() < 300 => return *more,
        (Some(stop), _) => return *stop,
        _ => {}
    }
    let any = allowed[rng.below(allowed.len() as u64) as usize];
    if rng.below(40) as usize >= said.len() {
        return any;
    }
    let tail: Vec<u8> = said[said.len().saturating_sub(40)..]
        .iter()
        .flat_map(|id| tokenizer.token_bytes(*id))
        .copied()
        .collect();
    let goal = ENDS[(seed as usize + said.len()) / 20 % ENDS.len()].as_bytes();
    let begun = (0..goal.len()).rev().find(|len| tail.ends_with(&goal[..*len])).unwrap_or(0);
    let bytes = |id: &u32| tokenizer.token_bytes(*id).to_vec();
    let closes = |id: &&u32| CLOSING.iter().any(|text| bytes(id) == text.as_bytes());
    let towards = |id: &&u32| !bytes(id).is_empty() && goal[begun..].starts_with(&bytes(id));
    let end = allowed.iter().find(closes);
    let best = allowed.iter().filter(towards).max_by_key(|id| bytes(id).len());
    *end.or(best).unwrap_or(&any)
}

fn info(vocab_size: usize) -> ModelInfo {
    ModelInfo {
        name: "test/family".into(),
        architecture: "script".into(),
        arithmetic: "f32".into(),
        context_length: 100_000,
        vocab_size,
        cache_tokens: 100_000,
        task: engine::ModelTask::Generate,
        hidden_size: 2,
        token_types: 1,
        uses_marks: true,
    }
}

fn card() -> ModelCard {
    ModelCard {
        sentence: Default::default(),
        title: None,
        file: "model".into(),
        format: "safetensors",
        digest: "0123456789abcdef".into(),
        bytes: 1000,
        parameters: 1000,
        quantisation: "BF16".into(),
        modified: None,
        context_length: 100_000,
        hidden_size: 2,
        layers: 2,
        heads: 4,
        kv_heads: 2,
    }
}
