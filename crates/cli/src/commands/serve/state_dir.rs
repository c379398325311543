//! What `gannet serve` keeps of conversations: where, how much and for how long.

use crate::durations::age;
use crate::folders;
use crate::size::bytes;
use anyhow::Result;
use clap::ArgAction;
use clap::builder::BoolishValueParser;
use server::ServerOptions;
use state::StateDir;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments for stored responses and conversations.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Stored conversations")]
pub(super) struct StateArgs {
    /// Folder in which responses, conversations and turns that called tools are kept across
    /// restarts, or off to keep them in memory only. Each server needs a folder of its own
    #[arg(long, value_name = "DIR|off", default_value = "off")]
    state_dir: PathBuf,
    /// Stored answers of the Responses API, and conversations as many; 0 for none
    #[arg(long, value_name = "N", default_value_t = 1000)]
    stored_responses: u32,
    /// Maximum size of all stored answers and conversations
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = bytes)]
    stored_response_bytes: usize,
    /// Time after which a stored answer is removed, such as 12h or 30d
    #[arg(long, value_name = "AGE", default_value = "30d", value_parser = age)]
    stored_response_age: Duration,
    /// What becomes of background responses that a crash has cut off: on to compute them again
    /// from the same seed, off to mark them as failed
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true)]
    #[arg(value_parser = BoolishValueParser::new(), action = ArgAction::Set)]
    resume_background: bool,
}

impl StateArgs {
    /// Adds these arguments to `options`, without the folder.
    pub fn over(&self, options: ServerOptions) -> ServerOptions {
        ServerOptions {
            stored_responses: self.stored_responses as usize,
            stored_response_bytes: self.stored_response_bytes,
            stored_response_age: self.stored_response_age,
            resume_background: self.resume_background,
            ..options
        }
    }

    /// Opens the folder; `None` where it is off.
    pub fn open(&self) -> Result<Option<StateDir>> {
        if folders::is_off(&self.state_dir) {
            return Ok(None);
        }
        Ok(Some(StateDir::open(&self.state_dir)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};

    fn parsed(args: &[&str]) -> StateArgs {
        let command = StateArgs::augment_args(Command::new("serve"));
        let matches = command.get_matches_from([&["serve"], args].concat());
        StateArgs::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn defaults_are_those_of_the_server() {
        let options = parsed(&[]).over(ServerOptions::default());
        assert_eq!(format!("{options:?}"), format!("{:?}", ServerOptions::default()));
        assert!(parsed(&[]).open().unwrap().is_none());
        assert!(parsed(&["--state-dir", "false"]).open().unwrap().is_none());
    }

    #[test]
    fn limits_are_read() {
        let args = ["--stored-response-age", "2h", "--stored-response-bytes", "1MiB"];
        let options = parsed(&args).over(ServerOptions::default());
        assert_eq!(options.stored_response_age, Duration::from_secs(7200));
        assert_eq!(options.stored_response_bytes, 1 << 20);
        assert!(!parsed(&["--resume-background", "off"]).over(options).resume_background);
    }
}
