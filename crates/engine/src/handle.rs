//! The receiver of the engine: a cloneable handle that submits requests over a bounded channel,
//! and the stream of events each request gives. The engine thread holds the other end.

use crate::Metrics;
use crate::draft::{MAX_DRAFTED, Speculate};
use crate::request::{Event, Field, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// Events the engine may be ahead of a reader before it lets that sequence wait. The events of any
/// one step fit.
const EVENT_CAPACITY: usize = 64;

/// What the engine says about the model it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Name for people and for API clients.
    pub name: String,
    /// Family of the model, such as `qwen3`.
    pub architecture: String,
    /// Most tokens of prompt and answer together.
    pub context_length: usize,
    /// Number of logits.
    pub vocab_size: usize,
    /// Tokens that the KV cache holds, of all sequences together.
    pub cache_tokens: usize,
}

/// Why a request was refused at the receiver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The prompt leaves no room for an answer.
    #[error(
        "a prompt of {prompt_tokens} tokens with room for an answer exceeds the available context size \
         of {context_length} tokens"
    )]
    ContextLength {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens the context holds, answer included.
        context_length: usize,
    },
    /// A field of the request is invalid.
    #[error("{message}")]
    Invalid {
        /// The field.
        field: Field,
        /// What is wrong with it.
        message: String,
    },
    /// Too many requests wait already.
    #[error("too many requests are waiting ({0})")]
    QueueFull(usize),
    /// The engine thread has ended.
    #[error("the engine has stopped")]
    Stopped,
}

/// A request on its way to the engine thread.
#[derive(Debug)]
pub struct Submission {
    /// What is asked.
    pub request: Request,
    /// Where events go. Closed when the caller lost interest.
    pub events: mpsc::Sender<Event>,
    /// When it was submitted.
    pub submitted: std::time::Instant,
    /// Its place among those that wait; given up when its computation begins.
    pub place: Option<QueueSlot>,
}

/// A place in the queue, counted for as long as it lives.
#[derive(Debug)]
pub struct QueueSlot(Arc<AtomicUsize>);

impl QueueSlot {
    /// A place among at most `most`.
    fn take(waiting: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let one_more = |now: usize| (now < most).then_some(now + 1);
        waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Self(Arc::clone(waiting)))
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Submits requests. Clones share one engine; the engine ends when the last is dropped.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    info: Arc<ModelInfo>,
    submissions: mpsc::Sender<Submission>,
    alive: Arc<AtomicBool>,
    metrics: Metrics,
    /// Requests that wait, in the channel or in the engine.
    waiting: Arc<AtomicUsize>,
}

/// The engine's end of the receiver.
#[derive(Debug)]
pub struct RequestReceiver {
    /// Requests in the order they came.
    pub submissions: mpsc::Receiver<Submission>,
    /// What the engine reports of its work.
    pub metrics: Metrics,
    alive: Arc<AtomicBool>,
}

impl Drop for RequestReceiver {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Release);
    }
}

/// The events of one request. Dropping it cancels the request, and only that.
#[derive(Debug)]
pub struct Generation {
    events: mpsc::Receiver<Event>,
}

/// A handle and the engine's end, with room for `queue` waiting requests.
pub fn request_channel(info: ModelInfo, queue: usize) -> (EngineHandle, RequestReceiver) {
    let (sender, receiver) = mpsc::channel(queue.max(1));
    let alive = Arc::new(AtomicBool::new(true));
    let metrics = Metrics::default();
    let handle = EngineHandle {
        info: Arc::new(info),
        submissions: sender,
        alive: Arc::clone(&alive),
        metrics: metrics.clone(),
        waiting: Arc::default(),
    };
    (handle, RequestReceiver { submissions: receiver, metrics, alive })
}

impl EngineHandle {
    /// The model this engine runs.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Whether the engine thread still runs.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Requests that may wait.
    pub fn queue(&self) -> usize {
        self.submissions.max_capacity()
    }

    /// What the engine has counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Waits until the engine thread has ended.
    pub async fn stopped(&self) {
        self.submissions.closed().await;
    }

    /// Checks `request` against the model's limits and queues it.
    pub fn submit(&self, request: Request) -> Result<Generation, SubmitError> {
        self.check(&request)?;
        let most = self.queue();
        let full = || {
            self.metrics.rejected();
            SubmitError::QueueFull(most)
        };
        let place = Some(QueueSlot::take(&self.waiting, most).ok_or_else(full)?);
        let (events, receiver) = mpsc::channel(EVENT_CAPACITY);
        let submitted = std::time::Instant::now();
        match self.submissions.try_send(Submission { request, events, submitted, place }) {
            Ok(()) => Ok(Generation { events: receiver }),
            Err(mpsc::error::TrySendError::Full(_)) => Err(full()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(SubmitError::Stopped),
        }
    }

    /// Checks `request` without queueing it.
    pub fn check(&self, request: &Request) -> Result<(), SubmitError> {
        let context_length = self.info.context_length;
        let prompt_tokens = request.prompt.len();
        if prompt_tokens == 0 {
            return Err(invalid(Field::Prompt, "the prompt is empty"));
        }
        let answer = usize::from(!request.is_prompt_only());
        if prompt_tokens + answer > context_length {
            return Err(SubmitError::ContextLength { prompt_tokens, context_length });
        }
        if request.embed.is_some() && request.prompt_logprobs.is_some() {
            let message = "a vector and log probabilities of one prompt take two requests";
            return Err(invalid(Field::Parameter("embed"), message));
        }
        let vocab = self.info.vocab_size;
        if let Some(id) = request.prompt.iter().find(|&&id| id as usize >= vocab) {
            let message = format!("prompt holds token id {id}, but the model has {vocab} tokens");
            return Err(invalid(Field::Prompt, message));
        }
        let most = request.speculate.map_or(0, Speculate::most);
        if most > MAX_DRAFTED {
            let message = format!("speculate must guess at most {MAX_DRAFTED} tokens, not {most}");
            return Err(invalid(Field::Parameter("speculate"), message));
        }
        if request.embed.is_some() && request.constraint.is_some() {
            return Err(invalid(Field::Constraint, "a vector cannot be held to a grammar"));
        }
        request.sampling.check(vocab).map_err(|(field, message)| invalid(field, message))
    }
}

fn invalid(field: Field, message: impl Into<String>) -> SubmitError {
    SubmitError::Invalid { field, message: message.into() }
}

impl Generation {
    /// The next event, or `None` after the last one, or if the engine ended without it.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// As `next`, blocking the thread. Not to be called from async code.
    pub fn next_blocking(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }
}
