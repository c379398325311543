//! Settings from `gannet.yaml` and `GANNET_*` variables, which flags override.
//!
//! A key is the long name of a flag (`max-tokens: 200`), a variable the same in capitals
//! (`GANNET_MAX_TOKENS`). Flags override variables, variables override the file. They become
//! clap's own defaults, so that help and errors treat them as such.

use crate::folders;
use anyhow::{Context, Result, bail};
use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, Command};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Name of the file, in the current folder or in the user's configuration folder.
const FILE: &str = "gannet.yaml";
/// Maximum size of the file in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Commands that read settings; the others take arguments only.
const COMMANDS: [&str; 8] =
    ["run", "chat", "serve", "batch", "perplexity", "bench", "embed", "rerank"];

/// All keys, by subject.
#[rustfmt::skip]
pub(crate) const KEYS: &[&str] = &[
    "model", "hub-endpoint", "pre-fallback", "chat-template", "tool-format",
    "greedy-structure", "placement", "lora",
    "threads", "pin", "numa", "ctx", "mode", "kv-type", "cache-rounding", "kv-memory", "state-memory",
    "state-every", "kv-block", "chunk", "pooling", "check", "weights-pack",
    "weights-memory", "weights-read-threads", "weights-preload", "route-trace", "simulate-memory",
    "kv-dir", "kv-dir-size", "kv-dir-write", "kv-dir-write-rate", "kv-dir-key",
    "kv-dir-min-tokens",
    "max-tokens", "min-tokens", "temp", "top-k", "top-p", "min-p", "typical-p",
    "repeat-penalty", "presence-penalty", "frequency-penalty", "penalty-window",
    "logit-bias", "seed", "stop", "stop-id", "ignore-eos",
    "system", "stats", "state-dir",
    "models", "models-memory", "keep-alive", "host", "port", "unix", "unix-mode", "tls-cert", "tls-key",
    "lora-dir", "max-loras", "allow-lora-updates", "alias", "no-ui", "no-slots", "slot-save-path", "no-metrics",
    "api-key", "api-key-file", "cors", "allowed-host", "rate-limit", "rate-limit-tokens", "max-concurrent",
    "cache-isolation", "log-prompts",
    "connections", "header-limit", "header-timeout", "body-limit", "body-timeout", "json-depth",
    "sse-ping-interval", "stall-timeout", "progress-timeout", "grace",
    "stored-responses", "stored-response-bytes", "stored-response-age",
    "resume-background",
    "parallel", "queue", "itl-target-ms", "speculate", "request-timeout", "trace-dir",
];

/// The settings of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingsFile {
    path: PathBuf,
    /// The values of each key: one, or several for a flag that may be repeated.
    values: BTreeMap<String, Vec<String>>,
}

impl SettingsFile {
    /// Reads the file that was named, else the one in the current folder, else the user's. A
    /// missing file is an error only where it was named.
    pub fn read(asked_for: Option<&Path>) -> Result<Self> {
        if let Some(path) = asked_for {
            return Self::read_file(path);
        }
        let user = folders::config().map(|folder| folder.join(FILE));
        let present = [Some(PathBuf::from(FILE)), user].into_iter().flatten().find(|p| p.exists());
        present.map_or(Ok(Self::default()), |path| Self::read_file(&path))
    }

    fn read_file(path: &Path) -> Result<Self> {
        let context = || format!("cannot read the settings of {}", path.display());
        let bytes = path.metadata().with_context(context)?.len();
        if bytes > MAX_BYTES {
            bail!("{}: expected at most {MAX_BYTES} bytes, found {bytes}", path.display());
        }
        let text = std::fs::read_to_string(path).with_context(context)?;
        Self::parse(&text, path)
    }

    /// Parses the settings in `text`, read from `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let values: BTreeMap<String, Value> = match text.lines().all(blank) {
            true => BTreeMap::new(),
            false => serde_saphyr::from_str(text)
                .with_context(|| format!("{}: expected `key: value` lines", path.display()))?,
        };
        if let Some(key) = values.keys().find(|key| !KEYS.contains(&key.as_str())) {
            bail!("{}: {key}: no such setting (known: {})", path.display(), KEYS.join(", "));
        }
        let texts = |(key, value)| match texts(value) {
            Some(texts) => Ok((key, texts)),
            None => bail!("{}: {key}: expected a value or a list of values", path.display()),
        };
        let values = values.into_iter().map(texts).collect::<Result<_>>()?;
        Ok(Self { path: path.to_owned(), values })
    }

    /// Makes variables and settings the defaults of the flags of `program`.
    pub fn apply(&self, program: Command) -> Result<Command> {
        for command in program.get_subcommands().filter(|c| COMMANDS.contains(&c.get_name())) {
            command.get_arguments().try_for_each(|arg| self.check(arg))?;
        }
        let apply = |arg: Arg| self.with_default(arg);
        let applied = COMMANDS.iter().fold(program, |program, name| {
            program.mut_subcommand(name, |command| command.mut_args(apply))
        });
        Ok(applied)
    }

    fn with_default(&self, arg: Arg) -> Arg {
        let Some(key) = key_of(&arg) else { return arg };
        let arg = match arg.get_env() {
            Some(_) => arg,
            None => arg.env(variable(&key)).hide_env(true),
        };
        let arg = if is_switch(&arg) { arg.value_parser(BoolishValueParser::new()) } else { arg };
        match self.values.get(&key) {
            Some(values) => arg.default_values(values.clone()).required(false),
            None => arg,
        }
    }

    /// Checks a value as its flag does.
    fn check(&self, arg: &Arg) -> Result<()> {
        let Some(key) = key_of(arg) else { return Ok(()) };
        let Some(texts) = self.values.get(&key) else { return Ok(()) };
        let wrong = |problem: &str| format!("{}: {key}: {problem}", self.path.display());
        if is_switch(arg) {
            let switch = matches!(texts.as_slice(), [text] if text == "true" || text == "false");
            return if switch { Ok(()) } else { bail!(wrong("expected true or false")) };
        }
        if texts.len() != 1 && !matches!(arg.get_action(), ArgAction::Append) {
            bail!(wrong("expected one value"));
        }
        let alone = Arg::new(key.clone()).long(key.clone()).action(arg.get_action().clone());
        let alone = alone.value_parser(arg.get_value_parser().clone()).allow_hyphen_values(true);
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

/// The texts of a value or of a list; `None` for what no flag has.
pub(crate) fn texts(value: Value) -> Option<Vec<String>> {
    let text = |value| match value {
        Value::Bool(switch) => Some(switch.to_string()),
        // Without a fraction of zero, which whole numbers do not have.
        Value::Number(number) if number.is_f64() => number.as_f64().map(|it| it.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text),
        _ => None,
    };
    match value {
        Value::Array(values) => values.into_iter().map(text).collect(),
        one => Some(vec![text(one)?]),
    }
}

/// The file named by `--config` before the command or by `GANNET_CONFIG`, which is needed before
/// clap can parse the rest.
pub(crate) fn file_asked_for(args: impl IntoIterator<Item = OsString>) -> Option<PathBuf> {
    let mut args = args.into_iter().skip(1);
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        if text == "--config" {
            return args.next().map(PathBuf::from);
        }
        if let Some(path) = text.strip_prefix("--config=") {
            return Some(PathBuf::from(path));
        }
        if text == "--log-format" {
            args.next();
        } else if !text.starts_with('-') {
            break;
        }
    }
    std::env::var_os("GANNET_CONFIG").map(PathBuf::from)
}

