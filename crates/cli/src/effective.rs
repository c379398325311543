//! The settings that a command runs with, as a `gannet.yaml` that gives the same settings.
//!
//! Invariant: the file holds no API key, only the labels of keys in logs, and no settings of MCP
//! servers, which may have keys in their variables and addresses.

use crate::folders;
use crate::logging::LogFormat;
use crate::settings::keys::{MCP, SETTINGS, Setting, flag, setting, setting_of};
use crate::settings::{McpSetting, SettingsFile, is_switch, unknown_variables};
use anyhow::{Result, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, ValueEnum};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The secret setting.
const SECRET: &str = "api-key";

/// Flags that do nothing, unless one of some others is given or on.
const NEEDS: &[(&str, &[&str])] = &[
    ("models-memory", &["models"]),
    ("kv-dir-size", KV_DIR),
    ("kv-dir-write", KV_DIR),
    ("kv-dir-write-rate", KV_DIR),
    ("kv-dir-key", KV_DIR),
    ("kv-dir-min-tokens", KV_DIR),
    ("unix-mode", &["unix"]),
    ("log-prompts", &["verbose"]),
];
/// What gives `kv-dir` a value, or may; in `cache export` it always has one.
const KV_DIR: &[&str] = &["kv-dir", "session", "slot-save-path", "models"];

/// A setting that has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EffectiveSetting {
    key: &'static str,
    values: Vec<OsString>,
    /// Whether it is the default of the command, and was given nowhere.
    is_default: bool,
}

/// The settings of a command that have a value, in the order of [`SETTINGS`].
#[derive(Clone, Debug, Default)]
pub(crate) struct EffectiveSettings {
    settings: Vec<EffectiveSetting>,
    /// Settings of the file that the command has no flag for.
    others: BTreeMap<String, Vec<String>>,
    mcp: Option<McpSetting>,
    command_takes_settings: bool,
    notes: Vec<String>,
}

impl EffectiveSettings {
    /// Merges flags, variables, `file` and the defaults. `program` must have parsed `matches`.
    pub fn of(program: &Command, matches: &ArgMatches, file: &SettingsFile) -> Self {
        let (command, matches) = innermost(program, matches);
        let effective = |setting: &Setting, arg: &Arg| {
            let (values, id) = (values(arg, matches)?, arg.get_id().as_str());
            let is_default = matches.value_source(id) == Some(ValueSource::DefaultValue)
                && file.given(setting).is_none();
            Some(EffectiveSetting { key: setting.key, values, is_default })
        };
        let flags = SETTINGS.iter().filter_map(|it| Some((it, flag(command, it)?)));
        let mut others = file.values().clone();
        flags.clone().for_each(|(setting, _)| drop(others.remove(setting.key)));
        let of_all = |arg: &Arg| program.get_arguments().any(|it| it.get_id() == arg.get_id());
        let own = |arg: &Arg| setting_of(arg).is_some() && !of_all(arg);
        let found = file
            .found(command)
            .map(|(path, keys)| format!("settings of {}: {}", path.display(), keys.join(", ")));
        Self {
            settings: flags.filter_map(|(setting, arg)| effective(setting, arg)).collect(),
            others,
            mcp: file.mcp(),
            command_takes_settings: command.get_arguments().any(own),
            notes: found
                .into_iter()
                .chain(unknown_variables(variables()))
                .chain(idle(command, matches))
                .collect(),
        }
    }

    /// The MCP servers, which only a file has.
    pub fn mcp(&self) -> Option<&McpSetting> {
        self.mcp.as_ref()
    }

    /// Whether the command has a flag that is a setting.
    pub fn command_takes_settings(&self) -> bool {
        self.command_takes_settings
    }

    /// What the user should know of where settings come from: lines for standard error.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether a setting was given, by a flag, a variable or the file.
    pub fn is_given(&self, key: &str) -> bool {
        self.settings.iter().any(|setting| setting.key == key && !setting.is_default)
    }

