//! The answer of `POST /v1/responses`, whole and as events.
//!
//! An answer without any text is a message of one empty text, as clients expect a message.
//!
//! A call that breaks after it was announced gets no last event and is no item of the response,
//! so that no client executes it; its text follows as a message.

use crate::generate::answer::{Answer, Collected};
use crate::http::error::HttpError;
use crate::http::random;
use crate::http::sse::{Frame, Framing, written};
use crate::protocols::responses::background::Background;
use crate::protocols::responses::call::Continuation;
use crate::protocols::responses::history::{CallItem, Item};
use crate::protocols::responses::object::{ItemStatus, Response, ResponseFailure, Status, Tokens};
use crate::protocols::responses::open_item::{Events, ItemView, OpenItem};
use crate::protocols::responses::records::{Owner, settled};
use crate::protocols::responses::store::{ResponseStore, StoredResponse};
use crate::protocols::responses::summary;
use crate::protocols::responses::tools::CallKind;
use crate::protocols::responses::tools::{Tools, Wire};
use crate::protocols::responses::turn::StoredTurn;
use api::{CallEvent, Delta, Finish, Role, TextEvent, Usage};
use serde_json::{Value, json};
use state::Commit;
use std::sync::Arc;

/// Where a response is stored.
#[derive(Debug)]
pub(crate) struct StoreSlot {
    pub store: Arc<ResponseStore>,
    pub owner: Owner,
    /// The part of the owner's responses.
    pub space: [u8; 16],
    /// What the response continues, and the conversation that it is added to.
    pub continued: Continuation,
    /// The work on a response that is made in the background.
    pub background: Option<Arc<Background>>,
}

/// The answer of a request for a response.
#[derive(Debug)]
pub(crate) struct ResponseAnswer {
    pub response: Response,
    tools: Tools,
    events: Events,
    open: Option<OpenItem>,
    /// Items that were announced.
    announced: usize,
    /// Items that ended, as they are stored.
    items: Vec<Arc<Item>>,
    /// What was written of a summary.
    written: Collected,
    slot: Option<StoreSlot>,
    /// The turn as it was stored last, or would be if the response were to be stored.
    pub turn: Option<Arc<StoredTurn>>,
    /// What was stored and may not be on disk yet.
    commit: Option<Commit>,
    /// A response that breaks off has one last event, without the event of the error before it.
    pub one_end: bool,
}

impl ResponseAnswer {
    /// An answer that completes `response`, and stores it in `slot` if it is to be stored.
    pub fn new(response: Response, view: ItemView, tools: Tools, slot: Option<StoreSlot>) -> Self {
        Self {
            response,
            tools,
            events: Events::new(view),
            open: None,
            announced: 0,
            items: Vec::new(),
            written: Collected::default(),
            slot,
            turn: None,
            commit: None,
            one_end: false,
        }
    }

    /// Ends a response that is no longer wanted. There is no event of that name; clients take
    /// the one of an incomplete response for the end.
    pub fn cancel(&mut self) -> Vec<Frame> {
        self.end_item(ItemStatus::Incomplete);
        self.response.end(Status::Cancelled);
        self.store();
        self.state("response.incomplete");
        self.events.take()
    }

    /// Stores the response as it is now.
    pub fn store(&mut self) {
        let Some(slot) = &mut self.slot else { return };
        let StoreSlot { store, owner, space, continued, background } = slot;
        let Continuation { parent, input, lease } = continued;
        let turn =
            StoredTurn::new(parent.clone(), *space, input.clone(), self.items.clone(), &store.held);
        let turn = Arc::new(turn);
        self.turn = Some(Arc::clone(&turn));
        let status = self.response.status;
        let running = matches!(status, Status::Queued | Status::InProgress);
        // Released before the last event, after which the client may continue it.
        if let Some(lease) = lease.take_if(|_| !running)
            && matches!(status, Status::Completed | Status::Incomplete)
        {
            self.commit = lease.change(Some(Arc::clone(&turn)));
        }
        if !self.response.store {
            store.fits();
            return;
        }
        let (json, created) = (json!(self.response).to_string(), self.response.created_at);
        let stored =
            StoredResponse::new(json, turn, created, running, background.clone(), &store.held);
        let is_new = background.is_none() || status == Status::Queued;
        self.commit = store.put(owner, &self.response.id, stored, is_new).or(self.commit.take());
    }

