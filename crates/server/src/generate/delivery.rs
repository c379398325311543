//! Answers as HTTP responses: whole, or as a stream of server-sent events or lines.

use crate::generate::answer::{Answer, Collected};
use crate::generate::choices::Choices;
use crate::http::error::HttpError;
use crate::http::sse::{Frame, streaming, written};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

/// Waits for all choices and answers at once.
pub(crate) async fn whole(
    mut choices: Choices,
    mut answer: impl Answer,
) -> Result<Response, HttpError> {
    let collected = collect(&mut choices, &mut answer).await?;
    Ok(Json(answer.whole(collected, choices.usage())).into_response())
}

/// As [`whole`], with the `keep` likeliest choices of each prompt.
pub(crate) async fn likeliest(
    mut choices: Choices,
    keep: usize,
    mut answer: impl Answer,
) -> Result<Response, HttpError> {
    let mut collected = collect(&mut choices, &mut answer).await?;
    let prompts = collected.chunks_exact_mut(choices.per_prompt());
    let kept = prompts.flat_map(|choices| {
        choices.sort_by(|a, b| b.likelihood().total_cmp(&a.likelihood()));
        choices[..keep].to_vec()
    });
    Ok(Json(answer.whole(kept.collect(), choices.usage())).into_response())
}

/// The events of all choices, gathered.
async fn collect(
    choices: &mut Choices,
    answer: &mut impl Answer,
) -> Result<Vec<Collected>, HttpError> {
    let mut collected = vec![Collected::default(); choices.count()];
    while let Some(event) = choices.next().await {
        let (index, event) = event?;
        answer.note(index, &event);
        collected[index].add(event);
    }
    Ok(collected)
}

/// Answers as the events come, with the answer's ping after every silence of `keep_alive`.
pub(crate) fn streamed<A: Answer>(choices: Choices, answer: A, keep_alive: Duration) -> Response {
    let feed = Feed::new(choices, answer, keep_alive);
    let frames = stream::unfold(feed, |mut feed| async {
        let bytes = feed.next().await?;
        Some((Ok::<Bytes, Infallible>(bytes), feed))
    });
    streaming(A::FRAMING, Body::from_stream(frames))
}

/// The frames of one response.
struct Feed<A> {
    choices: Choices,
    answer: A,
    keep_alive: Duration,
    ready: VecDeque<Frame>,
    ended: bool,
}

impl<A: Answer> Feed<A> {
    fn new(choices: Choices, mut answer: A, keep_alive: Duration) -> Self {
        let ready = answer.open().into();
        Self { choices, answer, keep_alive, ready, ended: false }
    }

    /// The bytes of all frames that are there.
    async fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() && !self.ended {
            self.fetch().await;
        }
        if self.ready.is_empty() {
            return None;
        }
        let text: String = self.ready.drain(..).map(|frame| written(&frame, A::FRAMING)).collect();
        Some(text.into())
    }

    async fn fetch(&mut self) {
        let frames = match tokio::time::timeout(self.keep_alive, self.choices.next()).await {
            Err(_) => self.answer.ping().into_iter().collect(),
            Ok(Some(Ok((index, event)))) => self.answer.frames(index, event),
            Ok(Some(Err(error))) => {
                self.ended = true;
                self.answer.broken(&error)
            }
            Ok(None) => {
                self.ended = true;
                self.answer.close(self.choices.usage())
            }
        };
        self.ready.extend(frames);
    }
}
