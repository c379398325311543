//! The running answers to one request: their events in one stream, each tagged with its choice.
//!
//! Invariant: dropping [`Choices`] cancels every answer that still runs, at once. A client that
//! reads slowly is buffered, and given up after a while; the engine never waits for it longer.

use crate::generate::transcript::Transcript;
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::observability::http::HttpMetrics;
use crate::http::request::RequestId;
use crate::http::shutdown::Phase;
use api::{Done, Prepared, RequestOptions, TextEvent, TextStream, Usage};
use axum::http::StatusCode;
use tokio::sync::mpsc;

/// Events a client may be behind before its engine sequence has to wait.
const BUFFERED_EVENTS: usize = 1024;

/// The outcome where a client left.
const CANCELLED: &str = "cancelled";

/// An event of the choice with this index.
type Tagged = (usize, TextEvent);
type Sender = mpsc::Sender<Result<Tagged, HttpError>>;

/// The ids of a request and of its answer.
#[derive(Clone, Debug)]
pub(crate) struct RequestNames {
    pub request: RequestId,
    pub answer: String,
}

/// The answers to one request. A prompt's choices follow each other.
#[derive(Debug)]
pub(crate) struct Choices {
    events: mpsc::Receiver<Result<Tagged, HttpError>>,
    count: usize,
    per_prompt: usize,
    log: RequestLog,
}

/// The log line of a request, written when it ends or is dropped.
#[derive(Debug)]
struct RequestLog {
    names: RequestNames,
    http: HttpMetrics,
    running: usize,
    failed: bool,
    /// Why choices ended, each reason once.
    finish: Vec<&'static str>,
    usage: Usage,
    /// Pieces of text of each choice that has not ended: about as many as tokens.
    heard: Vec<usize>,
    transcript: Option<Transcript>,
    /// The longest wait.
    queued_s: f64,
    prefill_s: f64,
    decode_s: f64,
}

impl Choices {
    /// Submits every prompt `per_prompt` times; all of them are queued, or none.
    pub fn start(
        prompts: &[Prepared],
        per_prompt: usize,
        names: RequestNames,
        options: &RequestOptions,
        app: &App,
    ) -> Result<Self, api::ApiError> {
        let (sender, events) = mpsc::channel(BUFFERED_EVENTS);
        let each = prompts.iter().flat_map(|prompt| (0..per_prompt).map(move |n| (prompt, n)));
        let start = |(index, (prompt, n)): (usize, (&Prepared, usize))| {
            let name = Some(format!("{}-{index}", names.answer));
            app.service.start(prompt, n, &RequestOptions { name, ..options.clone() })
        };
        let streams: Result<Vec<TextStream>, _> = each.enumerate().map(start).collect();
        let streams = streams?;
        let count = streams.len();
        for (index, stream) in streams.into_iter().enumerate() {
            tokio::spawn(pump(index, stream, sender.clone(), app.clone()));
        }
        names.request.spend(prompts.iter().map(|prompt| prompt.prompt().len()).sum());
        let transcript = app
            .options
            .log_prompts
            .then(|| Transcript::begin(&app.service, &names.request.0, prompts, count));
        let log = RequestLog::new(names, count, transcript, app.observability.http.clone());
        Ok(Self { events, count, per_prompt, log })
    }

    /// How many answers each prompt gets.
    pub fn per_prompt(&self) -> usize {
        self.per_prompt
    }

    /// How many answers there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The next event of any choice; `None` when all have ended. The last event of a choice is
    /// `Done`; an error ends them all.
    pub async fn next(&mut self) -> Option<Result<Tagged, HttpError>> {
        match self.events.recv().await {
            Some(Ok((index, TextEvent::Done(done)))) => {
                self.log.done(index, &done, index.is_multiple_of(self.per_prompt));
                Some(Ok((index, TextEvent::Done(done))))
            }
            Some(Ok((index, event))) => {
                self.log.hear(index, &event);
                Some(Ok((index, event)))
            }
            Some(Err(error)) => Some(Err(self.fail(error))),
            None if self.log.running > 0 && !self.log.failed => Some(Err(self.fail(unread()))),
            None => None,
        }
    }

