//! The commands of a conversation: lines that begin with `/`.

use crate::sessions::SessionName;
use anyhow::{Context, Result, anyhow, bail};
use std::path::PathBuf;

/// What `/help` prints.
pub(super) const HELP: &str = "\
/help            this list
/system [TEXT]   set the system prompt; without TEXT remove it
/reset           start a new conversation with the same system prompt
/save FILE       write the conversation to a file
/load FILE       continue a saved conversation
/rewind [N]      remove the last N questions with their answers, by default 1
/fork NAME       continue in a new session, which begins as a copy
/rename NAME     give the session another name
/sessions        list the sessions
/stats           token counts and rates of the last answer, memory in use
/think [on|off]  turn reasoning before the answer on or off
/exit            end, as Ctrl-D does
Ctrl-C stops an answer. A line that begins with // is a message that begins with /.";

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlashCommand {
    Help,
    System(Option<String>),
    Reset,
    Save(PathBuf),
    Load(PathBuf),
    Rewind(usize),
    Fork(SessionName),
    Rename(SessionName),
    Sessions,
    Stats,
    Think(Option<bool>),
    Exit,
}

impl SlashCommand {
    /// Parses a line; `None` for messages.
    pub fn parse(line: &str) -> Option<Result<Self>> {
        let line = line.trim();
        if !line.starts_with('/') || line.starts_with("//") {
            return None;
        }
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        Some(Self::from_words(name, rest.trim()))
    }

    /// Whether what a session keeps is another afterwards.
    pub fn changes_the_conversation(&self) -> bool {
        matches!(
            self,
            Self::System(_) | Self::Reset | Self::Load(_) | Self::Rewind(_) | Self::Think(_)
        )
    }

    fn from_words(name: &str, rest: &str) -> Result<Self> {
        let file = || match rest {
            "" => Err(anyhow!("{name}: a file name is missing")),
            rest => Ok(PathBuf::from(rest)),
        };
        Ok(match name {
            "/help" | "/?" => Self::Help,
            "/system" => Self::System((!rest.is_empty()).then(|| rest.to_owned())),
            "/reset" => Self::Reset,
            "/save" => Self::Save(file()?),
            "/load" => Self::Load(file()?),
            "/rewind" => Self::Rewind(count(rest)?),
            "/fork" => Self::Fork(session(name, rest)?),
            "/rename" => Self::Rename(session(name, rest)?),
            "/sessions" => Self::Sessions,
            "/stats" => Self::Stats,
            "/think" => Self::Think(switch(rest)?),
            "/exit" | "/quit" => Self::Exit,
            _ => bail!("{name}: no such command; /help lists them"),
        })
    }
}

fn count(word: &str) -> Result<usize> {
    match word {
        "" => Ok(1),
        word => match word.parse() {
            Ok(0) | Err(_) => bail!("/rewind: expected a number from 1 on, found {word}"),
            Ok(count) => Ok(count),
        },
    }
}

fn session(command: &str, name: &str) -> Result<SessionName> {
    name.parse().with_context(|| command.to_owned())
}

fn switch(word: &str) -> Result<Option<bool>> {
    match word {
        "" => Ok(None),
        "on" => Ok(Some(true)),
        "off" => Ok(Some(false)),
        other => bail!("/think: expected on or off, found {other}"),
    }
}

/// The message in a line: a doubled slash at its start stands for one.
pub(super) fn message(line: &str) -> &str {
    if line.starts_with("//") { &line[1..] } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<SlashCommand>) {
        assert_eq!(SlashCommand::parse(line).map(Result::unwrap), expected, "{line}");
    }

    #[test]
    fn commands_and_messages_are_distinguished() {
        check("/help", Some(SlashCommand::Help));
        check("  /think off ", Some(SlashCommand::Think(Some(false))));
        check("/think", Some(SlashCommand::Think(None)));
        check("/system  Be brief. ", Some(SlashCommand::System(Some("Be brief.".into()))));
        check("/save a b.json", Some(SlashCommand::Save("a b.json".into())));
        check("/rewind", Some(SlashCommand::Rewind(1)));
        check("/rewind 3", Some(SlashCommand::Rewind(3)));
        check("/fork a b", Some(SlashCommand::Fork("a b".parse().unwrap())));
        check("what is /help?", None);
        check("//help", None);
        assert_eq!(message("//help"), "/help");
        assert!(SlashCommand::parse("/dance").unwrap().is_err());
        for wrong in ["/save", "/rewind 0", "/rewind x", "/fork", "/fork a/b", "/rename .."] {
            assert!(SlashCommand::parse(wrong).unwrap().is_err(), "{wrong}");
        }
        assert!(SlashCommand::parse("/think maybe").unwrap().is_err());
    }
}
