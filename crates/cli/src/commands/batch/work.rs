//! Sends requests to the server's routes and writes the answers, many at a time.

use super::input::{BatchCall, LineProblem, RequestLines};
use super::output::{AnswerFile, AnswerLine, Response};
use super::plan::{BatchPlan, LineTask, in_line};
use super::tally::{BatchTally, BatchUsage};
use crate::interrupt::{Signal, Watch};
use crate::load::LoadedModel;
use crate::output::note;
use anyhow::{Context, Result, bail};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, header};
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::{Duration, Instant};
use tokio::task::{JoinError, JoinSet};
use tower::ServiceExt;

/// The server's routes with the model behind them.
#[derive(Debug)]
pub(crate) struct BatchServer {
    pub loaded: LoadedModel,
    pub router: Router,
    /// Maximum number of requests in flight.
    pub limit: usize,
}

/// Most time in which abandoned requests end.
const LAST_REQUESTS: Duration = Duration::from_secs(1);

impl BatchServer {
    /// The tokens of all requests, abandoned ones included, which end first.
    pub fn tokens_of_all(&self) -> BatchUsage {
        let started = Instant::now();
        loop {
            let stats = self.loaded.service.engine.metrics.snapshot();
            if stats.running + stats.waiting == 0 || started.elapsed() > LAST_REQUESTS {
                let (prompt_tokens, completion_tokens) =
                    (stats.prompt_tokens, stats.generation_tokens);
                return BatchUsage { prompt_tokens, completion_tokens };
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the engine.
    pub fn finish(self) {
        let Self { loaded, router, .. } = self;
        drop(router);
        loaded.finish();
    }
}

/// The id of a line with its answer.
pub(crate) type FinishedLine = (String, Result<Response, LineProblem>);

/// A run from its first line to its last.
#[derive(Debug)]
pub(crate) struct BatchRun {
    pub lines: RequestLines,
    pub plan: BatchPlan,
    pub output: AnswerFile,
    /// `None` where no line is to be computed.
    pub server: Option<BatchServer>,
    pub tally: BatchTally,
    pub running: JoinSet<FinishedLine>,
    pub read_all: bool,
}

impl BatchRun {
    /// Runs until all lines have an answer, or until the returned signal; after a signal, requests
    /// in flight may finish within `grace`.
    pub async fn run(
        &mut self,
        mut watch: Watch,
        grace: Duration,
        bar: &ProgressBar,
    ) -> Result<Option<Signal>> {
        let limit = self.server.as_ref().map_or(1, |server| server.limit);
        loop {
            while !self.read_all && self.running.len() < limit && watch.check().is_ok() {
                self.read_one()?;
                self.show(bar);
            }
            if self.running.is_empty() && self.read_all {
                return Ok(None);
            }
            tokio::select! {
                signal = watch.wait() => {
                    self.drain(grace, bar).await?;
                    return Ok(Some(signal));
                }
                Some(finished) = self.running.join_next() => self.take(finished, bar)?,
            }
        }
    }

    /// Reads a line and handles it, or starts to compute its answer.
    fn read_one(&mut self) -> Result<()> {
        let Some((number, line)) = self.lines.next().context("cannot read the requests")? else {
            self.read_all = true;
            return Ok(());
        };
        match self.plan.task(number, line) {
            LineTask::Nothing => Ok(()),
            LineTask::Report(id, mut problem) => {
                problem.message = in_line(number, &problem);
                self.write(id.as_deref(), Err(problem))
            }
            LineTask::Compute(id, BatchCall { url, body }) => {
                let Some(server) = &self.server else {
                    bail!("the file of requests has changed since it was first read")
                };
                let request = Request::post(url).header(header::CONTENT_TYPE, "application/json");
                let answer = ask(server.router.clone(), request.body(body.to_owned().into())?);
                self.running.spawn(async move { (id, answer.await) });
                Ok(())
            }
        }
    }

    fn take(&mut self, finished: Result<FinishedLine, JoinError>, bar: &ProgressBar) -> Result<()> {
        let (id, answer) = finished.context("an answer was lost")?;
        let at_fault = answer.as_ref().is_ok_and(|response| response.status_code >= 500);
        if at_fault
            && self.server.as_ref().is_some_and(|server| !server.loaded.service.engine.is_alive())
        {
            bail!("the engine has stopped");
        }
        self.write(Some(&id), answer)?;
        self.show(bar);
        Ok(())
    }

    fn write(&mut self, id: Option<&str>, answer: Result<Response, LineProblem>) -> Result<()> {
        self.output.write(&AnswerLine::new(id, &answer))?;
        match answer {
            Ok(response) if response.status_code == 200 => self.tally.add(usage(&response.body)),
            _ => self.tally.failed += 1,
        }
        Ok(())
    }

    async fn drain(&mut self, grace: Duration, bar: &ProgressBar) -> Result<()> {
        let (waiting, seconds) = (self.waiting(), grace.as_secs());
        let running = self.running.len().saturating_sub(waiting);
        let message = format!(
            "shutting down: {running} running and {waiting} waiting requests get {seconds} s; a \
             second Ctrl-C exits at once"
        );
        bar.suspend(|| note(message));
        let rest = async {
            while let Some(finished) = self.running.join_next().await {
                self.take(finished, bar)?;
            }
            Ok(())
        };
        // Requests that take longer are abandoned, and computed by the next run.
        tokio::time::timeout(grace, rest).await.unwrap_or(Ok(()))
    }

    /// Requests in flight that are not computed yet.
    fn waiting(&self) -> usize {
        let engine = self.server.as_ref().map(|server| &server.loaded.service.engine);
        engine.map_or(0, |engine| engine.metrics.snapshot().waiting as usize)
    }

    fn show(&self, bar: &ProgressBar) {
        bar.set_position(self.tally.done());
        bar.set_message(format!("{:.1} tokens/s", self.tally.rate()));
    }
}

/// The response of the server's routes.
async fn ask(router: Router, request: Request<Body>) -> Result<Response, LineProblem> {
    let Ok(response) = router.oneshot(request).await;
    let (head, body) = response.into_parts();
    let broken = |message: String| LineProblem::new("no_answer", message);
    if !is_json(&head.headers) {
        return Err(broken("expected an answer in JSON".to_owned()));
    }
    let body = to_bytes(body, usize::MAX).await.map_err(|error| broken(error.to_string()))?;
    let body = serde_json::from_slice(&body).map_err(|error| broken(error.to_string()))?;
    let name = head.headers.get("x-request-id").and_then(|name| name.to_str().ok());
    let request_id = name.unwrap_or_default().to_owned();
    Ok(Response { status_code: head.status.as_u16(), request_id, body })
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}

/// The usage in an answer.
fn usage(body: &RawValue) -> BatchUsage {
    #[derive(Default, Deserialize)]
    struct AnswerBody {
        usage: BatchUsage,
    }
    serde_json::from_str::<AnswerBody>(body.get()).unwrap_or_default().usage
}