fn key_of(arg: &Arg) -> Option<String> {
    arg.get_long().filter(|long| KEYS.contains(long)).map(str::to_owned)
}

fn variable(key: &str) -> String {
    format!("GANNET_{}", key.to_uppercase().replace('-', "_"))
}

pub(crate) fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, FromArgMatches};

    fn parse(yaml: &str, args: &[&str]) -> Result<crate::Cli> {
        let settings = SettingsFile::parse(yaml, Path::new("gannet.yaml"))?;
        let matches = settings.apply(crate::Cli::command())?.try_get_matches_from(args)?;
        Ok(crate::Cli::from_arg_matches(&matches)?)
    }

    fn check(yaml: &str, args: &[&str], expected: &str) {
        let parsed = format!("{:?}", parse(yaml, args).unwrap());
        assert!(parsed.contains(expected), "{parsed}");
    }

    #[test]
    fn flags_win_over_settings_and_settings_over_defaults() {
        let run = ["gannet", "run", "x"];
        check("temp: 0.5", &run, "temp: Some(0.5)");
        check("temp: 0.5", &["gannet", "run", "x", "--temp", "1"], "temp: Some(1.0)");
        check("chunk: 7\nmode: exact", &run, "chunk: Some(7)");
        check("weights-preload: off", &run, "weights_preload: false");
        check("route-trace: a.jsonl", &run, r#"route_trace: Some("a.jsonl")"#);
        check("stop: [a, b c]", &run, r#"stop: ["a", "b c"]"#);
        check("stop: [a]", &["gannet", "run", "x", "--stop", "z"], r#"stop: ["z"]"#);
        check("ignore-eos: true", &run, "ignore_eos: true");
        check("port: 99", &["gannet", "serve"], "port: Some(99)");
        check("parallel: 5", &["gannet", "batch", "a", "-o", "b"], "parallel: 5");
        check("port: 99", &run, "prompt: Some(\"x\")");
        check("# nothing\n\n", &run, "temp: None");
    }

    fn check_refused(yaml: &str, expected: &str) {
        let error = format!("{:#}", parse(yaml, &["gannet", "run", "x"]).unwrap_err());
        assert!(error.contains("gannet.yaml") && error.contains(expected), "{error}");
    }

    #[test]
    fn wrong_settings_are_refused_by_name() {
        check_refused("tempo: 1", "tempo: no such setting");
        check_refused("temp: warm", "invalid value 'warm'");
        check_refused("temp: [1, 2]", "temp: expected one value");
        check_refused("ignore-eos: 7", "ignore-eos: expected true or false");
        check_refused("port: 99999", "port");
        check_refused("- a", "key: value");
    }

    #[test]
    fn every_key_is_the_name_of_a_flag() {
        let program = crate::Cli::command();
        let longs: Vec<_> = program
            .get_subcommands()
            .filter(|command| COMMANDS.contains(&command.get_name()))
            .flat_map(|command| command.get_arguments().filter_map(key_of))
            .collect();
        for key in KEYS {
            assert!(longs.iter().any(|long| long == key), "{key}");
        }
    }

    #[test]
    fn the_file_is_named_before_the_command() {
        let asked = |args: &[&str]| file_asked_for(args.iter().map(OsString::from));
        assert_eq!(asked(&["gannet", "--config", "a.yaml", "run"]), Some("a.yaml".into()));
        assert_eq!(asked(&["gannet", "-v", "--config=a.yaml"]), Some("a.yaml".into()));
        let formatted = ["gannet", "--log-format", "json", "--config", "a.yaml", "run"];
        assert_eq!(asked(&formatted), Some("a.yaml".into()));
        assert_eq!(asked(&["gannet", "synth", "--config", "config.json"]), None);
    }

    #[test]
    fn the_arguments_are_consistent() {
        crate::Cli::command().debug_assert();
    }
}
