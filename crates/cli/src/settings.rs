//! Settings from `gannet.yaml` and `GANNET_*` variables, which flags override.
//!
//! A key is the long name of a flag (`max-tokens: 200`), a variable the same in capitals
//! (`GANNET_MAX_TOKENS`). Flags override variables, variables override the file. They become
//! clap's own defaults, so that help and errors treat them as such, and so that a setting never
//! conflicts with a flag.

pub(crate) mod keys;
mod variables;

use crate::{folders, input, yaml};
use anyhow::{Result, bail};
use clap::builder::{BoolishValueParser, Resettable};
use clap::{Arg, ArgAction, Command};
use keys::{MCP, Setting, setting, setting_of};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
pub(crate) use variables::unknown as unknown_variables;

/// Name of the file, in the current folder or in the user's configuration folder.
const FILE: &str = "gannet.yaml";
/// Maximum size of the file in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Commands that obey no file of the current folder, which is not theirs: a cloned repository names
/// no model, folder or rule.
const NOT_OF_FOLDER: &[&str] = &["agent"];

/// Which file of settings is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AskedSettings {
    /// The file that `--config` before the command or `GANNET_CONFIG` names.
    pub file: Option<PathBuf>,
    /// Whether one in the current folder is not read.
    pub leaves_folder_out: bool,
}

/// The settings of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingsFile {
    path: PathBuf,
    /// Whether it was found in the current folder, and not named.
    is_of_folder: bool,
    /// The values of each key: one, or several for a flag that may be repeated.
    values: BTreeMap<String, Vec<String>>,
    /// The value of [`MCP`].
    mcp: Option<Value>,
}

/// The MCP servers of a file, as they are written there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct McpSetting {
    /// The file.
    pub path: PathBuf,
    /// The value, whose scalars are texts.
    pub value: Value,
}

impl SettingsFile {
    /// Reads the file that was named, else the one in the current folder, else the user's. A
    /// missing file is an error only where it was named.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or has a setting that is unknown, or that a file in the current
    /// folder cannot have.
    pub fn read(asked: &AskedSettings) -> Result<Self> {
        if let Some(path) = &asked.file {
            return Self::parse(&input::read_limited(path, MAX_BYTES)?, path);
        }
        // They were found, not named: what blocks or never ends is not read.
        let read_file = |path: &Path| Self::parse(&formats::read_text(path, MAX_BYTES)?, path);
        let user = folders::config().map(|folder| folder.join(FILE));
        if !asked.leaves_folder_out && Path::new(FILE).exists() {
            let path = std::path::absolute(FILE)?;
            let is_users =
                user.is_some_and(|user| user.canonicalize().ok() == path.canonicalize().ok());
            let file = read_file(&path)?;
            return if is_users { Ok(file) } else { file.of_folder() };
        }
        let present = user.filter(|path| path.exists());
        present.map_or(Ok(Self::default()), |path| read_file(&path))
    }

