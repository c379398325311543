//! What the threads of all sessions share.

use super::outbox::Outbox;
use super::program_end::ProgramEnd;
use super::questions::OpenQuestions;
use super::session_handle::SessionHandle;
use super::wire::AcpError;
use crate::commands::agent::maker::AgentMaker;
use crate::commands::agent::session::SessionArgs;
use crate::commands::agent::tools::ToolArgs;
use crate::output;
use agent::Confirm;
use serde_json::json;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most sessions at a time, each of which has a process with tools.
const MAX_SESSIONS: usize = 64;

/// What the arguments say of all sessions.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands::agent) struct AcpSettings<'a> {
    /// The tools, without their folder.
    pub tools: &'a ToolArgs,
    /// Where sessions are kept.
    pub session: &'a SessionArgs,
    /// When the user is asked at first.
    pub confirm: Confirm,
}

/// What all threads use.
pub(super) struct AcpShared<'a> {
    /// Makes the agents.
    pub maker: &'a AgentMaker<'a>,
    /// What the arguments say.
    pub settings: AcpSettings<'a>,
    /// Takes messages to the client.
    pub outbox: Outbox,
    /// The end of the program.
    pub end: ProgramEnd,
    /// What the user is asked.
    pub questions: OpenQuestions,
    shows_notices: AtomicBool,
    begun: AtomicUsize,
    sessions: Mutex<HashMap<String, SessionHandle>>,
    places: SessionPlaces,
}

/// The places of sessions: as many more references as there are places that are taken.
#[derive(Debug, Default)]
struct SessionPlaces(Arc<()>);

/// The place of a session that is open or being opened.
#[derive(Debug)]
pub(super) struct SessionPlace {
    _reference: Arc<()>,
}

impl SessionPlaces {
    /// Takes a place, if one is free.
    fn take(&self) -> Option<SessionPlace> {
        let place = SessionPlace { _reference: Arc::clone(&self.0) };
        (Arc::strong_count(&self.0) - 1 <= MAX_SESSIONS).then_some(place)
    }
}

impl<'a> AcpShared<'a> {
    /// What threads share, without a session.
    pub fn new(
        maker: &'a AgentMaker<'a>,
        settings: AcpSettings<'a>,
        outbox: Outbox,
        end: ProgramEnd,
    ) -> Self {
        Self {
            maker,
            settings,
            outbox,
            end,
            questions: OpenQuestions::default(),
            shows_notices: AtomicBool::new(false),
            begun: AtomicUsize::new(0),
            sessions: Mutex::default(),
            places: SessionPlaces::default(),
        }
    }

    /// Whether the client shows notices.
    pub fn set_notices(&self, shows: bool) {
        self.shows_notices.store(shows, Ordering::Relaxed);
    }

    /// Tells the user of a session something that is no part of it: through the client, if it shows
    /// notices, else on standard error.
    pub fn notice(&self, session: &str, title: &str) {
        if self.shows_notices.load(Ordering::Relaxed) {
            let notice = json!({"sessionUpdate": "notice", "severity": "info", "title": title});
            self.outbox.update(session, notice);
        } else {
            output::note(format_args!("session {session}: {title}"));
        }
    }

    /// An id for a session that is not kept.
    pub fn unkept_id(&self) -> String {
        format!("unkept-{}", self.begun.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The sessions by their ids.
    pub fn sessions(&self) -> MutexGuard<'_, HashMap<String, SessionHandle>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a session, which is free again when this is dropped.
    ///
    /// # Errors
    ///
    /// If there are too many.
    pub fn place(&self) -> Result<SessionPlace, AcpError> {
        self.places.take().ok_or_else(|| {
            AcpError::internal(format!("expected at most {MAX_SESSIONS} sessions at a time"))
        })
    }

    /// Adds a session.
    ///
    /// # Errors
    ///
    /// If the program ends.
    pub fn add(&self, id: &str, handle: SessionHandle) -> Result<(), AcpError> {
        let mut sessions = self.sessions();
        if self.end.has_come() {
            return Err(AcpError::internal("the agent ends"));
        }
        sessions.insert(id.to_owned(), handle);
        Ok(())
    }

    /// Ends all sessions, and with them their threads.
    pub fn end(&self) {
        self.end.come();
        self.sessions().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_session_has_ended() {
        let places = SessionPlaces::default();
        let mut taken: Vec<_> = (0..MAX_SESSIONS).map(|_| places.take().unwrap()).collect();
        assert!(places.take().is_none() && places.take().is_none());
        taken.pop();
        let again = places.take();
        assert!(again.is_some() && places.take().is_none());
    }
}
