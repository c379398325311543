//! The loop of a conversation: what the user types is a request or a command.
//!
//! Invariant: what fails is said, and the conversation continues, unless its session cannot be
//! written or the model has ended.

use super::user::TerminalUser;
use crate::commands::agent::maker::{AgentMaker, MadeAgent};
use crate::commands::agent::session::SessionArgs;
use crate::commands::agent::terminal::{AgentTerminal, Typed};
use crate::interrupt;
use agent::{AgentError, WorkEnd};
use anyhow::{Result, bail};
use api::ApiError;

/// A conversation with an agent.
pub(crate) struct Talk<'a> {
    pub(super) maker: &'a AgentMaker<'a>,
    pub(super) sessions: &'a SessionArgs,
    pub(super) made: MadeAgent,
    pub(super) user: TerminalUser,
    /// The user's requests of the session.
    pub(super) requests: Vec<String>,
    /// How much the model reasons, where the user has said so.
    pub(super) effort: Option<String>,
}

impl<'a> Talk<'a> {
    /// A conversation at `terminal` with an agent of `maker`; further sessions are as `sessions`
    /// says.
    pub fn new(
        maker: &'a AgentMaker<'a>,
        sessions: &'a SessionArgs,
        made: MadeAgent,
        terminal: AgentTerminal,
    ) -> Self {
        let user = TerminalUser::new(terminal);
        let (requests, effort) = (Vec::new(), None);
        let mut talk = Self { maker, sessions, made, user, requests, effort };
        talk.begin();
        talk
    }

    /// Carries on until the user ends, with a first request if there is one.
    ///
    /// # Errors
    ///
    /// If the model or the terminal has ended, the session cannot be written, or a signal ends the
    /// process.
    pub fn run(&mut self, prompt: Option<&str>) -> Result<()> {
        let (model, title) = (self.maker.model(), self.made.session.title());
        self.user.note(format!("{model}, {title}; /help lists the commands, Ctrl-D ends"));
        if let Some(prompt) = prompt {
            self.request(prompt)?;
        } else if self.made.agent.is_unfinished() {
            self.work(|made, user| made.agent.go_on(user))?;
        }
        loop {
            match self.user.next() {
                Typed::End => break,
                Typed::Message(text) => self.request(&text)?,
                Typed::Command { name, .. } if name == "exit" => break,
                Typed::Command { name, argument } => {
                    if let Err(error) = self.command(&name, &argument) {
                        self.user.note(format!("/{name}: {error:#}"));
                    }
                }
            }
        }
        if self.user.has_failed() {
            bail!("the thread of the terminal has ended");
        }
        Ok(interrupt::check_end()?)
    }

    /// Begins with the session of the agent.
    pub(super) fn begin(&mut self) {
        self.made.agent.options.request.progress = true;
        self.requests = self.made.session.requests();
        self.user.show_state(&self.made, 0);
    }

    fn request(&mut self, prompt: &str) -> Result<()> {
        self.requests.push(prompt.to_owned());
        self.work(|made, user| made.work(prompt, user))
    }

    fn work(
        &mut self,
        work: impl FnOnce(&mut MadeAgent, &mut TerminalUser) -> Result<WorkEnd, AgentError>,
    ) -> Result<()> {
        self.made.agent.limits = self.maker.limits();
        self.user.begin_work();
        let end = work(&mut self.made, &mut self.user);
        self.user.end_work();
        match end {
            Ok(WorkEnd::Done) => {}
            Ok(WorkEnd::Interrupted) => self.user.note("interrupted"),
            Ok(WorkEnd::Limit) => self.user.note("a limit has ended the work"),
            Ok(WorkEnd::Full) => self.user.note("the context is full: /compact or /undo"),
            Err(error) => self.fail(error)?,
        }
        self.show_state();
        Ok(())
    }

    /// Says what has failed, if the conversation continues.
    fn fail(&mut self, error: AgentError) -> Result<()> {
        match error {
            AgentError::Log(_) | AgentError::Model(ApiError::Stopped) => Err(error.into()),
            AgentError::Host(error) => self.restart_tools(&error.into()),
            AgentError::Model(error) => {
                self.user.note(format!("error: {error}"));
                Ok(())
            }
        }
    }

    /// Says why the tools are gone, and starts them anew.
    fn restart_tools(&mut self, error: &anyhow::Error) -> Result<()> {
        self.user.note(format!("error: {error:#}; the tools are started anew"));
        self.made.restart_tools(&self.made.tools.clone())
    }

    /// Shows the state of the agent below the editor.
    pub(super) fn show_state(&mut self) {
        // Tools that are gone say so at the next call.
        let jobs = self.made.agent.host.jobs().map_or(0, |(_, jobs)| jobs);
        self.user.show_state(&self.made, jobs);
    }
}
