//! The answer of `POST /v1/responses`, whole and as events.
//!
//! A call that breaks after it was announced gets no last event and is no item of the response,
//! so that no client executes it; its text follows as a message.

use crate::generate::answer::{Answer, Collected};
use crate::http::error::HttpError;
use crate::http::sse::Frame;
use crate::protocols::responses::events::Events;
use crate::protocols::responses::history::Item;
use crate::protocols::responses::items::ItemStatus;
use crate::protocols::responses::log::Log;
use crate::protocols::responses::object::{Response, ResponseFailure, Status, Tokens};
use crate::protocols::responses::open_item::{ItemView, OpenItem};
use crate::protocols::responses::store::{Owner, ResponseStore, StoreEntry};
use crate::protocols::responses::stored_response::StoredResponse;
use crate::protocols::responses::tools::Tools;
use crate::protocols::responses::turns::StoredTurn;
use api::{CallEvent, Delta, Finish, TextEvent, Usage};
use serde_json::{Value, json};
use std::sync::Arc;

/// Where a finished response goes.
#[derive(Debug)]
pub(crate) struct StoreSlot {
    pub store: Arc<ResponseStore>,
    pub owner: Owner,
    pub parent: Option<Arc<StoredTurn>>,
    pub input: Vec<Arc<Item>>,
    /// The events of one that runs in the background.
    pub log: Option<Arc<Log>>,
}

/// Writes responses.
#[derive(Debug)]
pub(crate) struct ResponseAnswer {
    response: Response,
    view: ItemView,
    tools: Tools,
    events: Events,
    opened: Option<OpenItem>,
    /// Items that were announced.
    announced: usize,
    deposit: Option<StoreSlot>,
}

impl ResponseAnswer {
    /// Fills in `response`, and puts it where it is kept, if it is.
    pub fn new(
        response: Response,
        view: ItemView,
        tools: Tools,
        deposit: Option<StoreSlot>,
    ) -> Self {
        let events = Events::default();
        Self { response, view, tools, events, opened: None, announced: 0, deposit }
    }

    /// The response as it is now.
    pub fn response(&self) -> &Response {
        &self.response
    }

    /// Ends a response that is no longer wanted. There is no event of that name; clients take
    /// the one of an incomplete response for the end.
    pub fn cancel(&mut self) -> Vec<Frame> {
        let mut frames = self.end_item(ItemStatus::Incomplete);
        self.response.end(Status::Cancelled);
        frames.push(self.state("response.incomplete"));
        self.keep();
        frames
    }

    fn state(&self, kind: &'static str) -> Frame {
        self.events.event(kind, json!({ "response": self.response.json() }))
    }

    fn reason(&mut self, delta: Delta) -> Vec<Frame> {
        let mut frames = Vec::new();
        if !self.opened.as_ref().is_some_and(OpenItem::is_reasoning) {
            frames = self.end_item(ItemStatus::Completed);
            frames.extend(self.begin(OpenItem::reasoning));
        }
        frames.extend(self.more(delta));
        frames
    }

    fn say(&mut self, delta: Delta) -> Vec<Frame> {
        let mut frames = Vec::new();
        if !self.opened.as_ref().is_some_and(OpenItem::is_message) {
            frames = self.end_item(ItemStatus::Completed);
            frames.extend(self.begin(OpenItem::message));
        }
        frames.extend(self.more(delta));
        frames
    }

    fn begin(
        &mut self,
        begin: impl FnOnce(usize, &Events, ItemView) -> (OpenItem, Vec<Frame>),
    ) -> Vec<Frame> {
        let (opened, frames) = begin(self.announced, &self.events, self.view);
        self.announced += 1;
        self.opened = Some(opened);
        frames
    }

    fn more(&mut self, delta: Delta) -> Option<Frame> {
        self.opened.as_mut()?.text(delta, &self.events, self.view)
    }

