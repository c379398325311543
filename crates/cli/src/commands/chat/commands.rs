//! What the commands of a conversation do. Each says on standard error what it has done.

use super::slash::{self, SlashCommand};
use super::talk::{Chat, Next};
use crate::commands::sessions;
use crate::conversation::Conversation;
use crate::input;
use crate::load::LoadedModel;
use crate::output::{counted, note};
use crate::sessions::{SessionName, printable_lines};
use anyhow::{Context, Result};
use std::path::Path;

impl Chat {
    /// Follows a command, and keeps what it changes.
    pub(super) fn command(&mut self, loaded: &LoadedModel, command: SlashCommand) -> Result<Next> {
        let changes = command.changes_the_conversation();
        let next = self.follow(loaded, command)?;
        if changes {
            self.keep();
        }
        Ok(next)
    }

    fn follow(&mut self, loaded: &LoadedModel, command: SlashCommand) -> Result<Next> {
        match command {
            SlashCommand::Help => note(slash::HELP),
            SlashCommand::System(text) => self.set_system(text),
            SlashCommand::Reset => self.reset(),
            SlashCommand::Save { path, force } => {
                let saved = self.conversation.save(&path, force);
                saved.with_context(|| format!("cannot save to {}", path.display()))?;
                note(format_args!("saved to {}", path.display()));
            }
            SlashCommand::Load(path) => {
                self.conversation = Conversation::load(&path)
                    .with_context(|| format!("cannot load {}", path.display()))?;
                note(counted(self.conversation.messages().len(), "message"));
            }
            SlashCommand::Read(path) => self.read_file(&path)?,
            SlashCommand::Rewind(count) => {
                self.conversation.rewind(count)?;
                let left = counted(self.conversation.turns().len() / 2, "question");
                note(format_args!("{} removed, {left} left", counted(count, "question")));
            }
            SlashCommand::History => note(printable_lines(&self.conversation.text()).trim_end()),
            SlashCommand::Fork(name) => {
                self.session.fork(name.clone(), &self.conversation)?;
                note(format_args!("the chat continues in session {name}"));
            }
            SlashCommand::Rename(name) => self.rename(name)?,
            SlashCommand::Sessions => {
                note(sessions::lines(&self.session.folder()?.list()?).trim_end());
            }
            SlashCommand::Stats => self.stats(loaded),
            SlashCommand::Think(choice) => self.think(choice),
            SlashCommand::Effort(effort) => {
                note(format_args!("the effort of reasoning is {effort}"));
                self.session.content.effort = Some(effort);
                self.session.content.think = None;
            }
            SlashCommand::Context(None) => self.context(loaded)?,
            SlashCommand::Context(Some(tokens)) => {
                let source = self.source.clone().with_context(tokens);
                return Ok(Next::Load(Box::new(source)));
            }
            SlashCommand::Switch(model) => return self.switch(model),
            SlashCommand::Exit => return Ok(Next::End),
        }
        Ok(Next::Line)
    }

    fn set_system(&mut self, text: Option<String>) {
        note(match &text {
            Some(_) => "the system prompt is set",
            None => "there is no system prompt",
        });
        self.conversation.system = text;
    }

    /// Begins a new conversation. What a session keeps is replaced with the next answer only.
    fn reset(&mut self) {
        let turns = self.conversation.turns().len() / 2;
        self.conversation = Conversation::new(self.conversation.system.take());
        self.read.clear();
        let kept = self.session.name().map_or_else(String::new, |name| {
            format!(
                "; session {name} keeps {} until the next answer, which replaces them",
                counted(turns, "question")
            )
        });
        note(format_args!("a new conversation begins{kept}"));
    }

    fn read_file(&mut self, path: &Path) -> Result<()> {
        let text = input::read_path(path)?;
        let lines = counted(text.lines().count(), "line");
        note(format_args!("{}: {lines} before the next message", path.display()));
        self.read.push(text.trim_end().to_owned());
        Ok(())
    }

    fn rename(&mut self, name: SessionName) -> Result<()> {
        self.session.rename(name.clone())?;
        note(format_args!("the session is {name} now"));
        Ok(())
    }

    fn stats(&self, loaded: &LoadedModel) {
        note(&loaded.description);
        match &self.last {
            Some(answer) => note(format_args!("last answer: {}", answer.stats())),
            None => note("no answer yet"),
        }
    }

    fn think(&mut self, choice: Option<bool>) {
        // Without an argument it toggles; templates think by default.
        self.session.content.effort = None;
        let think = &mut self.session.content.think;
        let think = *think.insert(choice.unwrap_or(!think.unwrap_or(true)));
        note(format_args!("thinking is {}", if think { "on" } else { "off" }));
    }

    /// Says how much of the context the conversation takes.
    fn context(&self, loaded: &LoadedModel) -> Result<()> {
        let most = loaded.service.info().context_length;
        let request = self.request(self.session.sampling());
        let taken = match self.conversation.messages().is_empty() {
            true => 0,
            false => loaded.service.prepare_chat(&request)?.prompt().len(),
        };
        note(format_args!("{taken} of {most} tokens of context"));
        Ok(())
    }

    fn switch(&self, model: String) -> Result<Next> {
        let source = self.source.clone().with_model(model);
        // What is wrong with the files shows before this model is unloaded.
        let path = source.locate()?;
        source.describe(&path).with_context(|| format!("cannot load {}", path.display()))?;
        Ok(Next::Load(Box::new(source)))
    }
}
