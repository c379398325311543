//! Sequences that are led by their caller: it pushes tokens, gets logits, and chooses the next
//! tokens.
//!
//! A led sequence is computed in the steps of all others, so that its logits have the bits of a
//! request with the same tokens. While its caller thinks, it takes no time, and other sequences may
//! take its blocks; what was computed of it stays in the prefix cache, as far as there is memory.
//!
//! The handle knows all tokens, and the engine as many as it has computed. Where the engine has
//! none, at the beginning and after an error, the next push begins a sequence with all of them.

use crate::observe::outcome::Outcome;
use crate::request::fields::{Event, Request};
use crate::request::handle::{EVENT_CAPACITY, EngineHandle, Submission};
use crate::request::led_turn::{LedBeginning, LedId, LedMessage, LedTurn};
use backend::AdapterSet;
use sched::PromptOutput;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender, WeakSender};

/// Time without a push after which a led sequence ends, unless its options say otherwise.
const IDLE: Duration = Duration::from_secs(600);

/// The outputs of a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Want {
    /// None: the tokens are computed and stay in the cache.
    Nothing,
    /// The logits after the last token.
    #[default]
    Last,
    /// The logits after each token.
    All,
    /// The hidden state of each token, after the last norm.
    Hidden,
}

impl Want {
    fn output(self) -> PromptOutput {
        match self {
            Self::Nothing => PromptOutput::Nothing,
            Self::Last => PromptOutput::LastLogits,
            Self::All => PromptOutput::AllLogits,
            Self::Hidden => PromptOutput::HiddenStates,
        }
    }
}

/// Options of a led sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct LeadOptions {
    /// The part of the prefix cache, as [`Request::space`].
    pub space: [u8; 16],
    /// The adapters, as [`Request::adapters`].
    pub adapters: Option<AdapterSet>,
    /// The priority, as [`Request::priority`].
    pub priority: i32,
    /// The tenant, as [`Request::tenant`].
    pub tenant: u64,
    /// The user, as [`Request::user`].
    pub user: u64,
    /// Maximum number of tokens; `None` for as many as the context holds. In models whose positions
    /// are scaled by the length of a sequence it decides, as the prompt and the maximum number of
    /// generated tokens of a request do together.
    pub max_tokens: Option<usize>,
    /// Time without a push after which the sequence ends, and the next push is an error.
    pub idle: Duration,
}

impl Default for LeadOptions {
    fn default() -> Self {
        Self {
            space: [0; 16],
            adapters: None,
            priority: 0,
            tenant: 0,
            user: 0,
            max_tokens: None,
            idle: IDLE,
        }
    }
}

/// Why a led sequence does not do what was requested. It has the tokens that it had before, and the
/// next push computes what is not in the cache of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LedError {
    /// An argument is out of range.
    #[error("{0}")]
    Invalid(String),
    /// The sequence would exceed its maximum number of tokens.
    #[error("a sequence of {tokens} tokens exceeds its limit of {most}")]
    TooLong {
        /// Tokens that it would have.
        tokens: usize,
        /// Its limit.
        most: usize,
    },
    /// Nothing was pushed for this time.
    #[error("the sequence has ended, because nothing was pushed to it for {} s", .0.as_secs_f64())]
    Idle(Duration),
    /// The computation failed.
    #[error("{0}")]
    Failed(String),
    /// The engine thread has ended.
    #[error("the engine has stopped")]
    Stopped,
}

/// The outputs of a push: rows of logits, or of hidden states.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs {
    values: Vec<f32>,
    width: usize,
}

impl Outputs {
    /// The rows, each of [`width`](Self::width) values; as many as were wanted.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.width)
    }

    /// Values of a row: the size of the vocabulary, or of a hidden state.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All rows, one after another.
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }
}

/// A sequence that its caller leads; see the head of this file. The engine runs on while a led
/// sequence exists.
#[derive(Debug)]
pub struct Led {
    handle: EngineHandle,
    options: LeadOptions,
    most: usize,
    tokens: Vec<u32>,
    running: Option<Running>,
    pending: Option<Pending>,
}

/// The engine's part of a led sequence.
#[derive(Debug)]
struct Running {
    id: LedId,
    events: Receiver<Event>,
    /// The engine has the other end, and ends the sequence by dropping it.
    sender: WeakSender<Event>,
}

/// A push whose outputs are not complete.
#[derive(Debug)]
struct Pending {
    /// Tokens before it.
    before: usize,
    outputs: Outputs,
}

impl EngineHandle {
    /// Begins a sequence that the caller leads, without tokens.
    pub fn lead(&self, options: LeadOptions) -> Led {
        let context = self.info.context_length;
        let most = options.max_tokens.unwrap_or(context).min(context);
        let (handle, tokens) = (self.clone(), Vec::new());
        Led { handle, options, most, tokens, running: None, pending: None }
    }
}