    fn call(&mut self, event: CallEvent) -> Vec<Frame> {
        match event {
            CallEvent::Start { index, id, name } => {
                let mut frames = self.end_item(ItemStatus::Completed);
                let wire = self.tools.wire(&name);
                let begun =
                    self.begin(|place, events, _| OpenItem::call(place, events, index, id, wire));
                frames.extend(begun);
                frames
            }
            CallEvent::Arguments { index, delta } => {
                let opened = self.opened.as_mut().filter(|opened| opened.is_call(index));
                let delta = opened.and_then(|opened| opened.arguments(delta, &self.events));
                delta.into_iter().collect()
            }
            CallEvent::End { index } if self.is_at(index) => self.end_item(ItemStatus::Completed),
            CallEvent::Broken { index } if self.is_at(index) => {
                self.opened = None;
                Vec::new()
            }
            CallEvent::End { .. } | CallEvent::Broken { .. } => Vec::new(),
        }
    }

    fn is_at(&self, call: usize) -> bool {
        self.opened.as_ref().is_some_and(|opened| opened.is_call(call))
    }

    fn end_item(&mut self, status: ItemStatus) -> Vec<Frame> {
        let Some(opened) = self.opened.take() else { return Vec::new() };
        let (item, frames) = opened.end(status, &self.events, self.view);
        self.response.output.push(item);
        frames
    }

    fn finish(&mut self, finish: &Finish) -> Vec<Frame> {
        let (item, whole) = match finish {
            Finish::Length => (ItemStatus::Incomplete, Status::Incomplete),
            _ => (ItemStatus::Completed, Status::Completed),
        };
        self.response.end(whole);
        self.end_item(item)
    }

    fn keep(&mut self) {
        let Some(deposit) = self.deposit.take() else { return };
        let StoreSlot { store, owner, parent, input, log } = deposit;
        let output = self.response.output.iter().map(|item| Arc::new(item.into())).collect();
        let turn = Arc::new(StoredTurn::new(parent, input, output, store.held()));
        let json = self.response.json().to_string();
        let kept = StoredResponse::new(json, turn, store.held());
        let id = &self.response.id;
        match self.response.background {
            true => store.finish(&owner, id, Arc::new(kept.in_background(log))),
            false => store.put(&owner, id, StoreEntry::Kept(Arc::new(kept))),
        }
    }
}

impl Answer for ResponseAnswer {
    fn open(&mut self) -> Vec<Frame> {
        let mut frames = vec![self.state("response.created")];
        if self.response.status == Status::Queued {
            frames.push(self.state("response.queued"));
            self.response.status = Status::InProgress;
        }
        frames.push(self.state("response.in_progress"));
        frames
    }

    fn note(&mut self, index: usize, event: &TextEvent) {
        self.frames(index, event.clone());
    }

    fn frames(&mut self, _: usize, event: TextEvent) -> Vec<Frame> {
        match event {
            TextEvent::Reasoning(delta) => self.reason(delta),
            TextEvent::Content(delta) => self.say(delta),
            TextEvent::Call(event) => self.call(event),
            TextEvent::Done(done) => self.finish(&done.finish),
            TextEvent::Prefill { .. } | TextEvent::Prompt { .. } | TextEvent::Failed(_) => {
                Vec::new()
            }
        }
    }

    fn close(&mut self, usage: &Usage) -> Vec<Frame> {
        self.response.usage = Some(Tokens::from(usage));
        self.keep();
        let kind = match self.response.status {
            Status::Incomplete => "response.incomplete",
            _ => "response.completed",
        };
        vec![self.state(kind)]
    }

    fn broken(&mut self, error: &HttpError) -> Vec<Frame> {
        let mut frames = self.end_item(ItemStatus::Incomplete);
        let error = error.body()["error"].take();
        let text = |name: &str| error[name].as_str().map(str::to_owned);
        let message = text("message").unwrap_or_default();
        let members = json!({ "code": error["code"], "message": message, "param": error["param"] });
        frames.push(self.events.event("error", members));
        let code = match error["type"].as_str() {
            Some("rate_limit_error") => "rate_limit_exceeded",
            Some("invalid_request_error") => "invalid_prompt",
            _ => "server_error",
        };
        self.response.error = Some(ResponseFailure { code: code.into(), message });
        self.response.end(Status::Failed);
        self.keep();
        frames.push(self.state("response.failed"));
        frames
    }

    /// Codex counts events as life, and comments not.
    fn ping(&self) -> Option<Frame> {
        Some(self.state("response.in_progress"))
    }

    fn whole(&mut self, _: Vec<Collected>, usage: &Usage) -> Value {
        self.close(usage);
        self.response.json()
    }
}

#[cfg(test)]
mod tests;
