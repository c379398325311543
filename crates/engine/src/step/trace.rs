//! Traces of requests, to be replayed and compared to the bit.
//!
//! A [`Trace`] holds the request, the settings that decide its bits, the steps it took part in, the
//! generated ids, and for each id a hash of all logits so far. Steps do not change bits; they help
//! to find the cause when bits differ.

use crate::load::runner::Runner;
pub use crate::load::trace_settings::TraceSettings;
use crate::request::answer_record::RecordedChoices;
use crate::request::constraint::{Allowed, Constraint, Grammar, GrammarRef, TokenSet};
use crate::request::fields::{Request, SamplingParams};
use crate::request::speculate::Speculate;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Version of the format.
const VERSION: u32 = 3;
/// Most bytes of a trace that is read.
const MAX_BYTES: u64 = 1 << 30;
/// Traces that may wait to be written before further ones are dropped.
const PENDING: usize = 1024;

/// The part of a trace that every version has.
#[derive(Deserialize)]
struct TraceVersion {
    version: u32,
}

/// The record of one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Version of the format.
    pub version: u32,
    /// Name of the request.
    pub name: String,
    /// Name of the model.
    pub model: String,
    /// Settings that decide its bits.
    pub settings: TraceSettings,
    /// The request.
    pub request: TraceRequest,
    /// Prompt tokens that were found in the cache.
    pub cached_tokens: usize,
    /// Number of preemptions.
    pub preemptions: u32,
    /// Rows of the sequence in each step.
    pub steps: Vec<TraceStep>,
    /// Generated ids, without a stop id at the end.
    pub ids: Vec<u32>,
    /// Hash of all logits so far, after each choice, that of a stop id included.
    pub logits: Vec<String>,
    /// Which choices were greedy whatever the sampling options said, counted from 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub greedy: Vec<usize>,
    /// Label of its outcome.
    pub finish: String,
}

/// The fields of a [`Request`] that decide its answer, with its seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // As in `Request` and `SamplingParams`.
pub struct TraceRequest {
    pub prompt: Vec<u32>,
    pub max_tokens: Option<usize>,
    pub min_tokens: usize,
    pub stop_ids: Vec<u32>,
    #[serde(flatten)]
    pub sampling: SamplingParams,
    pub speculate: Option<String>,
    /// Whether it had a constraint that excludes tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub constrained: bool,
    /// The source of that constraint, which whoever made it can read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Value>,
}

/// The rows of a sequence in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    /// Position of its first row.
    pub position: usize,
    /// Rows of known tokens.
    pub tokens: usize,
    /// Rows of drafted tokens.
    pub drafts: usize,
    /// Rows of the whole step.
    pub rows: usize,
    /// Sequences of the step.
    pub sequences: usize,
}

impl TraceRequest {
    pub(crate) fn of(request: &Request) -> Self {
        let constraint = request.constraint.as_ref().filter(|constraint| constraint.excludes());
        Self {
            prompt: request.prompt.clone(),
            max_tokens: request.max_tokens,
            min_tokens: request.min_tokens,
            stop_ids: request.stop_ids.clone(),
            sampling: request.sampling.clone(),
            speculate: request.speculate.map(|speculate| speculate.to_string()),
            constrained: constraint.is_some(),
            constraint: constraint.and_then(GrammarRef::source),
        }
    }

    /// Rebuilds the request, without its constraint and what made choices greedy.
    ///
    /// # Errors
    ///
    /// The field that cannot be read, as a message.
    fn request(&self) -> Result<Request, String> {
        let speculate = |text: &String| text.parse::<Speculate>();
        Ok(Request {
            prompt: self.prompt.clone(),
            sampling: self.sampling.clone(),
            max_tokens: self.max_tokens,
            min_tokens: self.min_tokens,
            stop_ids: self.stop_ids.clone(),
            speculate: self.speculate.as_ref().map(speculate).transpose()?,
            ..Request::default()
        })
    }
}

/// The first difference of two traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Number of generated tokens before it.
    pub at: usize,
    /// Description of both traces at that point.
    pub found: (String, String),
}

