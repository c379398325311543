//! The running answers to one request: their events in one stream, each with the index of its
//! choice.
//!
//! Invariant: dropping [`Choices`] cancels every running answer at once. Events for a client that
//! reads slowly are buffered, and the answer is cancelled after a while; the engine never waits
//! longer for a client.

use crate::generate::logged_texts::LoggedTexts;
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::models::ModelUse;
use crate::http::observability::cache::RequestReports;
use crate::http::observability::http::HttpMetrics;
use crate::http::request::{ModelContext, RequestContext, RequestId};
use crate::http::shutdown::Phase;
use api::{Done, Prepared, RequestOptions, TextEvent, TextStream, Usage};
use axum::http::StatusCode;
use engine::Timings;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Events a client may be behind before its engine sequence has to wait.
const BUFFERED_EVENTS: usize = 1024;

/// The outcome where a client left.
const CANCELLED: &str = "cancelled";

/// An event of the choice with this index.
type Tagged = (usize, TextEvent);
type Sender = mpsc::Sender<Result<Tagged, HttpError>>;

/// The answers to one request. A prompt's choices follow each other.
#[derive(Debug)]
pub(crate) struct Choices {
    events: mpsc::Receiver<Result<Tagged, HttpError>>,
    /// How many answers there are.
    pub count: usize,
    /// How many answers each prompt gets.
    pub per_prompt: usize,
    pub log: RequestLog,
    /// Keeps the model loaded.
    _model: ModelUse,
}

/// The log line of a request, written when it ends or is dropped.
#[derive(Debug)]
pub(crate) struct RequestLog {
    request: RequestId,
    /// The id of the answer.
    id: String,
    http: HttpMetrics,
    running: usize,
    failed: bool,
    /// Why choices ended, each reason once.
    finish: Vec<&'static str>,
    /// Tokens of the choices that have ended, every prompt counted once.
    pub usage: Usage,
    /// Pieces of text of each choice that has not ended: about as many as tokens.
    pieces: Vec<usize>,
    logged: Option<LoggedTexts>,
    /// What the prompts found in the cache.
    cache: Arc<RequestReports>,
    /// The longest wait, and the times of all choices together.
    timings: Timings,
}

impl Choices {
    /// Submits every prompt `per_prompt` times, for the answer named `id`; all of them are queued,
    /// or none.
    ///
    /// # Errors
    /// If the queue does not hold so many requests, or the engine refuses one.
    pub fn start(
        context: &ModelContext,
        prompts: &[Prepared],
        per_prompt: usize,
        options: RequestOptions,
        id: String,
    ) -> Result<Self, HttpError> {
        let ModelContext { request, model, receipt } = context;
        let (app, service) = (&request.app, &model.service);
        let (count, queue) = (prompts.len() * per_prompt, service.engine.queue());
        if count > queue {
            // To try again would be of no use.
            let message = format!("{count} answers at once do not fit into the queue of {queue}");
            return Err(HttpError::invalid("n", message));
        }
        let options = RequestOptions { receipt: *receipt, ..request.on_behalf(options) };
        let (sender, events) = mpsc::channel(BUFFERED_EVENTS);
        let each = prompts.iter().flat_map(|prompt| (0..per_prompt).map(move |n| (prompt, n)));
        let start = |(index, (prompt, n)): (usize, (&Prepared, usize))| {
            let name = Some(format!("{id}-{index}"));
            service.start(prompt, n, &RequestOptions { name, ..options.clone() })
        };
        let streams = each.enumerate().map(start).collect::<Result<Vec<TextStream>, _>>();
        let streams = streams.map_err(|error| HttpError::of(error, "prompt"))?;
        for (index, stream) in streams.into_iter().enumerate() {
            tokio::spawn(pump(index, stream, sender.clone(), app.clone()));
        }
        request.id.charge.spend(prompts.iter().map(|prompt| prompt.prompt().len()).sum());
        let begin = || LoggedTexts::begin(service, &request.id.name, prompts, count);
        let logged = app.options.log_prompts.then(begin);
        let log = RequestLog {
            request: request.id.clone(),
            id,
            http: app.observability.http.clone(),
            running: count,
            failed: false,
            finish: Vec::new(),
            usage: Usage::default(),
            pieces: vec![0; count],
            logged,
            cache: kept(context, prompts),
            timings: Timings::default(),
        };
        log.http.opened();
        Ok(Self { events, count, per_prompt, log, _model: model.clone() })
    }

    /// The next event of any choice; `None` when all have ended. The last event of a choice is
    /// `Done`; an error ends them all.
    ///
    /// # Errors
    /// The error that ended a choice; also if a reader of events ended without its last event.
    pub async fn next(&mut self) -> Option<Result<Tagged, HttpError>> {
        match self.events.recv().await {
            Some(Ok((index, event))) => {
                let is_first = index.is_multiple_of(self.per_prompt);
                self.log.record(index, &event, is_first.then_some(index / self.per_prompt));
                Some(Ok((index, event)))
            }
            Some(Err(error)) => Some(Err(self.fail(error))),
            None if self.log.running > 0 && !self.log.failed => Some(Err(self.fail(broken_off()))),
            None => None,
        }
    }