    /// The values of each setting.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &[OsString])> {
        self.settings.iter().map(|setting| (setting.key, &*setting.values))
    }

    /// An error if a value is not UTF-8, which no file of settings can hold.
    pub fn check_utf8(&self) -> Result<()> {
        for EffectiveSetting { key, values, .. } in &self.settings {
            if let Some(value) = values.iter().find(|value| value.to_str().is_none()) {
                bail!("{key}: expected UTF-8, as files of settings are, found {value:?}");
            }
        }
        Ok(())
    }

    /// The settings as JSON: what was `given`, and the `defaults` of the others, among them the
    /// `chosen` ones, whose values come from elsewhere.
    pub fn json(&self, chosen: &[(&'static str, String)]) -> Value {
        let (mut given, mut defaults) = (Map::new(), Map::new());
        let shown = self.settings.iter().filter(|setting| setting.key != SECRET);
        for EffectiveSetting { key, values, is_default } in shown {
            let part = if *is_default { &mut defaults } else { &mut given };
            part.insert((*key).to_owned(), typed(values));
        }
        let others = self.others.iter().filter(|(key, _)| *key != SECRET);
        given.extend(others.map(|(key, values)| (key.clone(), typed(values))));
        let chosen = chosen.iter().filter(|(key, _)| !given.contains_key(*key));
        defaults.extend(chosen.map(|(key, value)| ((*key).to_owned(), typed(&[value]))));
        json!({ "given": given, "defaults": defaults })
    }

    /// The text of the file, with defaults as comments. `chosen` are defaults whose values come
    /// from elsewhere; API keys are listed by their `labels`.
    pub fn yaml(&self, chosen: &[(&'static str, String)], labels: &[String]) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let mut text = format!(
            "# The settings in effect, gannet {version}. Lines with # before a key are defaults.\n"
        );
        for label in labels {
            text += &format!("# a key of clients: {label}\n");
        }
        if let Some(McpSetting { value: Value::Object(servers), .. }) = &self.mcp {
            let names: Vec<_> = servers.keys().map(|it| it.escape_debug().to_string()).collect();
            text += &format!("# {MCP} is left out, with the servers {}\n", names.join(", "));
        }
        for key in SETTINGS.iter().map(|setting| setting.key).filter(|key| *key != SECRET) {
            let given = self.settings.iter().find(|setting| setting.key == key);
            let chosen = chosen.iter().find(|(name, _)| *name == key);
            text += &match (given, self.others.get(key), chosen) {
                (Some(it), ..) if it.is_default => format!("# {key}: {}\n", list(&it.values)),
                (Some(it), ..) => format!("{key}: {}\n", list(&it.values)),
                (None, Some(values), _) => format!("{key}: {}\n", list(values)),
                (None, None, Some((_, value))) => format!("# {key}: {}\n", scalar(value)),
                (None, None, None) => continue,
            };
        }
        text
    }
}

/// The format that these arguments ask for, or else a variable or `file`: that of errors which show
/// before the arguments are parsed.
pub(crate) fn log_format(args: &[OsString], file: &SettingsFile) -> LogFormat {
    const FLAG: &str = "--log-format";
    let flags = args.iter().take_while(|arg| *arg != "--");
    let given = flags.enumerate().filter_map(|(at, arg)| match arg == FLAG {
        true => args.get(at + 1).map(OsString::as_os_str),
        false => arg.as_bytes().strip_prefix(b"--log-format=").map(OsStr::from_bytes),
    });
    let of_setting = || setting("log-format").and_then(|it| file.given(it)?.pop());
    let name = given.last().map(OsStr::to_owned).or_else(of_setting);
    let format = name.and_then(|name| LogFormat::from_str(name.to_str()?, false).ok());
    format.unwrap_or(LogFormat::Text)
}

/// A line for each flag of the command line that does nothing.
fn idle(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let id = |key: &str| key.replace('-', "_");
    let source = |key: &str| match matches.try_contains_id(&id(key)) {
        Ok(true) => matches.value_source(&id(key)),
        Ok(false) | Err(_) => None,
    };
    let is_on = |key: &&str| {
        let values = source(key).and_then(|_| matches.get_raw(&id(key)));
        // A flag that is counted has 0 where it is not given.
        let is_off = |value: &OsStr| value == "0" || folders::is_off(Path::new(value));
        values.is_some_and(|mut values| values.any(|value| !is_off(value)))
    };
    let is_idle = |(key, others): &&(&str, &[&str])| {
        source(key) == Some(ValueSource::CommandLine) && !others.iter().any(is_on)
    };
    let line =
        |(key, others): &(&str, &[&str])| format!("--{key} has no effect without --{}", others[0]);
    // A filter may ask for as much as -v does.
    let is_filtered = std::env::var_os("GANNET_LOG").is_some();
    let counts = |(key, _): &&(&str, &[&str])| {
        command.get_name() != "export" && !(is_filtered && *key == "log-prompts")
    };
    NEEDS.iter().filter(counts).filter(is_idle).map(line).collect()
}

/// The command that was given, which may be one of another command, and its matches.
fn innermost<'a>(program: &'a Command, matches: &'a ArgMatches) -> (&'a Command, &'a ArgMatches) {
    let (mut command, mut matches) = (program, matches);
    while let Some((name, inner)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name) else { break };
        (command, matches) = (found, inner);
    }
    (command, matches)
}