impl Trace {
    /// Rebuilds the request. Its choices are greedy where those of the trace were. `constraint` is
    /// made from the source in the trace, where it holds one.
    ///
    /// # Errors
    ///
    /// The field that cannot be read, as a message; also if the request had a constraint and none
    /// is given, as for traces of versions that did not store its source.
    pub fn request(&self, constraint: Option<GrammarRef>) -> Result<Request, String> {
        if self.request.constrained && constraint.is_none() {
            return Err("constraint: expected the source of the constraint that the request had, \
                        found none: an earlier version wrote the trace"
                .into());
        }
        let constraint = with_greedy_choices(constraint, &self.greedy);
        Ok(Request { constraint, ..self.request.request()? })
    }

    /// The first bitwise difference of two answers. A trace that was aborted agrees with any that
    /// continues it.
    pub fn divergence(&self, other: &Self) -> Option<Divergence> {
        let logits = self.logits.iter().zip(&other.logits).position(|(a, b)| a != b);
        let ids = self.ids.iter().zip(&other.ids).position(|(a, b)| a != b);
        let at = |at: usize, list: fn(&Self, usize) -> String| {
            Some(Divergence { at, found: (list(self, at), list(other, at)) })
        };
        if let Some(first) = logits.filter(|first| ids.is_none_or(|ids| *first <= ids)) {
            return at(first, |trace, at| format!("logits {}", trace.logits[at]));
        }
        if let Some(first) = ids {
            return at(first, |trace, at| format!("token {}", trace.ids[at]));
        }
        let whole = |trace: &Self| matches!(trace.finish.as_str(), "stop" | "length");
        let shorter = self.ids.len() != other.ids.len() || self.finish != other.finish;
        if whole(self) && whole(other) && shorter {
            let end = self.ids.len().min(other.ids.len());
            return at(end, |trace, _| format!("{} after {}", trace.finish, trace.ids.len()));
        }
        None
    }

    /// Reads a trace from a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no trace, or has another version.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = formats::read_text(path, MAX_BYTES).map_err(|error| error.to_string())?;
        let other = |error| format!("{name}: expected a trace, found otherwise: {error}");
        let TraceVersion { version } = serde_json::from_str(&text).map_err(other)?;
        if version != VERSION {
            return Err(format!(
                "{name}: expected version {VERSION} of traces, found {version}: bits are those of \
                 the version that wrote it"
            ));
        }
        serde_json::from_str(&text).map_err(other)
    }
}

/// `constraint` with the choices `at` greedy, whatever the sampling options say. The numbers of
/// choices ascend, and count from 0.
pub fn with_greedy_choices(constraint: Option<GrammarRef>, at: &[usize]) -> Option<GrammarRef> {
    if at.is_empty() {
        return constraint;
    }
    Some(GrammarRef::new(GreedyChoices { at: at.into(), inner: constraint }))
}

/// The choices of a trace that were greedy, in ascending order, around an optional grammar.
#[derive(Debug)]
struct GreedyChoices {
    at: Arc<[usize]>,
    inner: Option<GrammarRef>,
}

impl Grammar for GreedyChoices {
    fn start(&self) -> Box<dyn Constraint> {
        let inner = self.inner.as_ref().map(GrammarRef::start);
        Box::new(GreedyState { at: Arc::clone(&self.at), next: 0, inner })
    }

    fn excludes(&self) -> bool {
        self.inner.as_ref().is_some_and(GrammarRef::excludes)
    }

    fn source(&self) -> Option<Value> {
        self.inner.as_ref().and_then(GrammarRef::source)
    }
}

#[derive(Debug)]
struct GreedyState {
    at: Arc<[usize]>,
    /// The number of the next choice.
    next: usize,
    inner: Option<Box<dyn Constraint>>,
}

impl Constraint for GreedyState {
    fn mask(&mut self, allowed: &mut TokenSet) -> Result<Allowed, String> {
        self.inner.as_mut().map_or(Ok(Allowed::All), |inner| inner.mask(allowed))
    }

    fn greedy(&self) -> bool {
        self.at.binary_search(&self.next).is_ok()
    }

    fn accept(&mut self, id: u32) -> Result<(), String> {
        self.next += 1;
        self.inner.as_mut().map_or(Ok(()), |inner| inner.accept(id))
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), String> {
        self.next = self.next.checked_sub(tokens).ok_or("fewer tokens were accepted")?;
        self.inner.as_mut().map_or(Ok(()), |inner| inner.rollback(tokens))
    }

    fn is_complete(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_complete())
    }
}

/// Receives the traces of an engine.
pub type TraceSink = SyncSender<Trace>;

/// Writes each trace to a separate file of a folder, on a separate thread.
#[derive(Debug)]
pub struct TraceFiles {
    /// The sink of the traces.
    pub sink: TraceSink,
    writer: JoinHandle<()>,
}

