//! Many requests at the engine's full throughput.
//!
//! Invariant: as long as there are requests, the engine has more of them than it can compute at a
//! time, and no more than twice that are held.

use crate::answer::whole;
use crate::{Answer, Error, Request};
use api::{ApiError, Service};
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::runtime::{Builder, Runtime};

type Finished = (usize, Result<Answer, Error>);

/// The answers to many requests, in the order in which they are finished. Made by
/// [`Engine::batch`](crate::Engine::batch).
///
/// Twice as many requests as are computed at a time are drawn ahead, so that the engine has work
/// while its caller deals with an answer. Dropping it ends the computation of what is left.
#[derive(Debug)]
pub struct Batch<I> {
    service: Service,
    requests: I,
    /// Requests that may be under way.
    most: usize,
    under_way: usize,
    next_place: usize,
    waiters: Option<Runtime>,
    finished: Receiver<Finished>,
    finish: Sender<Finished>,
}

impl<I> Batch<I> {
    pub(crate) fn new(service: Service, parallel: usize, requests: I) -> Self {
        let (finish, finished) = channel();
        let most = parallel.saturating_mul(2);
        let (under_way, next_place, waiters) = (0, 0, None);
        Self { service, requests, most, under_way, next_place, waiters, finished, finish }
    }

    /// Submits a request, to be waited for in the background: answers are read as they come, also
    /// while the caller is busy, or the engine would let their sequences wait.
    fn submit(&mut self, request: &Request) -> Result<(), Error> {
        let events = request.start(&self.service)?;
        let waiters = match &mut self.waiters {
            Some(waiters) => waiters,
            none => none.insert(waiters()?),
        };
        let (place, finish) = (self.next_place, self.finish.clone());
        waiters.spawn(async move {
            // A task of its own, so that even one that panics is heard of.
            let answer = tokio::spawn(whole(events)).await;
            let broken = |_| Err(ApiError::Engine("internal error".to_owned()).into());
            // Nobody listens where the batch was dropped.
            let _ = finish.send((place, answer.unwrap_or_else(broken)));
        });
        Ok(())
    }
}

/// One thread has time enough: it reads what the engine says, and nothing else.
fn waiters() -> Result<Runtime, Error> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).thread_name("gannet-batch").build().map_err(Error::Thread)
}

impl<I> Iterator for Batch<I>
where
    I: Iterator,
    I::Item: Into<Request>,
{
    type Item = (usize, Result<Answer, Error>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.under_way < self.most {
            let Some(request) = self.requests.next() else { break };
            let submitted = self.submit(&request.into());
            self.next_place += 1;
            match submitted {
                Ok(()) => self.under_way += 1,
                Err(error) => return Some((self.next_place - 1, Err(error))),
            }
        }
        if self.under_way == 0 {
            return None;
        }
        self.under_way -= 1;
        self.finished.recv().ok()
    }
}

/// Ends what is under way without waiting for it, which async code would not allow.
impl<I> Drop for Batch<I> {
    fn drop(&mut self) {
        if let Some(waiters) = self.waiters.take() {
            waiters.shutdown_background();
        }
    }
}