fn variables() -> impl Iterator<Item = std::ffi::OsString> {
    std::env::vars_os().map(|(name, _)| name)
}

fn values(arg: &Arg, matches: &ArgMatches) -> Option<Vec<OsString>> {
    let id = arg.get_id().as_str();
    if is_switch(arg) {
        return Some(vec![matches.get_flag(id).to_string().into()]);
    }
    Some(matches.get_raw(id)?.map(OsStr::to_owned).collect())
}

/// Values as numbers, booleans or texts; several are a list.
fn typed(values: &[impl AsRef<OsStr>]) -> Value {
    // The notation of both is the same.
    serde_json::from_str(&list(values)).unwrap_or_default()
}

fn list(values: &[impl AsRef<OsStr>]) -> String {
    let scalars = values.iter().map(|value| scalar(&value.as_ref().to_string_lossy()));
    match scalars.collect::<Vec<_>>().as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// `text` unquoted where it reads back as a number or a boolean of the same spelling, else quoted.
fn scalar(text: &str) -> String {
    let number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let same = text.parse::<i64>().is_ok_and(|whole| whole.to_string() == text)
        || number && text.parse::<f64>().is_ok_and(|number| number.to_string() == text);
    match text {
        "true" | "false" => text.to_owned(),
        _ if same => text.to_owned(),
        _ => Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn effective(yaml: &str, args: &[&str]) -> String {
        let settings = SettingsFile::parse(yaml, Path::new("gannet.yaml")).unwrap();
        let mut program = settings.apply(crate::Cli::command()).unwrap();
        let matches = program.try_get_matches_from_mut([&["gannet", "serve"], args].concat());
        let effective = EffectiveSettings::of(&program, &matches.unwrap(), &settings);
        effective.yaml(&[("host", "127.0.0.1".to_owned())], &["sha256:0".to_owned()])
    }

    fn check(args: &[&str], line: &str) {
        let yaml = effective("", args);
        assert!(yaml.lines().any(|one| one == line), "{line} is not in:\n{yaml}");
        assert_eq!(effective(&yaml, &[]), yaml, "it gives itself again");
    }

    #[test]
    fn what_is_printed_gives_the_same_again() {
        check(&[], "# grace: 30");
        check(&["--grace", "30"], "grace: 30");
        check(&["--kv-memory", "4GiB"], "kv-memory: \"4GiB\"");
        check(&["--state-memory", "2GiB"], "state-memory: \"2GiB\"");
        check(&[], "# state-every: 2048");
        check(&["--unix-mode", "0660"], "unix-mode: \"0660\"");
        check(&["--pin"], "pin: true");
        check(&["--numa"], "numa: true");
        check(&["-vv"], "verbose: 2");
        check(&["--device", "cpu"], "device: \"cpu\"");
        check(&["--request-timeout", "0.5"], "request-timeout: 0.5");
        check(&["--cors", "*"], "cors: \"*\"");
        check(&["--model", "a: b # c\n\"d\""], r#"model: "a: b # c\n\"d\"""#);
        check(&["--port", "0", "--host", "::1"], "host: \"::1\"");
    }

    #[test]
    fn settings_are_values_of_json() {
        let settings = SettingsFile::parse("system: a\napi-key: hidden\n", Path::new("x")).unwrap();
        let mut program = settings.apply(crate::Cli::command()).unwrap();
        let args = ["gannet", "serve", "--grace", "5", "--pin", "--stop", "a", "--stop", "b"];
        let matches = program.try_get_matches_from_mut(args).unwrap();
        let json = EffectiveSettings::of(&program, &matches, &settings)
            .json(&[("host", "127.0.0.1".to_owned())]);
        let given = json!({"pin": true, "stop": ["a", "b"], "grace": 5, "system": "a"});
        assert_eq!(json["given"], given);
        assert_eq!(json["defaults"]["host"], "127.0.0.1");
        assert_eq!(json["defaults"]["numa"], false);
    }

    #[test]
    fn a_value_that_is_not_utf8_is_no_setting_of_a_file() {
        let settings = SettingsFile::default();
        let mut program = settings.apply(crate::Cli::command()).unwrap();
        let folder = OsStr::from_bytes(b"kv\xff");
        let args = [OsStr::new("gannet"), OsStr::new("serve"), OsStr::new("--kv-dir"), folder];
        let matches = program.try_get_matches_from_mut(args).unwrap();
        let error = EffectiveSettings::of(&program, &matches, &settings).check_utf8().unwrap_err();
        assert!(error.to_string().starts_with("kv-dir: expected UTF-8"), "{error}");
    }

    #[test]
    fn flags_that_do_nothing_are_named() {
        let notes = |args: &[&str]| {
            let settings = SettingsFile::default();
            let mut program = settings.apply(crate::Cli::command()).unwrap();
            let matches = program.try_get_matches_from_mut(args).unwrap();
            EffectiveSettings::of(&program, &matches, &settings).notes().to_vec()
        };
        let serve = |args: &[&str]| notes(&[&["gannet", "serve"], args].concat());
        let line =
            |key: &str, other: &str| vec![format!("--{key} has no effect without --{other}")];
        assert_eq!(serve(&["--kv-dir-key", "k"]), line("kv-dir-key", "kv-dir"));
        let off = ["--kv-dir-key", "k", "--kv-dir", "off"];
        assert_eq!(serve(&off), line("kv-dir-key", "kv-dir"));
        assert_eq!(serve(&["--models-memory", "1GiB"]), line("models-memory", "models"));
        assert_eq!(serve(&["--unix-mode", "660"]), line("unix-mode", "unix"));
        assert_eq!(serve(&["--log-prompts"]), line("log-prompts", "verbose"));
        for args in [
            &["--kv-dir-key", "k", "--kv-dir", "auto"][..],
            &["--kv-dir-size", "1GiB", "--slot-save-path", "s"],
            &["--log-prompts", "-v"],
            &["--unix-mode", "660", "--unix", "s"],
            &[],
        ] {
            assert_eq!(serve(args), [""; 0], "{args:?}");
        }
        assert_eq!(notes(&["gannet", "chat", "--session", "s", "--kv-dir-key", "k"]), [""; 0]);
        let export = ["gannet", "cache", "export", "-p", "x", "-o", "f", "--kv-dir-key", "k"];
        assert_eq!(notes(&export), [""; 0]);
        let import = ["gannet", "cache", "import", "f", "--kv-dir-key", "k"];
        assert_eq!(notes(&import), [""; 0]);
    }

    #[test]
    fn defaults_are_comments() {
        let yaml = effective("", &[]);
        assert!(yaml.lines().all(|line| line.starts_with('#')), "{yaml}");
        assert!(yaml.contains("# host: \"127.0.0.1\""), "{yaml}");
    }

    #[test]
    fn settings_of_other_commands_stay() {
        let yaml = effective("system: Be brief.\ntemp: 0.5\n", &["--temp", "1"]);
        let lines: Vec<_> = yaml.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines, ["temp: 1", "system: \"Be brief.\""]);
    }

    #[test]
    fn servers_of_the_agent_are_named_without_their_settings() {
        let mcp = "mcp:\n  files: { command: [x], env: { KEY: hidden } }\n  web: { url: hidden }\n";
        let yaml = effective(mcp, &["--grace", "5"]);
        assert!(yaml.contains("# mcp is left out, with the servers files, web\n"), "{yaml}");
        assert!(!yaml.contains("hidden") && yaml.contains("grace: 5"), "{yaml}");
    }

    #[test]
    fn api_keys_are_shown_as_digests() {
        let yaml = effective("api-key: [hidden-1, hidden-2]", &[]);
        assert!(!yaml.contains("hidden") && yaml.contains("# a key of clients: sha256:0"));
        let yaml = effective("", &["--api-key", "hidden-3"]);
        assert!(!yaml.contains("hidden"), "{yaml}");
    }
}
