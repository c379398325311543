//! Conversations: items under an id, to which responses add theirs.
//!
//! A conversation is the last of a chain of turns. It is changed under a [`Lease`], of which there
//! is one at a time, so that no change is lost. The conversation used longest ago is removed first.

use crate::http::app::unix_now;
use crate::http::error::HttpError;
use crate::http::random;
use crate::protocols::responses::held_bytes::{ByteCharge, HeldBytes};
use crate::protocols::responses::records::{Named, Owner, Records, key};
use crate::protocols::responses::turn::StoredTurn;
use axum::http::StatusCode;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use state::{Change, Commit};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The table of conversations.
pub(crate) const CONVERSATIONS: &str = "conversations";

/// All conversations, in the order of their last use.
#[derive(Debug)]
pub(crate) struct ConversationStore {
    most: usize,
    held: HeldBytes,
    records: Weak<Records>,
    conversations: Mutex<IndexMap<Named, Held>>,
}

/// A conversation and what is known of it here.
#[derive(Debug)]
struct Held {
    conversation: StoredConversation,
    leased: bool,
    _charge: ByteCharge,
}

/// A conversation.
#[derive(Clone, Debug)]
pub(crate) struct StoredConversation {
    /// Seconds since 1970.
    pub created: u64,
    pub metadata: Map<String, Value>,
    /// The last turn, unless there is no item.
    pub last: Option<Arc<StoredTurn>>,
}

/// A conversation in the file.
#[derive(Serialize, Deserialize)]
struct ConversationText {
    created: u64,
    metadata: Map<String, Value>,
    turn: Option<u64>,
}

/// Why a conversation cannot be leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unleased {
    Unknown,
    /// A response is being made for it, or its items are being changed.
    Busy,
}

/// The right to change the items of a conversation, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    store: Arc<ConversationStore>,
    name: Named,
    /// The last turn.
    pub last: Option<Arc<StoredTurn>>,
}

impl ConversationStore {
    /// A store of at most so many conversations, which are written to `records`, if there are any.
    pub fn new(most: usize, held: HeldBytes, records: Weak<Records>) -> Self {
        Self { most, held, records, conversations: Mutex::default() }
    }

    /// Adds the conversations of the file, whose turns are `turns`.
    pub fn restore(&self, turns: &HashMap<u64, Arc<StoredTurn>>) {
        let Some(records) = self.records.upgrade() else { return };
        let mut found = records.named::<ConversationText>(CONVERSATIONS);
        // As many microseconds as numbers of turns count.
        found.sort_by_key(|(_, text)| text.turn.unwrap_or(text.created.saturating_mul(1_000_000)));
        for (name, ConversationText { created, metadata, turn }) in found {
            let last = turn.and_then(|turn| turns.get(&turn)).cloned();
            if turn.is_some() && last.is_none() {
                self.forget(&name);
                continue;
            }
            self.insert(
                &mut self.conversations(),
                name,
                StoredConversation { created, metadata, last },
            );
        }
    }

    /// Adds a conversation of `owner`, whose id it returns.
    pub fn create(
        &self,
        owner: &Owner,
        metadata: Map<String, Value>,
        last: Option<Arc<StoredTurn>>,
    ) -> (String, StoredConversation, Option<Commit>) {
        let name = (owner.clone(), random::id("conv_"));
        let conversation = StoredConversation { created: unix_now(), metadata, last };
        let mut conversations = self.conversations();
        self.insert(&mut conversations, name.clone(), conversation.clone());
        let commit = self.save(&name, &conversation);
        (name.1, conversation, commit)
    }

    /// The conversation `id` of `owner`.
    pub fn get(&self, owner: &Owner, id: &str) -> Option<StoredConversation> {
        let mut conversations = self.conversations();
        let (name, held) = conversations.shift_remove_entry(&(owner.clone(), id.to_owned()))?;
        let conversation = held.conversation.clone();
        conversations.insert(name, held);
        Some(conversation)
    }

    /// Gives the conversation other metadata; `None` if there is none of this id.
    pub fn describe(
        &self,
        owner: &Owner,
        id: &str,
        metadata: Map<String, Value>,
    ) -> Option<(StoredConversation, Option<Commit>)> {
        let name = (owner.clone(), id.to_owned());
        let mut conversations = self.conversations();
        let held = conversations.get_mut(&name)?;
        held.conversation.metadata = metadata;
        held._charge = self.charge(&held.conversation);
        let conversation = held.conversation.clone();
        let commit = self.save(&name, &conversation);
        Some((conversation, commit))
    }

    /// Removes a conversation; `None` if there is none of this id. A response that is being made
    /// for it adds nothing.
    pub fn remove(&self, owner: &Owner, id: &str) -> Option<Option<Commit>> {
        let name = (owner.clone(), id.to_owned());
        let mut conversations = self.conversations();
        conversations.shift_remove(&name)?;
        Some(self.forget(&name))
    }

    /// Gives the right to change the items of a conversation.
    ///
    /// # Errors
    /// If the conversation is unknown, or another request has the right.
    pub fn lease(self: &Arc<Self>, owner: &Owner, id: &str) -> Result<Lease, Unleased> {
        let name = (owner.clone(), id.to_owned());
        let mut conversations = self.conversations();
        let (name, mut held) = conversations.shift_remove_entry(&name).ok_or(Unleased::Unknown)?;
        let was_leased = std::mem::replace(&mut held.leased, true);
        let last = held.conversation.last.clone();
        conversations.insert(name.clone(), held);
        match was_leased {
            true => Err(Unleased::Busy),
            false => Ok(Lease { store: Arc::clone(self), name, last }),
        }
    }

