//! A service on a scripted engine: a thread takes requests from the receiver, answers with the
//! tokens of the test, and reports how each request ended.

#![allow(dead_code, missing_docs, clippy::print_stderr)]

use api::{ModelCard, Service, ServiceParts};
use backend::Memory;
use engine::metrics::{Lookup, Metrics, RequestTotals, Step};
use engine::{
    Event, Finished, ModelInfo, Outcome, Request, RequestReceiver, Submission, Timings,
    TokenLogprobs, Usage, request_channel,
};
use formats::GenerationDefaults;
use sched::CacheLookup;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use text::{EncodeOptions, Templates, TextAssets, Tokenizer};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../api/tests/data");

pub const BOS: u32 = 260;
pub const IM_END: u32 = 262;
pub const VOCAB: usize = 265;
pub const CONTEXT: usize = 256;
/// Prompt tokens that every request is said to find in the cache.
pub const CACHED: usize = 3;

/// One act of the engine.
#[derive(Clone, Debug)]
pub enum Act {
    /// Find of every prompt what an earlier one of its part of the cache begins with, in place of
    /// [`CACHED`] tokens.
    Cache,
    /// Report this many prompt tokens as computed.
    Prefill(usize),
    /// Generate the tokens of this text; special tokens may be written out.
    Say(&'static str),
    /// Generate these tokens.
    Ids(Vec<u32>),
    /// Generate this text again and again.
    Forever(&'static str),
    /// Compute for so long.
    Pause(Duration),
    /// Break the generation.
    Fail(&'static str),
    /// End the engine without a word.
    Die,
}

/// What became of a request.
#[derive(Debug)]
pub struct Report {
    pub request: Request,
    /// Tokens that were accepted by the reader's channel.
    pub sent: usize,
    pub cancelled: bool,
}

pub struct Scripted {
    pub service: Service,
    pub reports: Receiver<Report>,
}

impl Scripted {
    /// The report of the next request to end.
    pub fn report(&self) -> Report {
        self.reports.recv_timeout(Duration::from_secs(10)).expect("the engine reports in time")
    }
}

/// A service that plays `script` to every request, and lets `queue` of them wait.
pub fn scripted_with_queue(script: Vec<Act>, queue: usize) -> Scripted {
    scripted_with_assets(assets(), script, queue)
}

/// A service that only renders, with a template of this source.
pub fn scripted_with_template(source: &str) -> Scripted {
    scripted_template(source, Vec::new())
}

/// A service that plays `script`, with a template of this source.
pub fn scripted_template(source: &str, script: Vec<Act>) -> Scripted {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("gannet-api-template-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("there is space");
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(Path::new(DATA).join(file), folder.join(file)).expect("the fixture is there");
    }
    std::fs::write(folder.join("chat_template.jinja"), source).expect("there is space");
    let assets = TextAssets::from_folder(&folder).expect("the fixture is sound");
    std::fs::remove_dir_all(&folder).expect("the folder is there");
    let info = ModelInfo { context_length: 16 * CONTEXT, ..info() };
    scripted_with_info(info, assets, script, 1)
}

/// As [`scripted_with_queue`], with another tokenizer or other templates.
pub fn scripted_with_assets(assets: TextAssets, script: Vec<Act>, queue: usize) -> Scripted {
    scripted_with_info(info(), assets, script, queue)
}

/// A model of this family, whose checkpoint has no chat template, with a context of this length.
pub fn scripted_family(family: &str, context_length: usize, script: Vec<Act>) -> Scripted {
    let templates = Templates::default().or_built_in(family);
    let info = ModelInfo { architecture: family.into(), context_length, ..info() };
    scripted_with_info(info, TextAssets { templates, ..assets() }, script, 64)
}

/// A service of a model that has no use for marks.
pub fn scripted_without_marks() -> Scripted {
    scripted_with_info(ModelInfo { uses_marks: false, ..info() }, assets(), Vec::new(), 1)
}

/// A service of a model that scores documents.
pub fn scripted_ranker() -> Scripted {
    let task = engine::ModelTask::Score { labels: 1 };
    scripted_with_info(ModelInfo { task, ..info() }, assets(), Vec::new(), 64)
}

fn scripted_with_info(
    info: ModelInfo,
    assets: TextAssets,
    script: Vec<Act>,
    queue: usize,
) -> Scripted {
    let vocab_size = VOCAB.max(assets.tokenizer.vocab_size());
    let context = info.context_length;
    let (engine, receiver) = request_channel(ModelInfo { vocab_size, ..info }, queue);
    receiver.metrics.device_memory("scripted", Memory::default());
    let (reporter, reports) = channel();
    let player = Player { tokenizer: Arc::new(tokenizer()), script, reporter, context };
    std::thread::spawn(move || player.run(receiver));
    let parts = ServiceParts {
        engine,
        assets,
        template: None,
        defaults: GenerationDefaults { temperature: Some(0.5), ..Default::default() },
        stop_ids: Vec::new(),
        tool_format: None,
        card: card(),
        parallel: 4,
    };
    Scripted { service: Service::new(parts), reports }
}

pub fn scripted(script: impl Into<Vec<Act>>) -> Scripted {
    scripted_with_queue(script.into(), 64)
}

fn info() -> ModelInfo {
    ModelInfo {
        name: "test/model".into(),
        architecture: "script".into(),
        arithmetic: "f32".into(),
        context_length: CONTEXT,
        vocab_size: VOCAB,
        cache_tokens: 4 * CONTEXT,
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
        file: "model.gguf".into(),
        format: "gguf",
        digest: "0123456789abcdef".into(),
        bytes: 1000,
        parameters: 600_000_000,
        quantisation: "Q8_0".into(),
        modified: Some(std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
        context_length: 2 * CONTEXT,
        hidden_size: 2,
        layers: 2,
        heads: 4,
        kv_heads: 2,
    }
}

fn assets() -> TextAssets {
    TextAssets::from_folder(Path::new(DATA)).expect("the fixture is sound")
}

/// The first of the marks of a gap in [`assets_with_marks`]: prefix, suffix, middle.
pub const MARKS: u32 = VOCAB as u32;

/// The fixture with the marks of a gap to be filled in.
pub fn assets_with_marks() -> TextAssets {
    let path = Path::new(DATA).join("tokenizer.json");
    let file = std::fs::read_to_string(path).expect("the fixture is there");
    let mut file: serde_json::Value = serde_json::from_str(&file).expect("the fixture is JSON");
    let added = file["added_tokens"].as_array_mut().expect("the fixture has added tokens");
    for (id, name) in (MARKS..).zip(["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]) {
        let mut token = added[0].clone();
        (token["id"], token["content"]) = (id.into(), name.into());
        added.push(token);
    }
    let config = std::fs::read(Path::new(DATA).join("tokenizer_config.json"));
    let config = config.expect("the fixture is there");
    let tokenizer = Tokenizer::from_json_bytes(file.to_string().as_bytes(), Some(&config));
    TextAssets { tokenizer: tokenizer.expect("the fixture is sound"), ..assets() }
}

pub fn tokenizer() -> Tokenizer {
    assets().tokenizer
}

/// The ids of `text`, special tokens recognised, nothing added.
pub fn ids(text: &str) -> Vec<u32> {
    let options = EncodeOptions { add_special: false, parse_special: true };
    tokenizer().encode(text, options).expect("the fixture encodes")
}

struct Player {
    tokenizer: Arc<Tokenizer>,
    script: Vec<Act>,
    reporter: Sender<Report>,
    context: usize,
}

/// One request being played.
struct Play<'a> {
    submission: &'a Submission,
    metrics: &'a Metrics,
    context: usize,
    /// Prompt tokens found in the cache.
    found: usize,
    sent: usize,
    last: Instant,
}

/// How a play ended early.
enum Curtain {
    Ended(Outcome),
    Dead,
}

impl Player {
    fn run(self, mut receiver: RequestReceiver) {
        let mut known = Vec::new();
        while let Some(submission) = receiver.submissions.blocking_recv() {
            let metrics = &receiver.metrics;
            let (context, last) = (self.context, Instant::now());
            let found = self.found(&known, &submission.request);
            let mut play = Play { submission: &submission, metrics, context, found, sent: 0, last };
            play.begin(receiver.submissions.len());
            let ended = self.play(&mut play);
            play.end(&ended);
            let (sent, found) = (play.sent, play.found);
            let dead = matches!(ended, Curtain::Dead);
            let cancelled = match ended {
                Curtain::Ended(Outcome::Cancelled) => true,
                Curtain::Ended(outcome) => !self.finish(&submission, outcome, [sent, found]),
                Curtain::Dead => false,
            };
            known.push(submission.request.clone());
            let _ = self.reporter.send(Report { request: submission.request, sent, cancelled });
            if dead {
                return;
            }
        }
    }

    /// Prompt tokens that `request` finds after the `known` ones.
    fn found(&self, known: &[Request], request: &Request) -> usize {
        let most = request.prompt.len() - 1;
        if !self.script.iter().any(|act| matches!(act, Act::Cache)) {
            return CACHED.min(request.prompt.len());
        }
        let known = known.iter().filter(|known| known.space == request.space && !request.cold);
        let shared = |known: &Request| {
            let same = known.prompt.iter().zip(&request.prompt).take_while(|(a, b)| a == b);
            same.count().min(most)
        };
        known.map(shared).max().unwrap_or(0)
    }

    fn play(&self, play: &mut Play<'_>) -> Curtain {
        // A vector takes as long as the script's first act.
        let first = self.script.first().filter(|_| play.submission.request.embed.is_some());
        let paused = first.map_or(Ok(()), |act| self.act(play, act));
        if let Err(curtain) = paused.and_then(|()| play.prompt()) {
            return curtain;
        }
        for act in &self.script {
            if let Err(curtain) = self.act(play, act) {
                return curtain;
            }
        }
        Curtain::Ended(Outcome::StopId(IM_END))
    }

    fn act(&self, play: &mut Play<'_>, act: &Act) -> Result<(), Curtain> {
        match act {
            Act::Prefill(done) => {
                let total = play.submission.request.prompt.len();
                play.send(Event::Prefill { done: *done, total })
            }
            Act::Say(text) => play.tokens(&self.ids(text)),
            Act::Ids(ids) => play.tokens(ids),
            Act::Forever(text) => loop {
                play.tokens(&self.ids(text))?;
            },
            Act::Pause(time) => play.pause(*time),
            Act::Cache => Ok(()),
            Act::Fail(why) => Err(Curtain::Ended(Outcome::Failed((*why).into()))),
            Act::Die => Err(Curtain::Dead),
        }
    }

    fn ids(&self, text: &str) -> Vec<u32> {
        let options = EncodeOptions { add_special: false, parse_special: true };
        self.tokenizer.encode(text, options).expect("the script encodes")
    }

    fn finish(&self, submission: &Submission, outcome: Outcome, tokens: [usize; 2]) -> bool {
        let [completion_tokens, cached_tokens] = tokens;
        let usage = Usage {
            prompt_tokens: submission.request.prompt.len(),
            completion_tokens,
            cached_tokens,
            ..Usage::default()
        };
        let timings = Timings { queued_s: 0.5, prefill_s: 1.0, decode_s: 2.0 };
        let finished = Finished { outcome, usage, timings };
        submission.events.blocking_send(Event::Finished(finished)).is_ok()
    }
}

impl Play<'_> {
    fn begin(&self, waiting: usize) {
        let prompt = self.submission.request.prompt.len();
        self.metrics.working(true);
        self.metrics.load(1, waiting);
        self.metrics.blocks(0, 2, 1, 5);
        let lookup = Lookup { queried: prompt, found: self.found, ..Lookup::default() };
        self.metrics.admitted(self.submission.submitted.elapsed(), lookup);
    }

    fn end(&self, curtain: &Curtain) {
        let outcome = match curtain {
            Curtain::Ended(outcome) => outcome,
            Curtain::Dead => &Outcome::Cancelled,
        };
        let ended = RequestTotals {
            prompt_tokens: self.submission.request.prompt.len(),
            generated: self.sent,
            total: self.submission.submitted.elapsed(),
            decode: Duration::ZERO,
        };
        self.metrics.finished(outcome, ended);
        self.metrics.load(0, 0);
        self.metrics.working(false);
    }

    /// What is asked about the prompt, and whether that is all.
    fn prompt(&self) -> Result<(), Curtain> {
        let request = &self.submission.request;
        let looked_up = if request.cold { 0 } else { request.prompt.len() - 1 };
        let lookup = CacheLookup { looked_up, found: self.found, ..CacheLookup::default() };
        self.send(Event::Admitted { lookup, queued_s: 0.5 })?;
        if let Some(top) = request.prompt_logprobs {
            let ids = request.prompt.iter().skip(1);
            let tokens = ids.map(|id| (*id, logprobs(*id, top))).collect();
            self.send(Event::PromptLogprobs { first: 1, tokens })?;
        }
        if request.embed.is_some() {
            self.send(Event::Embedding(vec![0.6, 0.8]))?;
            return Err(Curtain::Ended(Outcome::Length));
        }
        match request.max_tokens {
            Some(0) => Err(Curtain::Ended(Outcome::Length)),
            _ => Ok(()),
        }
    }

    /// One step for every token.
    fn computed(&mut self) {
        let gap = self.last.elapsed();
        self.last = Instant::now();
        let prompt = self.submission.request.prompt.len();
        let prompt_tokens = if self.sent == 0 { prompt.saturating_sub(3) } else { 0 };
        self.metrics.step(Step { rows: 1, sequences: 1, took: gap });
        match self.sent {
            0 => {
                self.metrics.prompt_computed(gap, prompt_tokens);
                self.metrics.first_token(self.submission.submitted.elapsed());
            }
            _ => self.metrics.tokens(1, gap),
        }
    }

    fn send(&self, event: Event) -> Result<(), Curtain> {
        self.submission.events.blocking_send(event).map_err(|_| Curtain::Ended(Outcome::Cancelled))
    }

    fn tokens(&mut self, ids: &[u32]) -> Result<(), Curtain> {
        ids.iter().try_for_each(|&id| self.token(id))
    }

    fn token(&mut self, id: u32) -> Result<(), Curtain> {
        let request = &self.submission.request;
        if request.stop_ids.contains(&id) {
            return Err(Curtain::Ended(Outcome::StopId(id)));
        }
        let logprobs = request.logprobs.map(|top| logprobs(id, top));
        self.computed();
        self.send(Event::Token { id, logprobs })?;
        self.sent += 1;
        let full = self.context - request.prompt.len();
        if self.sent >= request.max_tokens.unwrap_or(full).min(full) {
            return Err(Curtain::Ended(Outcome::Length));
        }
        Ok(())
    }

    fn pause(&self, time: Duration) -> Result<(), Curtain> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if self.submission.events.is_closed() {
                return Err(Curtain::Ended(Outcome::Cancelled));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// The chosen token at -0.25 and its neighbours below it.
fn logprobs(id: u32, top: usize) -> TokenLogprobs {
    let neighbour = |n: usize| ((id + n as u32) % VOCAB as u32, -0.25 - n as f32);
    TokenLogprobs { logprob: -0.25, top: (0..top).map(neighbour).collect() }
}