    fn fail(&mut self, error: HttpError) -> HttpError {
        self.log.failed = true;
        self.events.close();
        error
    }

    /// Tokens of the choices that have ended, every prompt counted once.
    pub fn usage(&self) -> &Usage {
        &self.log.usage
    }
}

impl RequestLog {
    fn new(
        names: RequestNames,
        running: usize,
        transcript: Option<Transcript>,
        http: HttpMetrics,
    ) -> Self {
        http.opened();
        Self {
            names,
            http,
            running,
            failed: false,
            finish: Vec::new(),
            usage: Usage::default(),
            heard: vec![0; running],
            transcript,
            queued_s: 0.0,
            prefill_s: 0.0,
            decode_s: 0.0,
        }
    }

    fn hear(&mut self, index: usize, event: &TextEvent) {
        match event {
            TextEvent::Content(delta) | TextEvent::Reasoning(delta) => {
                self.heard[index] += 1;
                if let Some(transcript) = &mut self.transcript {
                    transcript.add(index, &delta.text);
                }
            }
            TextEvent::Call(_) => self.heard[index] += 1,
            _ => {}
        }
    }

    fn done(&mut self, index: usize, done: &Done, first_of_prompt: bool) {
        self.running -= 1;
        self.heard[index] = 0;
        self.usage.completion_tokens += done.usage.completion_tokens;
        self.usage.reasoning_tokens += done.usage.reasoning_tokens;
        self.usage.drafted_tokens += done.usage.drafted_tokens;
        self.usage.accepted_tokens += done.usage.accepted_tokens;
        if first_of_prompt {
            self.usage.prompt_tokens += done.usage.prompt_tokens;
            self.usage.cached_tokens += done.usage.cached_tokens;
        }
        let reason = done.finish.reason();
        if !self.finish.contains(&reason) {
            self.finish.push(reason);
        }
        self.queued_s = self.queued_s.max(done.timings.queued_s);
        self.prefill_s += done.timings.prefill_s;
        self.decode_s += done.timings.decode_s;
    }

    fn outcome(&self) -> &'static str {
        match (self.failed, self.running) {
            (true, _) => "failed",
            (false, 0) => "answered",
            (false, _) => CANCELLED,
        }
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let outcome = self.outcome();
        // An answer that its client left is paid for as far as it was heard.
        let unfinished: usize = self.heard.iter().sum();
        self.names.request.spend(self.usage.completion_tokens + unfinished);
        if let Some(transcript) = &self.transcript {
            transcript.end(&self.names.request.0);
        }
        self.http.closed(outcome == CANCELLED);
        tracing::info!(
            request_id = &*self.names.request.0,
            id = self.names.answer,
            outcome,
            finish = self.finish.join(","),
            prompt_tokens = self.usage.prompt_tokens,
            cached_tokens = self.usage.cached_tokens,
            completion_tokens = self.usage.completion_tokens,
            queued_s = self.queued_s,
            prefill_s = self.prefill_s,
            decode_s = self.decode_s,
            "generation"
        );
    }
}

/// The error of a client that let its answer wait for too long.
fn unread() -> HttpError {
    HttpError::server(StatusCode::INTERNAL_SERVER_ERROR, "the answer was left unread for too long")
}

/// Carries the events of one answer to `out` until it ends, the reader leaves or stalls, or the
/// server closes.
async fn pump(index: usize, mut stream: TextStream, out: Sender, app: App) {
    loop {
        let event = tokio::select! {
            biased;
            () = out.closed() => return,
            () = app.life.reached(Phase::Closing) => {
                // A reader too slow for this learns it from the end of the stream.
                let _ = out.try_send(Err(HttpError::shutting_down()));
                return;
            }
            event = stream.next() => event,
        };
        let item = match event {
            None => return,
            Some(TextEvent::Prefill { .. }) => continue,
            Some(TextEvent::Failed(error)) => Err(HttpError::of(error, "")),
            Some(event) => Ok((index, event)),
        };
        if out.send_timeout(item, app.options.stall_timeout).await.is_err() {
            return;
        }
    }
}
