//! Answers as HTTP responses: whole, or as server-sent events that end with `[DONE]`.

use crate::choices::Choices;
use crate::fault::Fault;
use crate::openai::answer::{Answer, Collected};
use axum::Json;
use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

/// Asks proxies not to hold events back.
const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// Waits for all choices and answers at once.
pub(crate) async fn whole(
    mut choices: Choices,
    mut answer: impl Answer,
) -> Result<Response, Fault> {
    let collected = collect(&mut choices).await?;
    Ok(Json(answer.whole(collected, choices.usage())).into_response())
}

/// As [`whole`], with the `keep` likeliest choices of each prompt.
pub(crate) async fn best(
    mut choices: Choices,
    keep: usize,
    mut answer: impl Answer,
) -> Result<Response, Fault> {
    let mut collected = collect(&mut choices).await?;
    let prompts = collected.chunks_exact_mut(choices.per_prompt());
    let kept = prompts.flat_map(|choices| {
        choices.sort_by(|a, b| b.likelihood().total_cmp(&a.likelihood()));
        choices[..keep].to_vec()
    });
    Ok(Json(answer.whole(kept.collect(), choices.usage())).into_response())
}

async fn collect(choices: &mut Choices) -> Result<Vec<Collected>, Fault> {
    let mut collected = vec![Collected::default(); choices.count()];
    while let Some(event) = choices.next().await {
        let (index, event) = event?;
        collected[index].add(event);
    }
    Ok(collected)
}

/// Answers as the events come, with a comment after every silence of `keep_alive`.
pub(crate) fn streamed(choices: Choices, answer: impl Answer, keep_alive: Duration) -> Response {
    let events = stream::unfold(Feed::new(choices, answer), |mut feed| async {
        feed.next().await.map(|event| (event, feed))
    });
    let keep_alive = KeepAlive::new().interval(keep_alive).text("keep-alive");
    ([UNBUFFERED], Sse::new(fallible(events)).keep_alive(keep_alive)).into_response()
}

fn fallible(
    events: impl Stream<Item = Event> + Send + 'static,
) -> impl Stream<Item = Result<Event, Infallible>> + Send + 'static {
    use futures_util::StreamExt;
    events.map(Ok)
}

/// The events of one response.
struct Feed<A> {
    choices: Choices,
    answer: A,
    ready: VecDeque<Event>,
    ended: bool,
}

impl<A: Answer> Feed<A> {
    fn new(choices: Choices, answer: A) -> Self {
        Self { choices, answer, ready: VecDeque::new(), ended: false }
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            self.fetch().await;
        }
    }

    async fn fetch(&mut self) {
        match self.choices.next().await {
            Some(Ok((index, event))) => {
                let chunks = self.answer.chunks(index, event);
                self.ready.extend(chunks.iter().map(data));
            }
            Some(Err(fault)) => {
                self.ended = true;
                let error = Event::default().event("error").data(fault.body().to_string());
                self.ready.push_back(error);
            }
            None => {
                self.ended = true;
                let last = self.answer.last_chunk(self.choices.usage());
                self.ready.extend(last.iter().map(data));
                self.ready.push_back(Event::default().data("[DONE]"));
            }
        }
    }
}

fn data(json: &Value) -> Event {
    Event::default().data(json.to_string())
}
