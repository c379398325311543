//! The commands about sessions of every kind, and what is said of them.

use crate::elapsed::passed_since;
use crate::output;
use crate::sessions::SessionName;
use anyhow::Result;
use clap::Subcommand;
use serde_json::Value;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List the sessions, the last used first
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the messages of a session
    Show {
        /// The session
        name: SessionName,
        /// Print all that is kept, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a session another name
    Rename {
        /// The session
        name: SessionName,
        /// Its new name, which no session has
        new: SessionName,
        /// Print the new name as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove sessions
    Remove {
        /// The sessions
        #[arg(required = true, value_name = "NAME")]
        names: Vec<SessionName>,
        /// Print the names of what is removed as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a session to a file, which import reads
    Export {
        /// The session
        name: SessionName,
        /// The file [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace an existing file
        #[arg(long, requires = "output")]
        force: bool,
        /// Print the name and the file as JSON; what goes to standard output is JSON already
        #[arg(long, requires = "output")]
        json: bool,
    },
    /// Add a session from a file that export wrote
    Import {
        /// The file, `-` for standard input
        file: PathBuf,
        /// The name of the session [default: that of the file, without its extension]
        #[arg(long)]
        name: Option<SessionName>,
        /// Print the name as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Prints what was done, where that is to be JSON.
pub(super) fn say(as_json: bool, done: &Value) -> Result<()> {
    if as_json { output::json(done) } else { Ok(()) }
}

/// How long ago a time is.
pub(super) fn age(seconds: u64) -> String {
    match passed_since(seconds).unwrap_or_default().as_secs() {
        seconds @ 0..60 => format!("{seconds} s ago"),
        seconds @ 60..3600 => format!("{} min ago", seconds / 60),
        seconds @ 3600..86400 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86400),
    }
}