    /// Stores the events of a response that was made in the background, of which `last` are yet
    /// to be sent.
    pub fn store_events(&mut self, last: &[Frame]) {
        let Some(StoreSlot { store, owner, background, .. }) = &self.slot else { return };
        let events = background.as_ref().filter(|_| store.is_kept()).and_then(|it| it.events());
        if let Some(events) = events {
            let last: String = last.iter().map(|frame| written(frame, Framing::Events)).collect();
            let commit = store.put_events(owner, &self.response.id, events + &last);
            self.commit = commit.or(self.commit.take());
        }
    }

    fn state(&mut self, kind: &str) {
        self.events.add(kind, json!({ "response": self.response }));
    }

    fn tell(&mut self, event: TextEvent) {
        if self.events.view.nothing {
            if let TextEvent::Done(_) = event {
                self.response.end(Status::Completed);
            }
            return;
        }
        if self.events.view.compacts {
            return self.summarize(event);
        }
        match event {
            TextEvent::Reasoning(delta) => self.say(delta, true),
            TextEvent::Content(delta) => self.say(delta, false),
            TextEvent::Call(event) => self.call(event),
            TextEvent::Done(done) => {
                self.response.receipt = done.receipt.map(|receipt| receipt.to_json());
                let (item, whole) = match done.finish {
                    Finish::Length => (ItemStatus::Incomplete, Status::Incomplete),
                    _ => (ItemStatus::Completed, Status::Completed),
                };
                self.response.end(whole);
                let cut = self.has_reasoned() && whole == Status::Incomplete;
                if !self.has_answered() && !cut {
                    self.speak(false);
                }
                self.end_item(item);
            }
            TextEvent::Admitted { .. }
            | TextEvent::Prefill { .. }
            | TextEvent::Prompt { .. }
            | TextEvent::Failed(_) => {}
        }
    }

    /// More of a summary, whose item is shown when it is whole.
    fn summarize(&mut self, event: TextEvent) {
        let ends = matches!(event, TextEvent::Done(_));
        let writes = matches!(event, TextEvent::Reasoning(_) | TextEvent::Content(_));
        self.written.add(event);
        if writes && self.open.is_none() {
            let (id, output_index) = (self.item_id("cmp_"), self.announced);
            let members = json!({ "item_id": id, "output_index": output_index });
            self.begin(Item::Compaction { id, summary: String::new() }, None);
            self.events.add("response.compaction.compacting", members);
        }
        if !ends {
            return;
        }
        match summary::summary(std::mem::take(&mut self.written)) {
            Ok(text) => {
                self.more(Delta { text, tokens: Vec::new() });
                self.end_item(ItemStatus::Completed);
                self.response.end(Status::Completed);
            }
            Err(error) => {
                self.open = None;
                self.fail(&error);
            }
        }
    }

    /// Ends a response that has failed.
    fn fail(&mut self, error: &HttpError) {
        let code = match error.body()["error"]["type"].as_str() {
            Some("rate_limit_error") => "rate_limit_exceeded",
            Some("invalid_request_error") => "invalid_prompt",
            _ => "server_error",
        };
        let message = error.message.clone();
        self.response.error = Some(ResponseFailure { code: code.into(), message });
        self.response.end(Status::Failed);
    }

    /// Whether a message or a call was begun.
    fn has_answered(&self) -> bool {
        let ended = |item: &Arc<Item>| !matches!(**item, Item::Reasoning { .. });
        self.open.as_ref().is_some_and(|open| !open.is_reasoning()) || self.items.iter().any(ended)
    }

    /// Whether there is an item.
    fn has_reasoned(&self) -> bool {
        self.open.is_some() || !self.items.is_empty()
    }

    /// More reasoning, or more of a message.
    fn say(&mut self, delta: Delta, reasoning: bool) {
        self.speak(reasoning);
        self.more(delta);
    }

