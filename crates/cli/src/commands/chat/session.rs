//! The session of a chat: what it takes from its file, and what it keeps there.

use crate::conversation::Conversation;
use crate::load::SourceArgs;
use crate::model::BUILTIN;
use crate::output::note;
use crate::sessions::{
    HeldSession, Session, SessionFolder, SessionModel, SessionName, SessionSettings, StateDirArgs,
};
use anyhow::Result;
use api::SamplingOptions;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The arguments for the session of a chat.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Sessions")]
pub(super) struct SessionArgs {
    /// Continue the session of this name, or begin it. It is kept after each answer, and its
    /// prefixes with --kv-dir auto
    #[arg(long, value_name = "NAME")]
    session: Option<SessionName>,
    /// Continue in a new session, which begins as a copy of --session
    #[arg(long, value_name = "NAME", requires = "session")]
    fork: Option<SessionName>,
    #[command(flatten)]
    state: StateDirArgs,
}

/// The session of a chat.
pub(super) struct ChatSession {
    /// Where it is kept; `None` in a chat without one.
    held: Option<HeldSession>,
    /// Whether it is a copy of another, and not kept yet.
    is_fork: bool,
    /// What was kept, and the settings of the next answers.
    pub content: Session,
    state: StateDirArgs,
}

impl SessionArgs {
    /// Opens the session that was asked for, and holds it.
    ///
    /// # Errors
    ///
    /// If it cannot be held or read.
    pub fn open(&self) -> Result<ChatSession> {
        let state = self.state.clone();
        let Some(name) = &self.session else {
            return Ok(ChatSession { held: None, is_fork: false, content: Session::new(), state });
        };
        let folder = state.sessions()?;
        if let Some(new) = &self.fork {
            let content = folder.read(name)?;
            let held = folder.hold_new(new.clone())?;
            return Ok(ChatSession { held: Some(held), is_fork: true, content, state });
        }
        let (held, content) = folder.hold(name.clone())?;
        let content = content.unwrap_or_else(Session::new);
        Ok(ChatSession { held: Some(held), is_fork: false, content, state })
    }
}

impl ChatSession {
    /// The arguments for the model, with what the session says unless the model is named.
    pub fn source(&self, source: &SourceArgs, is_named: bool) -> SourceArgs {
        if self.held.is_none() {
            return source.clone();
        }
        let built_in = || (self.content.turns() > 0).then(|| BUILTIN.to_owned());
        let kept = self.content.model.source.clone().or_else(built_in).filter(|_| !is_named);
        kept.into_iter().fold(source.clone(), SourceArgs::with_model).keeping_prefixes()
    }

    /// Keeps a session that is a copy, as it was copied. To be called once the model is loaded: a
    /// chat that does not begin leaves no session.
    ///
    /// # Errors
    ///
    /// If its file cannot be written.
    pub fn keep_fork(&self) -> Result<()> {
        match &self.held {
            Some(held) if self.is_fork => held.save(&self.content),
            _ => Ok(()),
        }
    }

    /// Takes over what answers from now on, and says what differs from before.
    pub fn begin(&mut self, name: &str, source: &SourceArgs) {
        let load = source.load_args();
        let model = SessionModel { name: name.to_owned(), source: source.model_source() };
        let settings = SessionSettings {
            mode: load.mode().name().to_owned(),
            kv_type: load.kv_type().map(|kv_type| kv_type.name().to_owned()),
        };
        let before = &self.content;
        if let (Some(held), true) = (&self.held, before.turns() > 0) {
            let session = held.name();
            if before.model.name != model.name {
                let before = &before.model.name;
                note(format_args!(
                    "session {session}: {before} answered last; its messages are rendered anew for \
                     {name}"
                ));
            } else if before.settings != settings {
                let mode = &before.settings.mode;
                note(format_args!(
                    "session {session}: answers may differ from before, which were computed in \
                     mode {mode}, with {} as the cache's type",
                    before.settings.kv_type.as_deref().unwrap_or("the mode's own")
                ));
            }
        }
        (self.content.model, self.content.settings) = (model, settings);
    }

    /// A line about the session for the start of a chat.
    pub fn greeting(&self) -> Option<String> {
        let name = self.held.as_ref()?.name();
        Some(match self.content.turns() {
            0 => format!("session {name} begins"),
            1 => format!("session {name}: 1 question with its answer so far"),
            turns => format!("session {name}: {turns} questions with their answers so far"),
        })
    }

    /// The sampling options of the next answer. In a session, a seed is drawn where none is given,
    /// so that it can be kept.
    pub fn sampling(&self) -> SamplingOptions {
        let mut sampling = self.content.sampling.clone();
        if self.held.is_some() && (sampling.seed.is_none() || sampling.random_seed) {
            // Every state has random keys from the system.
            sampling.seed = Some(RandomState::new().hash_one(0));
            sampling.random_seed = false;
        }
        sampling
    }

    /// Keeps a conversation, if there is a session.
    ///
    /// # Errors
    ///
    /// If its file cannot be written.
    pub fn keep(&mut self, conversation: &Conversation) -> Result<()> {
        let Some(held) = &self.held else { return Ok(()) };
        self.content.update(conversation);
        held.save(&self.content)
    }

    /// Continues in a new session, which begins with this conversation.
    ///
    /// # Errors
    ///
    /// If there is one of this name, or it cannot be written.
    pub fn fork(&mut self, name: SessionName, conversation: &Conversation) -> Result<()> {
        self.check_other(&name)?;
        let held = self.folder()?.hold_new(name)?;
        self.content.update(conversation);
        held.save(&self.content)?;
        self.held = Some(held);
        Ok(())
    }

    /// Gives the session another name.
    ///
    /// # Errors
    ///
    /// If there is no session, or one of this name.
    pub fn rename(&mut self, name: SessionName) -> Result<()> {
        self.check_other(&name)?;
        match &mut self.held {
            Some(held) => held.rename(name),
            None => anyhow::bail!("/rename: this chat has no session; /fork NAME begins one"),
        }
    }

    /// The name of the session, if there is one.
    pub fn name(&self) -> Option<&SessionName> {
        self.held.as_ref().map(HeldSession::name)
    }

    /// An error if the chat is in the session of this name.
    fn check_other(&self, name: &SessionName) -> Result<()> {
        if self.name() == Some(name) {
            anyhow::bail!("the chat is in {name} already");
        }
        Ok(())
    }

    /// The folder of sessions.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn folder(&self) -> Result<SessionFolder> {
        match &self.held {
            Some(held) => Ok(held.folder().clone()),
            None => self.state.sessions(),
        }
    }
}
