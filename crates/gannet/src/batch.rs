//! Many requests at full throughput.
//!
//! Invariant: as long as there are requests, twice as many are submitted as the engine computes at
//! a time.

use crate::answer::Answer;
use crate::answer::whole;
use crate::error::Error;
use crate::request::Request;
use api::{ApiError, Service};
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::runtime::{Builder, Runtime};

type Finished = (usize, Result<Answer, Error>);

/// The answers to many requests, in the order in which they are finished. Made by
/// [`Engine::batch`](crate::Engine::batch).
///
/// Twice as many requests are submitted as are computed at a time, so that the engine has work
/// while the caller handles an answer. Dropping the batch ends the computation of the others.
#[derive(Debug)]
pub struct Batch<I> {
    service: Service,
    requests: I,
    /// Largest number of submitted requests.
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

    /// Submits a request and reads its answer in the background: the engine pauses sequences whose
    /// readers fall behind.
    fn submit(&mut self, request: &Request) -> Result<(), Error> {
        let events = request.start(&self.service)?;
        let waiters = match &mut self.waiters {
            Some(waiters) => waiters,
            none => none.insert(waiters()?),
        };
        let (place, finish) = (self.next_place, self.finish.clone());
        waiters.spawn(async move {
            // In a task of its own, a panic becomes an error.
            let answer = tokio::spawn(whole(events)).await;
            let broken = |_| Err(ApiError::Engine("internal error".to_owned()).into());
            // The receiver is gone if the batch was dropped.
            let _ = finish.send((place, answer.unwrap_or_else(broken)));
        });
        Ok(())
    }
}

/// Starts the thread that reads the events of the engine.
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

/// Cancels submitted requests without waiting, which async code does not allow.
impl<I> Drop for Batch<I> {
    fn drop(&mut self) {
        if let Some(waiters) = self.waiters.take() {
            waiters.shutdown_background();
        }
    }
}
