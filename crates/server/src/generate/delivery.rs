//! Answers as HTTP responses: whole, or as a stream of server-sent events or lines.

use crate::generate::answer::{Answer, Collected};
use crate::generate::choices::Choices;
use crate::generate::receipts::{self, PendingReceipts, RECEIPT};
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::sse::{Frame, streaming, written};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt};
use std::convert::Infallible;
use std::time::Duration;

/// Waits for all choices and answers at once: with all of them, or with the likeliest `keep` of
/// each prompt.
pub(crate) async fn whole<A: Answer>(
    mut choices: Choices,
    keep: Option<usize>,
    mut answer: A,
) -> Result<Response, HttpError> {
    let mut collected = vec![Collected::default(); choices.count];
    while let Some(event) = choices.next().await {
        let (index, event) = event?;
        answer.note(index, &event);
        collected[index].add(event);
    }
    if let Some(keep) = keep {
        let prompts = collected.chunks_exact_mut(choices.per_prompt);
        let kept = prompts.flat_map(|choices| {
            choices.sort_by(|a, b| b.likelihood().total_cmp(&a.likelihood()));
            choices[..keep].to_vec()
        });
        collected = kept.collect();
    }
    let receipts = receipts::of(&collected);
    let mut whole = answer.whole(collected, &choices.log.usage);
    if !A::HOLDS_RECEIPT {
        receipts::add_to(&mut whole, &receipts);
    }
    answer.settled().await;
    let header = receipts::header(&receipts).map(|value| [(RECEIPT, value)]);
    Ok((header, Json(whole)).into_response())
}

/// Longest time without a frame in a stream.
pub(crate) fn silence<A: Answer>(app: &App) -> Duration {
    app.options.ping_interval.min(A::MAX_SILENCE)
}

/// The response of `work`. If that takes longer than `silence`, a stream that begins before it: it
/// pings until the response is there, whose body or error follows.
pub(crate) async fn begun<A: Answer>(
    silence: Duration,
    work: impl Future<Output = Result<Response, HttpError>> + Send + 'static,
) -> Result<Response, HttpError> {
    let mut work = Box::pin(work);
    if let Ok(done) = tokio::time::timeout(silence, &mut work).await {
        return done;
    }
    let text = |frames: &[Frame]| -> String {
        frames.iter().map(|frame| written(frame, A::FRAMING)).collect()
    };
    let parts = stream::unfold(Some(work), move |work| async move {
        let mut work = work?;
        Some(match tokio::time::timeout(silence, &mut work).await {
            Err(_) => (Body::from(text(A::waiting().as_slice())), Some(work)),
            Ok(Ok(response)) => (response.into_body(), None),
            Ok(Err(error)) => (Body::from(text(&A::refused(&error))), None),
        })
    });
    let bytes = parts.flat_map(Body::into_data_stream);
    Ok(streaming(A::FRAMING, Body::from_stream(bytes)))
}

/// Writes the frames of each event when it arrives, and the answer's ping whenever no event arrives
/// for `keep_alive`.
pub(crate) fn streamed<A: Answer>(choices: Choices, answer: A, keep_alive: Duration) -> Response {
    let feed = Feed::new(choices, answer, keep_alive);
    let frames = stream::unfold(feed, |mut feed| async {
        let bytes = feed.next().await?;
        Some((Ok::<Bytes, Infallible>(bytes), feed))
    });
    streaming(A::FRAMING, Body::from_stream(frames))
}

/// The frames of one response.
#[derive(Debug)]
pub(crate) struct Feed<A> {
    choices: Choices,
    pub answer: A,
    keep_alive: Duration,
    ready: Vec<Frame>,
    receipts: PendingReceipts,
    ended: bool,
}

impl<A: Answer> Feed<A> {
    /// The frames of `answer`, with its ping whenever no event arrives for `keep_alive`.
    pub fn new(choices: Choices, mut answer: A, keep_alive: Duration) -> Self {
        let ready = answer.open();
        let receipts = PendingReceipts::default();
        Self { choices, answer, keep_alive, ready, receipts, ended: false }
    }

    /// All frames that are there; `None` after the last ones. The future can be dropped while it
    /// waits.
    pub async fn frames(&mut self) -> Option<Vec<Frame>> {
        while self.ready.is_empty() && !self.ended {
            self.ready = self.fetch().await;
        }
        if self.ended {
            self.answer.settled().await;
        }
        let frames = std::mem::take(&mut self.ready);
        (!frames.is_empty()).then_some(frames)
    }

    /// The bytes of all frames that are there.
    async fn next(&mut self) -> Option<Bytes> {
        let frames = self.frames().await?;
        let text: String = frames.iter().map(|frame| written(frame, A::FRAMING)).collect();
        Some(text.into())
    }

    /// The frames of the next event.
    async fn fetch(&mut self) -> Vec<Frame> {
        match tokio::time::timeout(self.keep_alive, self.choices.next()).await {
            Err(_) => self.answer.ping().into_iter().collect(),
            Ok(Some(Ok((index, event)))) => {
                if !A::HOLDS_RECEIPT {
                    self.receipts.take(&event);
                }
                let mut frames = self.answer.frames(index, event);
                self.receipts.add_to(&mut frames);
                frames
            }
            Ok(Some(Err(error))) => {
                self.ended = true;
                self.answer.broken(&error)
            }
            Ok(None) => {
                self.ended = true;
                let mut frames = self.answer.close(&self.choices.log.usage);
                self.receipts.add_to(&mut frames);
                frames
            }
        }
    }
}
