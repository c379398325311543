//! Submission of requests: a cloneable handle that sends them over a bounded channel to the engine
//! thread, and the stream of events that each request gets.

use crate::observe::drafter::MAX_DRAFTED;
use crate::observe::metrics::Metrics;
use crate::request::embed::Embed;
use crate::request::fields::{Event, Field, MAX_MARKS, Request};
use crate::request::led_turn::LedMessage;
use crate::request::speculate::Speculate;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Events that the engine may be ahead of a reader before the sequence has to wait. Holds more than
/// the events of one step.
pub(super) const EVENT_CAPACITY: usize = 64 + MAX_DRAFTED;

/// The model that an engine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Name shown to people and API clients.
    pub name: String,
    /// Family of the model, such as `qwen3`.
    pub architecture: String,
    /// Name of the arithmetic: what decides the bits of products.
    pub arithmetic: String,
    /// Maximum number of tokens of prompt and answer together.
    pub context_length: usize,
    /// Number of logits.
    pub vocab_size: usize,
    /// Number of tokens that the KV cache holds for all sequences together.
    pub cache_tokens: usize,
    /// What the model computes.
    pub task: ModelTask,
    /// Number of values of an embedding.
    pub hidden_size: usize,
    /// Number of types of tokens; at least 1.
    pub token_types: usize,
    /// Whether requests should have [`Request::marks`]: the model keeps states, or some layers see
    /// rows through a window, so that a prefix is not found at every position.
    pub uses_marks: bool,
}

/// What a model computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelTask {
    /// Text, and embeddings of texts.
    #[default]
    Generate,
    /// Embeddings of texts.
    Embed,
    /// Scores of texts.
    Score {
        /// Number of scores of a text.
        labels: usize,
    },
}

/// Why a request was rejected when it was submitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The prompt fills the context.
    #[error(
        "a prompt of {prompt_tokens} tokens{} exceeds the available context size of {context_length} \
         tokens",
        answer_room(.prompt_tokens, .context_length)
    )]
    ContextLength {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Context length in tokens, answer included.
        context_length: usize,
    },
    /// A field of the request is invalid.
    #[error("{message}")]
    Invalid {
        /// The field.
        field: Field,
        /// The reason.
        message: String,
    },
    /// This many requests, the maximum, are waiting.
    #[error("too many requests are waiting ({0})")]
    QueueFull(usize),
    /// The engine thread has ended.
    #[error("the engine has stopped")]
    Stopped,
}

/// What a prompt that fills the context exactly leaves no position for.
fn answer_room(prompt_tokens: &usize, context_length: &usize) -> &'static str {
    if prompt_tokens > context_length { "" } else { " with room for an answer" }
}

/// A request on its way to the engine thread.
#[derive(Debug)]
pub struct Submission {
    /// The request.
    pub request: Request,
    /// Channel for the events; closed when the caller dropped the generation.
    pub events: mpsc::Sender<Event>,
    /// Time of submission.
    pub submitted: std::time::Instant,
    /// The slot in the queue, released when the request is admitted.
    pub queue_slot: Option<QueueSlot>,
    /// Present if the caller leads the sequence: of the request the prompt counts, and where a
    /// sequence begins, what decides about its bits and its place among others.
    pub led: Option<LedMessage>,
    /// Further ones, which the engine takes before its next step.
    pub together: Vec<Self>,
}

/// A slot in the queue, taken until it is dropped.
pub type QueueSlot = OwnedSemaphorePermit;

/// Submits requests to an engine. Clones share the engine, which ends when the last is dropped.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    /// The model this engine runs.
    pub info: Arc<ModelInfo>,
    pub(super) submissions: mpsc::Sender<Submission>,
    /// The metrics of the engine.
    pub metrics: Metrics,
    /// Slots for requests that wait, in the channel or in the engine.
    slots: Arc<Semaphore>,
}

/// The engine's end of the channel.
#[derive(Debug)]
pub struct RequestReceiver {
    /// Requests in order of submission.
    pub submissions: mpsc::Receiver<Submission>,
    /// Metrics to which the engine reports.
    pub metrics: Metrics,
}

/// The events of one request. Dropping it cancels that request.
#[derive(Debug)]
pub struct Generation {
    events: mpsc::Receiver<Event>,
}

/// Creates a handle and the engine's end for at most `queue` waiting requests.
pub fn request_channel(info: ModelInfo, queue: usize) -> (EngineHandle, RequestReceiver) {
    let (sender, submissions) = mpsc::channel(queue.max(1));
    let metrics = Metrics::default();
    let handle = EngineHandle {
        info: Arc::new(info),
        submissions: sender,
        metrics: metrics.clone(),
        slots: Arc::new(Semaphore::new(queue.max(1))),
    };
    (handle, RequestReceiver { submissions, metrics })
}

impl EngineHandle {
    /// Whether the engine thread still runs.
    pub fn is_alive(&self) -> bool {
        !self.submissions.is_closed()
    }

    /// Maximum number of waiting requests.
    pub fn queue(&self) -> usize {
        self.submissions.max_capacity()
    }

    /// Waits until the engine thread has ended.
    pub async fn stopped(&self) {
        self.submissions.closed().await;
    }