    fn fail(&mut self, error: HttpError) -> HttpError {
        self.log.failed = true;
        self.events.close();
        error
    }
}

impl RequestLog {
    /// Records an event of the choice `index`, which is the first of this prompt.
    fn record(&mut self, index: usize, event: &TextEvent, prompt: Option<usize>) {
        match event {
            TextEvent::Content(delta) | TextEvent::Reasoning(delta) => {
                self.pieces[index] += 1;
                if let Some(logged) = &mut self.logged {
                    logged.add(index, &delta.text);
                }
            }
            TextEvent::Call(_) => self.pieces[index] += 1,
            TextEvent::Admitted(found) => {
                if let Some(prompt) = prompt {
                    self.cache.admitted(prompt, found, self.logged.is_some());
                }
            }
            TextEvent::Done(done) => self.done(index, done, prompt.is_some()),
            _ => {}
        }
    }

    fn done(&mut self, index: usize, done: &Done, first_of_prompt: bool) {
        self.running -= 1;
        self.pieces[index] = 0;
        self.usage.completion_tokens += done.usage.completion_tokens;
        self.usage.reasoning_tokens += done.usage.reasoning_tokens;
        self.usage.drafted_tokens += done.usage.drafted_tokens;
        self.usage.accepted_tokens += done.usage.accepted_tokens;
        self.usage.predicted_tokens += done.usage.predicted_tokens;
        self.usage.unpredicted_tokens += done.usage.unpredicted_tokens;
        if first_of_prompt {
            self.usage.prompt_tokens += done.usage.prompt_tokens;
            self.usage.cached_tokens += done.usage.cached_tokens;
        }
        let reason = done.finish.reason();
        if !self.finish.contains(&reason) {
            self.finish.push(reason);
        }
        self.timings.queued_s = self.timings.queued_s.max(done.timings.queued_s);
        self.timings.prefill_s += done.timings.prefill_s;
        self.timings.decode_s += done.timings.decode_s;
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let outcome = match (self.failed, self.running) {
            (true, _) => "failed",
            (false, 0) => "answered",
            (false, _) => CANCELLED,
        };
        // An answer that its client left is charged for the pieces that were sent.
        let unfinished: usize = self.pieces.iter().sum();
        self.request.charge.spend(self.usage.completion_tokens + unfinished);
        if let Some(logged) = &self.logged {
            logged.end(&self.request.name);
        }
        self.http.closed(outcome == CANCELLED);
        tracing::info!(
            request_id = &*self.request.name,
            id = self.id,
            outcome,
            finish = self.finish.join(","),
            prompt_tokens = self.usage.prompt_tokens,
            cached_tokens = self.usage.cached_tokens,
            completion_tokens = self.usage.completion_tokens,
            queued_s = self.timings.queued_s,
            prefill_s = self.timings.prefill_s,
            decode_s = self.timings.decode_s,
            "generation"
        );
    }
}

/// The reports of what `prompts` find in the cache, which the caller can ask for.
fn kept(context: &ModelContext, prompts: &[Prepared]) -> Arc<RequestReports> {
    let ModelContext { request, model, .. } = context;
    let RequestContext { app, id, caller, .. } = request;
    let name = model.service.info().name.clone();
    let reports = RequestReports::new(Arc::clone(&id.name), caller.clone(), name, prompts);
    app.observability.cache.add(&reports);
    // Of the requests of a WebSocket the first stays, whose response has no header to come.
    let _ = id.cache.set(Arc::clone(&reports));
    reports
}

/// The error of an answer whose events end before their last one.
fn broken_off() -> HttpError {
    let message = "the answer broke off: it was left unread for too long, or the server is closed";
    HttpError::server(StatusCode::INTERNAL_SERVER_ERROR, message)
}

/// Carries the events of one answer to `out` until it ends, the reader leaves or stalls, or the
/// server closes.
async fn pump(index: usize, mut stream: TextStream, out: Sender, app: App) {
    loop {
        let event = tokio::select! {
            biased;
            () = out.closed() => return,
            // Before the end of the server, which an engine that stops brings about: its last
            // events say why.
            event = stream.next() => event,
            () = app.life.reached(Phase::Closing) => {
                // A reader too slow for this learns it from the end of the stream.
                let _ = out.try_send(Err(HttpError::shutting_down()));
                return;
            }
        };
        let item = match event {
            None => return,
            Some(TextEvent::Failed(error)) => Err(HttpError::of(error, "")),
            Some(event) => Ok((index, event)),
        };
        if out.send_timeout(item, app.options.stall_timeout).await.is_err() {
            return;
        }
    }
}