impl TraceFiles {
    /// Creates the folder if it is missing.
    ///
    /// # Errors
    ///
    /// If the folder or the thread cannot be created.
    pub fn create(folder: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let (sink, traces) = sync_channel(PENDING);
        let folder = folder.to_owned();
        let writer = std::thread::Builder::new().name("gannet-traces".into());
        let writer = writer.spawn(move || write_files(&folder, &traces))?;
        Ok(Self { sink, writer })
    }

    /// Waits until the last sink is dropped and all traces are written, at most for `patience`.
    pub fn finish(self, patience: Duration) {
        drop(self.sink);
        let end = Instant::now() + patience;
        while !self.writer.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn write_files(folder: &Path, traces: &Receiver<Trace>) {
    for trace in traces {
        let path = folder.join(file_name(&trace.name));
        if let Err(error) = write(&path, &trace) {
            tracing::warn!("cannot write {}: {error}", path.display());
        }
    }
}

/// File name of a trace. Names come from clients, so all but safe characters are replaced.
fn file_name(name: &str) -> PathBuf {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
    let name: String = name.chars().take(128).map(safe).collect();
    PathBuf::from(name + ".json")
}

/// Writes a file beside `path` and renames it, so that readers see the whole file or none.
fn write(path: &Path, trace: &Trace) -> std::io::Result<()> {
    let aside = path.with_extension("incomplete");
    std::fs::write(&aside, serde_json::to_vec(trace)?)?;
    std::fs::rename(&aside, path)
}

/// Records the trace of one request.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub trace: Trace,
}

impl Recorder {
    pub fn new(runner: &Runner, request: &Request, number: u64) -> Self {
        let name = request.name.clone().unwrap_or_else(|| format!("request-{number}"));
        let adapters = request.adapters.as_ref().unwrap_or(runner.adapters());
        let trace = Trace {
            version: VERSION,
            name,
            model: runner.info.name.clone(),
            settings: TraceSettings::of(runner).adapted(adapters),
            request: TraceRequest::of(request),
            cached_tokens: 0,
            preemptions: 0,
            steps: Vec::new(),
            ids: Vec::new(),
            logits: Vec::new(),
            greedy: Vec::new(),
            finish: String::new(),
        };
        Self { trace }
    }

    /// Records a step. A step at an earlier position follows a preemption.
    pub fn step(&mut self, step: TraceStep) {
        let end = self.trace.steps.last().map_or(0, |last| last.position + last.tokens);
        self.trace.preemptions += u32::from(step.position < end);
        self.trace.steps.push(step);
    }

    /// Sends the trace, with the choices of the answer.
    pub fn finish(mut self, how: &str, choices: RecordedChoices, sink: &TraceSink) {
        how.clone_into(&mut self.trace.finish);
        self.trace.logits = choices.logits.iter().map(|hash| format!("{hash:016x}")).collect();
        self.trace.greedy = choices.greedy;
        if sink.try_send(self.trace).is_err() {
            tracing::warn!("a trace was dropped: traces are not written fast enough");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_as_they_went() {
        let sampling = SamplingParams {
            logit_bias: vec![(3, f32::NEG_INFINITY), (4, 0.1)],
            temperature: 0.7,
            seed: Some(u64::MAX),
            ..SamplingParams::default()
        };
        let speculate = Some(Speculate::Ngram(3));
        let request = Request { prompt: vec![1, 2], sampling, speculate, ..Request::default() };
        let json = serde_json::to_string(&TraceRequest::of(&request)).unwrap();
        let back: TraceRequest = serde_json::from_str(&json).unwrap();
        assert_eq!(back.request().unwrap(), request);
    }

    #[test]
    fn traces_of_fewer_parameters_are_read_with_the_others_off() {
        let request = Request { prompt: vec![1, 2], ..Request::default() };
        let mut json = serde_json::json!(TraceRequest::of(&request));
        assert!(json.as_object_mut().unwrap().remove("min_p").is_some());
        let back: TraceRequest = serde_json::from_value(json).unwrap();
        assert_eq!(back.request().unwrap(), request);
    }

    #[test]
    fn names_of_files_cannot_leave_their_folder() {
        assert_eq!(file_name("cmpl-1_a"), PathBuf::from("cmpl-1_a.json"));
        assert_eq!(file_name("../../x y"), PathBuf::from("______x_y.json"));
    }
}
