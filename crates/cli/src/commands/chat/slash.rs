//! The commands of a conversation: lines that begin with `/`.

use crate::sessions::SessionName;
use anyhow::{Context, Result, anyhow, bail};
use std::path::PathBuf;

/// What `/help` prints.
pub(super) const HELP: &str = "\
/help            this list
/system [TEXT]   set the system prompt; without TEXT remove it
/reset           start a new conversation with the same system prompt
/history         print the messages
/read FILE       put the text of a file before the next message
/save FILE       write the conversation to a new file; /save --force FILE replaces one
/load FILE       continue a saved conversation
/rewind [N]      remove the last N questions with their answers, by default 1
/fork NAME       continue in a new session, which begins as a copy
/rename NAME     give the session another name
/sessions        list the sessions
/stats           token counts and rates of the last answer, memory in use
/ctx [N]         tokens of the context that are taken; with N load the model with a context of N
/switch MODEL    continue with another model
/think [on|off]  turn reasoning before the answer on or off
/effort EFFORT   how much the model reasons: none, minimal, low, medium, high, xhigh or max
/exit            end, as Ctrl-D does
Ctrl-C stops an answer. A line that begins with // is a message that begins with /.";

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlashCommand {
    Help,
    System(Option<String>),
    Reset,
    History,
    Read(PathBuf),
    Save {
        path: PathBuf,
        /// Whether an existing file is replaced.
        force: bool,
    },
    Load(PathBuf),
    Rewind(usize),
    Fork(SessionName),
    Rename(SessionName),
    Sessions,
    Stats,
    Context(Option<usize>),
    Switch(String),
    Think(Option<bool>),
    Effort(String),
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
            Self::System(_) | Self::Load(_) | Self::Rewind(_) | Self::Think(_) | Self::Effort(_)
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
            "/history" => Self::History,
            "/read" => Self::Read(file()?),
            "/save" if rest == "--force" => bail!("{name}: a file name is missing"),
            "/save" => match rest.split_once(char::is_whitespace) {
                Some(("--force", path)) => Self::Save { path: path.trim().into(), force: true },
                _ => Self::Save { path: file()?, force: false },
            },
            "/load" => Self::Load(file()?),
            "/rewind" => Self::Rewind(count(name, rest)?.unwrap_or(1)),
            "/fork" => Self::Fork(session(name, rest)?),
            "/rename" => Self::Rename(session(name, rest)?),
            "/sessions" => Self::Sessions,
            "/stats" => Self::Stats,
            "/ctx" => Self::Context(count(name, rest)?),
            "/switch" if rest.is_empty() => bail!("{name}: a model is missing"),
            "/switch" => Self::Switch(rest.to_owned()),
            "/think" => Self::Think(switch(rest)?),
            "/effort" if api::EFFORTS.contains(&rest) => Self::Effort(rest.to_owned()),
            "/effort" => {
                bail!("{name}: expected {}, found {rest:?}", api::EFFORTS.join(", "))
            }
            "/exit" | "/quit" => Self::Exit,
            _ => bail!("{name}: no such command; /help lists them"),
        })
    }
}

fn count(command: &str, word: &str) -> Result<Option<usize>> {
    match (word, word.parse()) {
        ("", _) => Ok(None),
        (_, Ok(0) | Err(_)) => bail!("{command}: expected a number from 1 on, found {word}"),
        (_, Ok(count)) => Ok(Some(count)),
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
        let save = |path: &str, force| Some(SlashCommand::Save { path: path.into(), force });
        check("/save a b.json", save("a b.json", false));
        check("/save --force a.json", save("a.json", true));
        check("/read a b.txt", Some(SlashCommand::Read("a b.txt".into())));
        check("/history", Some(SlashCommand::History));
        check("/ctx", Some(SlashCommand::Context(None)));
        check("/ctx 4096", Some(SlashCommand::Context(Some(4096))));
        check("/switch owner/name", Some(SlashCommand::Switch("owner/name".into())));
        check("/effort low", Some(SlashCommand::Effort("low".into())));
        check("/rewind", Some(SlashCommand::Rewind(1)));
        check("/rewind 3", Some(SlashCommand::Rewind(3)));
        check("/fork a b", Some(SlashCommand::Fork("a b".parse().unwrap())));
        check("what is /help?", None);
        check("//help", None);
        assert_eq!(message("//help"), "/help");
        assert!(SlashCommand::parse("/dance").unwrap().is_err());
        for wrong in ["/ctx 0", "/ctx x", "/switch", "/effort", "/effort much", "/save --force"] {
            assert!(SlashCommand::parse(wrong).unwrap().is_err(), "{wrong}");
        }
        for wrong in ["/save", "/rewind 0", "/rewind x", "/fork", "/fork a/b", "/rename .."] {
            assert!(SlashCommand::parse(wrong).unwrap().is_err(), "{wrong}");
        }
        assert!(SlashCommand::parse("/think maybe").unwrap().is_err());
    }

    #[test]
    fn help_names_every_effort() {
        let line = HELP.lines().find(|line| line.starts_with("/effort")).unwrap();
        assert!(api::EFFORTS.iter().all(|effort| line.contains(effort)), "{line}");
    }
}
