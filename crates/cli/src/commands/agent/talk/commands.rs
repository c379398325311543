//! What the commands of a conversation do.

use super::conversation::Talk;
use super::user::confirm_name;
use crate::commands::agent::markdown::markdown;
use crate::commands::agent::{mcp, tools};
use agent::{AgentUser, Confirm, Undone};
use anyhow::{Context, Result, anyhow, bail};
use std::fs::File;
use std::io::Write;

/// The commands, with what `/help` says of them.
pub(crate) const COMMANDS: &[(&str, &str)] = &[
    ("new", "begin a new session; this one is kept"),
    ("undo", "take the last request back: files and conversation"),
    ("compact [TEXT]", "replace the conversation by a summary; TEXT says what matters"),
    ("plan", "write nothing from now on; again: end the plan"),
    ("sandbox workspace|read-only|off", "what the tools may write; they are started anew"),
    ("confirm outside|writes|refuse|allow", "before which calls to ask"),
    ("mcp", "the tools of MCP servers"),
    ("jobs", "commands that run in the background"),
    ("session", "the session, its model and its folder"),
    ("fork NAME", "continue in a new session, which begins as a copy"),
    ("history", "the requests of this session"),
    ("effort none|minimal|low|medium|high|xhigh|max", "how much the model reasons"),
    ("export [FILE]", "write the conversation to a new file as Markdown"),
    ("help", "this list"),
    ("exit", "end"),
];