    /// Parses the settings in `text`, read from `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let expected = || format!("{}: expected `key: value` lines", path.display());
        let mut values = match yaml::parse(text) {
            Ok(Value::Null) => Map::new(),
            Ok(Value::Object(values)) => values,
            Ok(_) => bail!(expected()),
            Err(error) => bail!("{}: {error}", expected()),
        };
        if let Some(key) = values.keys().find(|key| !keys::keys().any(|known| known == *key)) {
            let hint = variables::hint(key, keys::keys());
            bail!("{}: {key}: no such setting ({hint})", path.display());
        }
        let mcp = values.remove(MCP);
        let texts = |(key, value)| match texts(value) {
            Some(texts) => Ok((key, texts)),
            None => bail!(
                "{}: {key}: expected a value or a list of values; a text with a colon is quoted",
                path.display()
            ),
        };
        let values = values.into_iter().map(texts).collect::<Result<_>>()?;
        Ok(Self { path: path.to_owned(), is_of_folder: false, values, mcp })
    }

    /// The same as a file of the current folder, which anybody may have put there.
    fn of_folder(self) -> Result<Self> {
        let is_refused = |key: &&str| setting(key).is_some_and(|setting| setting.trusted_only);
        let refused = self.values.keys().map(String::as_str).find(is_refused);
        let variable = |key| format!(", and from {}", variables::name(key));
        let (key, variable) = match (refused, &self.mcp) {
            (Some(key), _) => (key, variable(key)),
            (None, Some(_)) => (MCP, String::new()),
            (None, None) => return Ok(Self { is_of_folder: true, ..self }),
        };
        bail!(
            "{}: {key}: a file in the current folder cannot set this unless it is named: \
             gannet --config ./{FILE}, or GANNET_CONFIG; {key} is also read from the {FILE} in \
             the user's configuration folder{variable}",
            self.path.display(),
        )
    }

    /// The MCP servers of the file, if it has some.
    pub fn mcp(&self) -> Option<McpSetting> {
        let value = self.mcp.clone()?;
        Some(McpSetting { path: self.path.clone(), value })
    }

    /// The file and its keys that `command` obeys, if it was found in the current folder.
    pub fn found<'a>(&'a self, command: &Command) -> Option<(&'a Path, Vec<&'static str>)> {
        let is_given = |key: &&str| self.values.contains_key(*key);
        let keys: Vec<_> = command
            .get_arguments()
            .filter_map(setting_of)
            .map(|it| it.key)
            .filter(is_given)
            .collect();
        (self.is_of_folder && !keys.is_empty()).then_some((&self.path, keys))
    }

    /// The settings of the file.
    pub fn values(&self) -> &BTreeMap<String, Vec<String>> {
        &self.values
    }

    /// The values of a setting, from its variable or else from the file.
    pub fn given(&self, setting: &Setting) -> Option<Vec<OsString>> {
        let of_file = || Some(self.values.get(setting.key)?.iter().map(OsString::from).collect());
        variables::value(setting).map(|value| vec![value]).or_else(of_file)
    }

    /// Makes variables and settings the defaults of the flags of `program`.
    ///
    /// # Errors
    ///
    /// If a value of the file is not one of its flag.
    pub fn apply(&self, program: Command) -> Result<Command> {
        self.check_command(&program)?;
        Ok(self.with_defaults(program))
    }

    fn check_command(&self, command: &Command) -> Result<()> {
        command.get_arguments().try_for_each(|arg| self.check(arg))?;
        command.get_subcommands().try_for_each(|inner| self.check_command(inner))
    }

    fn with_defaults(&self, command: Command) -> Command {
        let names: Vec<String> =
            command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
        let command = command.mut_args(|arg| self.with_default(arg));
        names.into_iter().fold(command, |command, name| {
            command.mut_subcommand(name, |inner| self.with_defaults(inner))
        })
    }

    fn with_default(&self, arg: Arg) -> Arg {
        let Some(setting) = setting_of(&arg) else { return arg };
        // A variable is a default, as the file is: one that clap reads would conflict with flags.
        let arg = arg.env(Resettable::Reset);
        let arg = if is_switch(&arg) { arg.value_parser(BoolishValueParser::new()) } else { arg };
        match self.given(setting) {
            Some(values) => arg.default_values(values).required(false),
            None => arg,
        }
    }

    /// Checks a value as its flag does.
    fn check(&self, arg: &Arg) -> Result<()> {
        let Some(key) = setting_of(arg).map(|setting| setting.key) else { return Ok(()) };
        let Some(texts) = self.values.get(key) else { return Ok(()) };
        let wrong = |problem: &str| format!("{}: {key}: {problem}", self.path.display());
        if is_switch(arg) {
            let switch = matches!(texts.as_slice(), [text] if text == "true" || text == "false");
            return if switch { Ok(()) } else { bail!(wrong("expected true or false")) };
        }
        let is_list = matches!(arg.get_action(), ArgAction::Append);
        if texts.len() != 1 && !is_list {
            bail!(wrong("expected one value"));
        }
        let action = if is_list { ArgAction::Append } else { ArgAction::Set };
        let alone = Arg::new(key).long(key).action(action);
        let alone = alone.value_parser(arg.get_value_parser().clone()).allow_hyphen_values(true);
        let alone = alone.value_delimiter(arg.get_value_delimiter());
        let given = texts.iter().map(|text| format!("--{key}={text}"));
        let parsed =
            Command::new("check").no_binary_name(true).arg(alone).try_get_matches_from(given);
        parsed.map(drop).map_err(|error| {
            let message = error.to_string();
            let line = message.lines().next().unwrap_or_default();
            anyhow::anyhow!(wrong(line.trim_start_matches("error: ")))
        })
    }
}

/// The texts of a value of [`yaml::parse`] or of a list; `None` for what no flag has.
pub(crate) fn texts(value: Value) -> Option<Vec<String>> {
    let text = |value| match value {
        Value::String(text) => Some(text),
        _ => None,
    };
    match value {
        Value::Array(values) => values.into_iter().map(text).collect(),
        one => Some(vec![text(one)?]),
    }
}

/// Which file of settings the arguments ask for, which is needed before clap can parse the rest.
pub(crate) fn asked_for(args: &[OsString]) -> AskedSettings {
    let mut asked = AskedSettings::default();
    let mut args = args.iter().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--config" {
            asked.file = args.next().map(PathBuf::from);
        } else if let Some(path) = arg.as_bytes().strip_prefix(b"--config=") {
            asked.file = Some(PathBuf::from(OsStr::from_bytes(path)));
        } else if arg == "--log-format" {
            args.next();
        } else if !arg.as_bytes().starts_with(b"-") {
            asked.leaves_folder_out = NOT_OF_FOLDER.iter().any(|command| arg == command);
            break;
        }
    }
    let variable = || std::env::var_os("GANNET_CONFIG").filter(|path| !path.is_empty());
    asked.file = asked.file.or_else(|| variable().map(PathBuf::from));
    asked
}

pub(crate) fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

#[cfg(test)]
mod tests;