impl Led {
    /// The tokens of the sequence, with those of a push that is not complete.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether the sequence has no token.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Appends tokens and waits for their outputs. Must not be called from async code.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start) and [`wait`](Self::wait).
    pub fn push(&mut self, tokens: &[u32], want: Want) -> Result<Outputs, LedError> {
        self.start(tokens, want)?;
        self.wait()
    }

    /// Appends tokens and returns at once. Must not be called from async code.
    ///
    /// # Errors
    ///
    /// [`LedError::Invalid`] without tokens, for an id that the model does not have, or while
    /// another push is not complete; [`LedError::TooLong`]; [`LedError::Stopped`].
    pub fn start(&mut self, tokens: &[u32], want: Want) -> Result<(), LedError> {
        self.check(tokens)?;
        let submission = self.add(tokens, want);
        submission.map_or(Ok(()), |it| self.send(it)).map_err(|error| self.give_up(error))
    }

    /// Appends tokens to several sequences of one engine and returns at once: no step computes some
    /// of them without the others, as long as they fit into one. Must not be called from async
    /// code.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start), of the first sequence that has one; [`LedError::Invalid`] for
    /// sequences of different engines. No sequence is changed then.
    pub fn start_together<'a>(
        pushes: impl IntoIterator<Item = (&'a mut Self, &'a [u32], Want)>,
    ) -> Result<(), LedError> {
        let mut pushes: Vec<_> = pushes.into_iter().collect();
        for (led, tokens, _) in &pushes {
            led.check(tokens)?;
        }
        let Some((first, ..)) = pushes.first() else { return Ok(()) };
        let channel = first.handle.submissions.clone();
        if !pushes.iter().all(|(led, ..)| led.handle.submissions.same_channel(&channel)) {
            return Err(LedError::Invalid("the sequences are of different engines".into()));
        }
        let submissions =
            pushes.iter_mut().filter_map(|(led, tokens, want)| led.add(tokens, *want));
        let mut submissions = submissions.collect::<Vec<_>>().into_iter();
        let Some(mut first) = submissions.next() else { return Ok(()) };
        first.together = submissions.collect();
        let sent = pushes[0].0.send(first);
        sent.inspect_err(|_| {
            pushes.iter_mut().for_each(|(led, ..)| drop(led.give_up(LedError::Stopped)));
        })
    }

    /// Appends tokens that were checked. Returns what is to be sent to the engine: nothing if it
    /// has ended the sequence, which `wait` reads.
    fn add(&mut self, tokens: &[u32], want: Want) -> Option<Submission> {
        let before = self.tokens.len();
        let width = match want {
            Want::Hidden => self.handle.info.hidden_size,
            _ => self.handle.info.vocab_size,
        };
        self.tokens.extend_from_slice(tokens);
        self.pending = Some(Pending { before, outputs: Outputs { values: Vec::new(), width } });
        let Some(running) = &self.running else { return Some(self.begin(before, want)) };
        let turn = LedMessage::Continue(running.id, LedTurn::Push(want.output()));
        let prompt = tokens.to_vec();
        let events = running.sender.upgrade()?;
        Some(submission(Request { prompt, ..Request::default() }, events, turn))
    }

    fn check(&self, tokens: &[u32]) -> Result<(), LedError> {
        let vocab = self.handle.info.vocab_size;
        self.check_complete()?;
        if tokens.is_empty() {
            return Err(LedError::Invalid("a push needs at least one token".into()));
        }
        if let Some(id) = tokens.iter().find(|&&id| id as usize >= vocab) {
            let message = format!("token id {id} is pushed, but the model has {vocab} tokens");
            return Err(LedError::Invalid(message));
        }
        let (tokens, most) = (self.tokens.len() + tokens.len(), self.most);
        if tokens > most { Err(LedError::TooLong { tokens, most }) } else { Ok(()) }
    }

    fn check_complete(&self) -> Result<(), LedError> {
        match self.pending {
            None => Ok(()),
            Some(_) => Err(LedError::Invalid("the push before is not complete".into())),
        }
    }

    /// What has the engine begin a sequence of all tokens, of which the first `known` need no
    /// outputs.
    fn begin(&mut self, known: usize, want: Want) -> Submission {
        let LeadOptions { space, priority, tenant, user, idle, .. } = self.options;
        let adapters = self.options.adapters.clone();
        let prompt = self.tokens.clone();
        let request =
            Request { prompt, space, adapters, priority, tenant, user, ..Request::default() };
        let id = LedId::unused();
        let (output, capacity) = (want.output(), self.most);
        let beginning = LedBeginning { id, output, known, capacity, idle };
        let (sender, events) = mpsc::channel(EVENT_CAPACITY);
        self.running = Some(Running { id, events, sender: sender.downgrade() });
        submission(request, sender, LedMessage::Begin(beginning))
    }

    fn send(&self, submission: Submission) -> Result<(), LedError> {
        let stopped = |_| LedError::Stopped;
        match self.handle.submissions.try_send(submission) {
            Ok(()) => Ok(()),
            // The engine takes all that is there before each step.
            Err(TrySendError::Full(submission)) => {
                self.handle.submissions.blocking_send(submission).map_err(stopped)
            }
            Err(TrySendError::Closed(_)) => Err(LedError::Stopped),
        }
    }

    /// Waits for the outputs of the last push.
    ///
    /// # Errors
    ///
    /// [`LedError::Invalid`] if there was none since the last outputs; [`LedError::Idle`],
    /// [`LedError::Failed`] and [`LedError::Stopped`].
    pub fn wait(&mut self) -> Result<Outputs, LedError> {
        loop {
            if let Some(outputs) = self.wait_for(Duration::from_secs(3600))? {
                return Ok(outputs);
            }
        }
    }

    /// As [`wait`](Self::wait), but returns `None` if the outputs are not complete after `most`.
    /// Another call continues to wait.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn wait_for(&mut self, most: Duration) -> Result<Option<Outputs>, LedError> {
        let end = Instant::now() + most;
        let (Some(pending), Some(running)) = (&mut self.pending, &mut self.running) else {
            return Err(LedError::Invalid("nothing was pushed".into()));
        };
        loop {
            match receive(&mut running.events, end) {
                Poll::Pending => return Ok(None),
                Poll::Ready(Some(Event::Logits(rows) | Event::HiddenStates(rows))) => {
                    match pending.outputs.values.is_empty() {
                        true => pending.outputs.values = rows,
                        false => pending.outputs.values.extend_from_slice(&rows),
                    }
                }
                Poll::Ready(Some(Event::Pushed)) => {
                    return Ok(self.pending.take().map(|pending| pending.outputs));
                }
                Poll::Ready(Some(Event::Finished(finished))) => {
                    let error = match finished.outcome {
                        Outcome::TimedOut(idle) => LedError::Idle(idle),
                        Outcome::Failed(error) => LedError::Failed(error),
                        outcome => LedError::Failed(outcome.label().into()),
                    };
                    return Err(self.give_up(error));
                }
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => return Err(self.give_up(LedError::Stopped)),
            }
        }
    }

    /// Forgets the push that failed, and the engine's part of the sequence.
    fn give_up(&mut self, error: LedError) -> LedError {
        if let Some(Pending { before, .. }) = self.pending.take() {
            self.tokens.truncate(before);
        }
        self.running = None;
        error
    }

    /// Shortens the sequence to its first `len` tokens. What was computed of these is not computed
    /// again, as far as the model can go back: states go back to their last snapshot.
    ///
    /// # Errors
    ///
    /// [`LedError::Invalid`] if it has fewer tokens, or a push is not complete;
    /// [`LedError::Stopped`].
    pub fn truncate(&mut self, len: usize) -> Result<(), LedError> {
        self.check_complete()?;
        if len > self.tokens.len() {
            let message = format!("a sequence of {} tokens has no first {len}", self.tokens.len());
            return Err(LedError::Invalid(message));
        }
        self.tokens.truncate(len);
        self.turn(LedTurn::Truncate(len))
    }

    /// A second sequence with the same tokens and options. Both share full blocks of the cache, and
    /// each has a copy of the last.
    ///
    /// # Errors
    ///
    /// As [`truncate`](Self::truncate).
    pub fn fork(&mut self) -> Result<Self, LedError> {
        self.truncate(self.tokens.len())?;
        let (handle, options) = (self.handle.clone(), self.options.clone());
        let (tokens, most) = (self.tokens.clone(), self.most);
        Ok(Self { handle, options, most, tokens, running: None, pending: None })
    }

    /// Sends a turn without tokens, if the engine has the sequence.
    fn turn(&self, turn: LedTurn) -> Result<(), LedError> {
        let Some(running) = &self.running else { return Ok(()) };
        let Some(events) = running.sender.upgrade() else { return Ok(()) };
        let turn = LedMessage::Continue(running.id, turn);
        self.send(submission(Request::default(), events, turn))
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        let Some(running) = &self.running else { return };
        let Some(events) = running.sender.upgrade() else { return };
        let end = LedMessage::Continue(running.id, LedTurn::End);
        let end = submission(Request::default(), events, end);
        // An engine that has more to take looks for callers that are gone anyway.
        let _ = self.handle.submissions.try_send(end);
    }
}

fn submission(request: Request, events: Sender<Event>, message: LedMessage) -> Submission {
    let (submitted, led) = (Instant::now(), Some(message));
    Submission { request, events, submitted, queue_slot: None, led, together: Vec::new() }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The next event, `None` after the last; pending if there is none until `end`.
fn receive(events: &mut Receiver<Event>, end: Instant) -> Poll<Option<Event>> {
    if let Ok(event) = events.try_recv() {
        return Poll::Ready(Some(event));
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        let event = events.poll_recv(&mut context);
        let left = end.saturating_duration_since(Instant::now());
        if event.is_ready() || left.is_zero() {
            return event;
        }
        std::thread::park_timeout(left);
    }
}