impl Talk<'_> {
    /// Follows a command.
    ///
    /// # Errors
    ///
    /// If its argument is wrong or it fails.
    pub(super) fn command(&mut self, name: &str, argument: &str) -> Result<()> {
        match name {
            "new" => self.begin_new()?,
            "undo" => self.undo()?,
            "compact" => self.compact(argument)?,
            "plan" => self.toggle_plan()?,
            "sandbox" => self.set_sandbox(argument)?,
            "confirm" => self.set_confirm(argument)?,
            "mcp" => self.list_servers(),
            "jobs" => self.list_jobs()?,
            "session" => self.describe_session()?,
            "fork" => self.fork(argument)?,
            "history" => self.list_requests(),
            "effort" => self.set_effort(argument)?,
            "export" => self.export(argument)?,
            _ => bail!("expected a command of /help"),
        }
        self.show_state();
        Ok(())
    }

    /// Shows lines, or another if there are none.
    fn list(&self, lines: impl IntoIterator<Item = String>, none: &str) {
        let lines: Vec<String> = lines.into_iter().collect();
        self.user.note(if lines.is_empty() { none.to_owned() } else { lines.join("\n") });
    }

    fn begin_new(&mut self) -> Result<()> {
        let (open, confirm) = (self.sessions.open_new()?, self.made.agent.policy.confirm);
        let tools = (&self.made.tools, confirm);
        self.user.begin_work();
        let made = self.maker.make(open, tools, &|| self.user.is_interrupted());
        let is_interrupted = self.user.is_interrupted();
        self.user.end_work();
        let mut made = made?;
        if is_interrupted {
            bail!("interrupted: the conversation continues");
        }
        if let Some(effort) = &self.effort {
            self.maker.set_effort(&mut made, effort)?;
        }
        if self.made.is_planning() {
            made.enter_plan()?;
        }
        self.made = made;
        self.begin();
        self.user.note(format!("a new conversation begins; {}", self.made.session.title()));
        Ok(())
    }

    fn undo(&mut self) -> Result<()> {
        let last = self.made.agent.session.requests().last();
        let has_changes = last.is_some_and(|request| !request.changes.is_empty());
        if has_changes && (self.made.is_planning() || !self.made.tools.may_write()) {
            bail!("the tools cannot write the files back: end the plan, or /sandbox workspace");
        }
        let undone = self.made.agent.undo()?;
        if undone.is_some() {
            self.requests.pop();
        }
        self.list(undone.into_iter().flat_map(undone_lines), "nothing to undo");
        Ok(())
    }

    fn compact(&mut self, argument: &str) -> Result<()> {
        let matters = Some(argument).filter(|it| !it.is_empty());
        self.made.agent.limits = self.maker.limits();
        self.user.begin_work();
        let compacted = self.made.agent.compact(matters, &mut self.user);
        let is_interrupted = self.user.is_interrupted();
        self.user.end_work();
        match compacted? {
            None if is_interrupted => self.user.note("interrupted: nothing has changed"),
            None => {
                self.user.note("no summary came about that frees a third: nothing has changed");
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn toggle_plan(&mut self) -> Result<()> {
        let jobs = self.made.agent.host.jobs()?.1;
        let what = match self.made.is_planning() {
            true => {
                self.made.leave_plan()?;
                "the plan has ended"
            }
            false => {
                self.made.enter_plan()?;
                "nothing is written until the next /plan"
            }
        };
        self.user.note(format!("{what}; {}", started_anew(jobs)));
        Ok(())
    }

    fn set_sandbox(&mut self, argument: &str) -> Result<()> {
        let sandbox = tools::sandbox(argument).map_err(|problem| anyhow!(problem))?;
        let jobs = self.made.agent.host.jobs()?.1;
        let wanted = self.made.tools.with_sandbox(sandbox);
        self.made.restart_tools(&wanted)?;
        let when = if self.made.is_planning() { " after the plan" } else { "" };
        let is_asked = if wanted.is_confined() { "" } else { ", and each call is outside" };
        let anew = started_anew(jobs);
        self.user.note(format!("the sandbox is {argument}{when}{is_asked}; {anew}"));
        Ok(())
    }

    fn set_confirm(&mut self, argument: &str) -> Result<()> {
        let confirm = argument.parse::<Confirm>().map_err(|problem| anyhow!(problem))?;
        self.made.agent.policy.confirm = confirm;
        self.user.note(format!("the questions are {}", confirm_name(confirm)));
        Ok(())
    }

    fn list_servers(&self) {
        self.user.note(mcp::lines(&self.made.agent.others).join("\n"));
    }

    fn list_jobs(&mut self) -> Result<()> {
        let (lines, _) = self.made.agent.host.jobs()?;
        self.list(lines, "no command runs");
        Ok(())
    }

    fn describe_session(&self) -> Result<()> {
        let (title, model) = (self.made.session.title(), self.maker.model());
        let folder = self.made.tools.workspace()?;
        self.user.note(format!("{title}, {model}, {}", folder.display()));
        Ok(())
    }

    fn fork(&mut self, argument: &str) -> Result<()> {
        let name = argument.parse()?;
        self.made.session.fork(&mut self.made.agent.session, name)?;
        self.user.note(format!("the conversation continues in {}", self.made.session.title()));
        Ok(())
    }

    fn list_requests(&self) {
        let lines = (1..).zip(&self.requests).map(|(number, text)| format!("{number}. {text}"));
        self.list(lines, "no request yet");
    }

    fn set_effort(&mut self, argument: &str) -> Result<()> {
        if !api::EFFORTS.contains(&argument) {
            bail!("expected {}, found {argument:?}", api::EFFORTS.join(", "));
        }
        let anew = self.maker.set_effort(&mut self.made, argument)?;
        self.effort = Some(argument.to_owned());
        let cost = match anew {
            Some(tokens) => format!("the template renders it anew: {tokens} tokens are computed"),
            None => "the conversation continues from its tokens".to_owned(),
        };
        self.user.note(format!("the effort of reasoning is {argument}; {cost}"));
        Ok(())
    }

    fn export(&self, argument: &str) -> Result<()> {
        let title = self.made.session.title().to_string();
        let path = match argument {
            "" => format!("{}.md", title.replace(' ', "-")),
            path => path.to_owned(),
        };
        let text = markdown(&title, self.made.agent.model.messages());
        let file = File::options().write(true).create_new(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.with_context(|| format!("cannot write {path}, which must be a new file"))?;
        self.user.note(format!("written to {path}"));
        Ok(())
    }
}

/// What becomes of jobs where the tools are started anew.
fn started_anew(jobs: usize) -> String {
    match jobs {
        0 => "the tools are started anew".to_owned(),
        1 => "the tools are started anew, and 1 job has ended".to_owned(),
        jobs => format!("the tools are started anew, and {jobs} jobs have ended"),
    }
}

/// What was undone, as lines.
fn undone_lines(undone: Undone) -> Vec<String> {
    let head = std::iter::once("the last request is taken back".to_owned());
    let commands = undone.commands.into_iter();
    let commands = commands.map(|command| format!("not undone, what it changed: {command}"));
    head.chain(undone.files).chain(undone.kept).chain(commands).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_all_values() {
        let names: Vec<&str> = agent::CONFIRMS.iter().map(|(name, _)| *name).collect();
        for usage in
            [format!("effort {}", api::EFFORTS.join("|")), format!("confirm {}", names.join("|"))]
        {
            assert!(COMMANDS.iter().any(|(name, _)| *name == usage), "{usage}");
        }
        let sandbox = COMMANDS.iter().find_map(|(name, _)| name.strip_prefix("sandbox "));
        assert!(sandbox.unwrap().split('|').all(|name| tools::sandbox(name).is_ok()));
    }
}