    /// Begins with reasoning or with a message, unless that is what is open.
    fn speak(&mut self, reasoning: bool) {
        let same = |open: &OpenItem| open.call.is_none() && open.is_reasoning() == reasoning;
        if !self.open.as_ref().is_some_and(same) {
            let id = self.item_id(if reasoning { "rs_" } else { "msg_" });
            let item = match reasoning {
                true => Item::Reasoning { id, text: String::new() },
                false => Item::Message { id, role: Role::Assistant, texts: Vec::new() },
            };
            self.begin(item, None);
        }
    }

    fn call(&mut self, event: CallEvent) {
        let is_open = |call| self.open.as_ref().is_some_and(|open| open.call == Some(call));
        match event {
            CallEvent::Start { index, id: call_id, name } => {
                let Wire { name, namespace, kind } = self.tools.wire(&name);
                let id = self.item_id(match kind {
                    CallKind::Function => "fc_",
                    CallKind::Custom => "ctc_",
                    CallKind::Search => "tsc_",
                });
                let input = String::new();
                let call = CallItem { id, call_id, name, namespace, input, kind };
                self.begin(Item::Call(call), Some(index));
            }
            CallEvent::Arguments { index, delta } if is_open(index) => {
                self.more(Delta { text: delta, tokens: Vec::new() });
            }
            CallEvent::End { index } if is_open(index) => self.end_item(ItemStatus::Completed),
            CallEvent::Broken { index } if is_open(index) => self.open = None,
            _ => {}
        }
    }

    /// The id of the next item: the same whenever the response is computed again.
    fn item_id(&self, prefix: &str) -> String {
        random::derived_id(prefix, &self.response.id, self.announced)
    }

    /// Ends the item before `item` and begins with that.
    fn begin(&mut self, item: Item, call: Option<usize>) {
        self.end_item(ItemStatus::Completed);
        self.open = Some(OpenItem::begin(self.announced, item, call, &mut self.events));
        self.announced += 1;
    }

    fn more(&mut self, delta: Delta) {
        if let Some(open) = &mut self.open {
            open.push(delta, &mut self.events);
        }
    }

    fn end_item(&mut self, status: ItemStatus) {
        let Some(open) = self.open.take() else { return };
        let (shown, item) = open.end(status, &mut self.events);
        self.response.output.push(shown);
        self.items.push(Arc::new(item));
    }
}

impl Answer for ResponseAnswer {
    const HOLDS_RECEIPT: bool = true;

    fn open(&mut self) -> Vec<Frame> {
        self.state("response.created");
        if self.response.status == Status::Queued {
            self.state("response.queued");
            self.response.status = Status::InProgress;
        }
        self.state("response.in_progress");
        self.events.take()
    }

    fn note(&mut self, index: usize, event: &TextEvent) {
        self.frames(index, event.clone());
    }

    fn frames(&mut self, _: usize, event: TextEvent) -> Vec<Frame> {
        self.tell(event);
        self.events.take()
    }

    fn close(&mut self, usage: &Usage) -> Vec<Frame> {
        self.response.usage = Some(Tokens::from(usage));
        self.store();
        self.state(match self.response.status {
            Status::Incomplete => "response.incomplete",
            Status::Failed => "response.failed",
            _ => "response.completed",
        });
        self.events.take()
    }

    fn refused(error: &HttpError) -> Vec<Frame> {
        let mut events = Events::new(ItemView::default());
        events.add("error", error_members(error));
        events.take()
    }

    fn broken(&mut self, error: &HttpError) -> Vec<Frame> {
        self.end_item(ItemStatus::Incomplete);
        if !self.one_end {
            self.events.add("error", error_members(error));
        }
        self.fail(error);
        self.store();
        self.state("response.failed");
        self.events.take()
    }

    /// An event, since Codex takes a stream of comments alone for dead.
    fn ping(&self) -> Option<Frame> {
        Some(self.events.event("response.in_progress", json!({ "response": self.response })))
    }

    async fn settled(&mut self) {
        settled(self.commit.clone()).await;
        self.commit = None;
    }

    fn whole(&mut self, _: Vec<Collected>, usage: &Usage) -> Value {
        self.close(usage);
        json!(self.response)
    }
}

/// The members of an `error` event.
fn error_members(error: &HttpError) -> Value {
    let body = error.body()["error"].take();
    json!({ "code": body["code"], "message": error.message, "param": body["param"] })
}

#[cfg(test)]
mod tests;