    /// Removes the conversations used longest ago while there are too many, or `needs` memory.
    pub fn trim(&self, needs: impl Fn() -> bool) {
        let mut conversations = self.conversations();
        while conversations.len() > self.most || needs() {
            let oldest = conversations.values().position(|held| !held.leased);
            let oldest = oldest.and_then(|at| conversations.shift_remove_index(at));
            let Some((name, _)) = oldest else { return };
            self.forget(&name);
        }
    }

    fn insert(
        &self,
        conversations: &mut IndexMap<Named, Held>,
        name: Named,
        conversation: StoredConversation,
    ) {
        let _charge = self.charge(&conversation);
        conversations.insert(name, Held { conversation, leased: false, _charge });
    }

    fn charge(&self, conversation: &StoredConversation) -> ByteCharge {
        let text =
            |(name, value): (&String, &Value)| 64 + name.len() + value.as_str().map_or(0, str::len);
        let metadata: usize = conversation.metadata.iter().map(text).sum();
        self.held.charge(size_of::<Held>() + 128 + metadata)
    }

    fn save(&self, name: &Named, conversation: &StoredConversation) -> Option<Commit> {
        let records = self.records.upgrade()?;
        let StoredConversation { created, metadata, last } = conversation;
        let mut changes = Vec::new();
        let turn = last.as_ref().map(|turn| records.save(turn, &mut changes));
        let text = ConversationText { created: *created, metadata: metadata.clone(), turn };
        changes.push(Change::put(CONVERSATIONS, key(name), json!(text).to_string()));
        Some(records.write(changes))
    }

    fn forget(&self, name: &Named) -> Option<Commit> {
        let records = self.records.upgrade()?;
        Some(records.write(vec![Change::remove(CONVERSATIONS, key(name))]))
    }

    fn conversations(&self) -> MutexGuard<'_, IndexMap<Named, Held>> {
        // Each change leaves them whole.
        self.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Makes `last` the last turn of the conversation, if it still exists.
    pub fn change(self, last: Option<Arc<StoredTurn>>) -> Option<Commit> {
        let mut conversations = self.store.conversations();
        let held = conversations.get_mut(&self.name)?;
        // Held until the new record is written: with it goes the record of the turn.
        let before = std::mem::replace(&mut held.conversation.last, last);
        let conversation = held.conversation.clone();
        let commit = self.store.save(&self.name, &conversation);
        drop(before);
        commit
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(held) = self.store.conversations().get_mut(&self.name) {
            held.leased = false;
        }
    }
}

/// The right to change the conversation `id`.
pub(crate) fn lease(
    store: &Arc<ConversationStore>,
    owner: &Owner,
    id: &str,
) -> Result<Lease, HttpError> {
    store.lease(owner, id).map_err(|why| match why {
        Unleased::Unknown => unknown(id),
        Unleased::Busy => {
            let message = format!(
                "conversation {id} is being changed by another request; try again when that has \
                 ended"
            );
            HttpError::request(StatusCode::CONFLICT, message).with_code("conversation_locked")
        }
    })
}

/// 404: there is no conversation `id`.
pub(crate) fn unknown(id: &str) -> HttpError {
    let message = format!("conversation with id '{id}' not found");
    let mut error = HttpError::invalid("conversation", message);
    error.status = StatusCode::NOT_FOUND;
    error.with_code("conversation_not_found")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(most: usize) -> Arc<ConversationStore> {
        Arc::new(ConversationStore::new(most, HeldBytes::default(), Weak::new()))
    }

    fn create(store: &ConversationStore, owner: &Owner) -> String {
        store.create(owner, Map::new(), None).0
    }

    #[test]
    fn one_change_at_a_time() {
        let store = store(9);
        let id = create(&store, &None);
        let lease = store.lease(&None, &id).unwrap();
        assert_eq!(store.lease(&None, &id).unwrap_err(), Unleased::Busy);
        let turn = StoredTurn::new(None, [0; 16], Vec::new(), Vec::new(), &store.held);
        lease.change(Some(Arc::new(turn)));
        assert!(store.lease(&None, &id).unwrap().last.is_some());
        let lease = store.lease(&None, &id).unwrap();
        store.remove(&None, &id).unwrap();
        lease.change(None);
        assert_eq!(store.lease(&None, &id).unwrap_err(), Unleased::Unknown);
    }

    #[test]
    fn a_key_sees_its_own_only() {
        let store = store(9);
        let id = create(&store, &Some("a".into()));
        let other = Some("b".into());
        assert!(store.get(&other, &id).is_none() && store.get(&None, &id).is_none());
        assert!(store.describe(&other, &id, Map::new()).is_none());
        assert!(store.remove(&other, &id).is_none());
        assert_eq!(store.lease(&other, &id).unwrap_err(), Unleased::Unknown);
        assert!(store.get(&Some("a".into()), &id).is_some());
    }

    #[test]
    fn the_one_used_longest_ago_goes_first_unless_it_is_leased() {
        let store = store(2);
        let ids: Vec<String> = (0..3).map(|_| create(&store, &None)).collect();
        store.get(&None, &ids[0]);
        store.trim(|| false);
        let has = || [0, 1, 2].map(|at: usize| store.get(&None, &ids[at]).is_some());
        assert_eq!(has(), [true, false, true]);
        let lease = store.lease(&None, &ids[0]).unwrap();
        store.get(&None, &ids[2]);
        store.trim(|| store.conversations.try_lock().is_err() && store.held.bytes() > 0);
        assert_eq!(has(), [true, false, false]);
        drop(lease);
        store.trim(|| store.held.bytes() > 0);
        assert_eq!((has(), store.held.bytes()), ([false; 3], 0));
    }
}
