//! Text from an argument, a file or standard input.

use anyhow::{Context, Result, bail};
use clap::CommandFactory;
use clap::error::ErrorKind;
use std::io::{IsTerminal, Read, stdin};
use std::path::{Path, PathBuf};

/// The source of a text: at most one of the fields is set.
#[derive(Clone, Debug)]
pub(crate) struct TextSource<'a> {
    /// The text itself; `-` means standard input.
    pub argument: Option<&'a str>,
    /// A file with the text; `-` means standard input.
    pub file: Option<&'a PathBuf>,
}

impl TextSource<'_> {
    /// Reads the text, from standard input where no source is set. Where standard input is a
    /// terminal, ends the process with what is `missing` for `command`.
    pub fn read(&self, command: &str, missing: &str) -> Result<String> {
        match (self.argument, self.file) {
            (Some(text), _) if text != "-" => Ok(text.to_owned()),
            (_, Some(path)) => read_path(path),
            (None, None) if stdin().is_terminal() => usage(command, missing),
            _ => read_stdin(),
        }
    }
}

/// Ends the process with a usage error of `command` that clap cannot detect.
fn usage(command: &str, problem: &str) -> ! {
    let mut cli = crate::Cli::command();
    cli.build();
    let command = cli.find_subcommand_mut(command).expect("a command of this program");
    command.error(ErrorKind::MissingRequiredArgument, problem).exit()
}

/// Reads the text of a file; `-` means standard input.
pub(crate) fn read_path(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return read_stdin();
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    utf8(bytes, &path.display().to_string())
}

fn read_stdin() -> Result<String> {
    let mut bytes = Vec::new();
    stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
    utf8(bytes, "standard input")
}

fn utf8(bytes: Vec<u8>, name: &str) -> Result<String> {
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let offset = error.utf8_error().valid_up_to();
            bail!("{name}: expected UTF-8, found other bytes at offset {offset}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf8_are_refused_with_their_offset() {
        let error = utf8(b"ab\xffc".to_vec(), "x.txt").unwrap_err().to_string();
        assert_eq!(error, "x.txt: expected UTF-8, found other bytes at offset 2");
    }
}