    /// Checks `request` against the model's limits and queues it.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check); [`SubmitError::QueueFull`] and [`SubmitError::Stopped`].
    pub fn submit(&self, request: Request) -> Result<Generation, SubmitError> {
        self.check(&request)?;
        let max = self.queue();
        let full = || {
            self.metrics.rejected();
            SubmitError::QueueFull(max)
        };
        let queue_slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| full())?;
        let queue_slot = Some(queue_slot);
        let (events, receiver) = mpsc::channel(EVENT_CAPACITY);
        let submitted = std::time::Instant::now();
        let (led, together) = (None, Vec::new());
        let submission = Submission { request, events, submitted, queue_slot, led, together };
        match self.submissions.try_send(submission) {
            Ok(()) => Ok(Generation { events: receiver }),
            Err(mpsc::error::TrySendError::Full(_)) => Err(full()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(SubmitError::Stopped),
        }
    }

    /// Checks `request` without queueing it.
    ///
    /// # Errors
    ///
    /// [`SubmitError::ContextLength`] for a prompt that is too long, [`SubmitError::Invalid`] for a
    /// field out of range.
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
        check_outputs(request)?;
        let vocab = self.info.vocab_size;
        if let Some(id) = request.prompt.iter().find(|&&id| id as usize >= vocab) {
            let message = format!("prompt holds token id {id}, but the model has {vocab} tokens");
            return Err(invalid(Field::Prompt, message));
        }
        self.check_task(request)?;
        check_prompt_logprobs(request)?;
        check_marks(request)?;
        let max = request.speculate.map_or(0, Speculate::max);
        if max > MAX_DRAFTED {
            let message = format!("speculate must draft at most {MAX_DRAFTED} tokens, not {max}");
            return Err(invalid(Field::Parameter("speculate"), message));
        }
        request.sampling.check(vocab).map_err(|(field, message)| invalid(field, message))
    }

    /// Checks that the model computes what is requested.
    fn check_task(&self, request: &Request) -> Result<(), SubmitError> {
        let ModelInfo { task, hidden_size, token_types, .. } = *self.info;
        let Request { prompt, types, .. } = request;
        let problem = match (task, request.embed) {
            (ModelTask::Embed, None) => "the model computes embeddings and generates no text",
            (ModelTask::Score { .. }, None) => "the model scores texts and generates none",
            (ModelTask::Score { .. }, Some(Embed { scores: false, .. })) => {
                "the model scores texts and computes no embeddings"
            }
            (ModelTask::Generate | ModelTask::Embed, Some(Embed { scores: true, .. })) => {
                "the model has no head that scores texts"
            }
            _ => "",
        };
        if !problem.is_empty() {
            return Err(invalid(Field::Parameter("model"), problem));
        }
        let dimensions = request.embed.and_then(|embed| embed.dimensions);
        if let Some(found) = dimensions.filter(|found| !(1..=hidden_size).contains(found)) {
            let message = format!("dimensions must be from 1 to {hidden_size}, not {found}");
            return Err(invalid(Field::Parameter("dimensions"), message));
        }
        let known = types.iter().all(|&id| (id as usize) < token_types);
        if !types.is_empty() && (types.len() != prompt.len() || !known) {
            let (count, tokens) = (types.len(), prompt.len());
            let message = format!(
                "types must be one below {token_types} for each of {tokens} tokens, not {count}"
            );
            return Err(invalid(Field::Parameter("types"), message));
        }
        Ok(())
    }
}

/// Checks that at most one kind of output of the prompt is requested, and no constraint with one
/// that replaces the answer.
fn check_outputs(request: &Request) -> Result<(), SubmitError> {
    let Request { embed, prompt_logprobs, logits, constraint, .. } = request;
    let parameter = |message: &str| Err(invalid(Field::Parameter("embed"), message));
    match (embed.is_some(), prompt_logprobs.is_some(), *logits) {
        (true, true, _) => {
            parameter("an embedding and prompt log probabilities cannot be requested together")
        }
        (true, _, true) => parameter("an embedding and logits cannot be requested together"),
        (_, true, true) => {
            let message = "logits and prompt log probabilities cannot be requested together";
            Err(invalid(Field::Parameter("logits"), message))
        }
        (true, ..) if constraint.is_some() => {
            Err(invalid(Field::Constraint, "an embedding cannot be constrained by a grammar"))
        }
        (.., true) if constraint.is_some() => {
            Err(invalid(Field::Constraint, "logits cannot be constrained by a grammar"))
        }
        _ => Ok(()),
    }
}

fn check_prompt_logprobs(request: &Request) -> Result<(), SubmitError> {
    let Request { prompt_logprobs, prompt_logprobs_from: from, prompt, .. } = request;
    if *from == 0 || (prompt_logprobs.is_some() && *from < prompt.len()) {
        return Ok(());
    }
    let message = match prompt_logprobs {
        Some(_) => format!("must be below the {} tokens of the prompt, not {from}", prompt.len()),
        None => "needs log probabilities of the prompt".to_owned(),
    };
    let message = format!("prompt_logprobs_from {message}");
    Err(invalid(Field::Parameter("prompt_logprobs_from"), message))
}

fn check_marks(request: &Request) -> Result<(), SubmitError> {
    let Request { marks, prompt, .. } = request;
    let ascending = marks.windows(2).all(|pair| pair[0] < pair[1]);
    let within = marks.iter().all(|mark| (1..prompt.len()).contains(mark));
    if ascending && within && marks.len() <= MAX_MARKS {
        return Ok(());
    }
    let message = format!(
        "marks must be at most {MAX_MARKS} ascending positions within the {} tokens of the prompt, \
         not {marks:?}",
        prompt.len()
    );
    Err(invalid(Field::Parameter("marks"), message))
}

fn invalid(field: Field, message: impl Into<String>) -> SubmitError {
    SubmitError::Invalid { field, message: message.into() }
}

impl Generation {
    /// Receives the next event; `None` after the last one or if the engine has ended.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Like `next`, but blocks the thread. Must not be called from async code.
    pub fn next_blocking(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }
}
