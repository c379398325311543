//! A response that is being made in the background.

use crate::http::sse::Frame;
use crate::protocols::responses::history::Item;
use crate::protocols::responses::log::{Log, lock};
use crate::protocols::responses::object::Response;
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, watch};

/// A response under way.
#[derive(Debug)]
pub(crate) struct Running {
    /// The response object.
    shown: Mutex<String>,
    cancel: Notify,
    ended: watch::Sender<bool>,
    /// The items that it answers.
    pub asked: Vec<Arc<Item>>,
    /// Its events, if anybody may want them.
    pub log: Option<Arc<Log>>,
}

impl Running {
    /// A response that waits for its beginning.
    pub fn new(response: &Response, asked: Vec<Arc<Item>>, log: Option<Arc<Log>>) -> Self {
        Self {
            shown: Mutex::new(response.json().to_string()),
            cancel: Notify::new(),
            ended: watch::Sender::new(false),
            asked,
            log,
        }
    }

    /// The response object as it is now.
    pub fn json(&self) -> String {
        lock(&self.shown).clone()
    }

    /// Replaces the object that lookups return.
    pub fn show(&self, response: &Response) {
        *lock(&self.shown) = response.json().to_string();
    }

    /// Waits until it is asked to end.
    pub async fn cancelled(&self) {
        self.cancel.notified().await;
    }

    /// Asks it to end, and waits until it has.
    pub async fn cancel(&self) {
        self.cancel.notify_one();
        // The sender lives in self, so waiting cannot fail.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Adds events to the log, if there is one.
    pub fn tell(&self, frames: Vec<Frame>) {
        if let Some(log) = &self.log {
            log.push(&frames);
        }
    }

    /// Says that it has ended.
    pub fn end(&self) {
        if let Some(log) = &self.log {
            log.end();
        }
        self.ended.send_replace(true);
    }
}
