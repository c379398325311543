//! The settings that a command runs with, as a `gannet.yaml` that gives the same settings.
//!
//! Invariant: the file holds no API key, only the labels of keys in logs.

use crate::settings::KEYS;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// The secret setting.
const SECRET: &str = "api-key";

/// The settings of a command that have a value, in the order of [`KEYS`].
#[derive(Clone, Debug, Default)]
pub(crate) struct EffectiveSettings(Vec<(&'static str, Vec<String>)>);

impl EffectiveSettings {
    /// Merges flags, variables, the file and the defaults. `program` must have parsed `matches`.
    pub fn of(program: &Command, matches: &ArgMatches) -> Self {
        let Some((name, matches)) = matches.subcommand() else { return Self::default() };
        let Some(command) = program.find_subcommand(name) else { return Self::default() };
        let setting = |&key: &&'static str| {
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(key))?;
            Some((key, values(arg, matches)?))
        };
        Self(KEYS.iter().filter_map(setting).collect())
    }

    /// The values of each setting.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        self.0.iter().map(|(key, values)| (*key, &**values))
    }

    /// The text of the file. `chosen` are settings whose values come from elsewhere; API keys are
    /// listed by their `labels`.
    pub fn yaml(&self, chosen: &[(&'static str, String)], labels: &[String]) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let mut text = format!("# The settings in effect, gannet {version}\n");
        for label in labels {
            text += &format!("# a key of clients: {label}\n");
        }
        for key in KEYS.iter().filter(|&&key| key != SECRET) {
            let given = self.0.iter().find(|(name, _)| name == key).map(|(_, values)| list(values));
            let chosen = || chosen.iter().find(|(name, _)| name == key);
            if let Some(value) = given.or_else(|| chosen().map(|(_, value)| scalar(value))) {
                text += &format!("{key}: {value}\n");
            }
        }
        text
    }
}

fn values(arg: &Arg, matches: &ArgMatches) -> Option<Vec<String>> {
    let id = arg.get_id().as_str();
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return Some(vec![matches.get_flag(id).to_string()]);
    }
    let raw = matches.get_raw(id)?;
    Some(raw.map(|value| value.to_string_lossy().into_owned()).collect())
}

fn list(values: &[String]) -> String {
    match values {
        [one] => scalar(one),
        many => format!("[{}]", many.iter().map(|v| scalar(v)).collect::<Vec<_>>().join(", ")),
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
        _ => serde_json::Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SettingsFile;
    use clap::CommandFactory;
    use std::path::Path;

    fn effective(yaml: &str, args: &[&str]) -> String {
        let settings = SettingsFile::parse(yaml, Path::new("gannet.yaml")).unwrap();
        let mut program = settings.apply(crate::Cli::command()).unwrap();
        let matches = program.try_get_matches_from_mut([&["gannet", "serve"], args].concat());
        EffectiveSettings::of(&program, &matches.unwrap()).yaml(&[], &["sha256:0".to_owned()])
    }

    fn check(args: &[&str], line: &str) {
        let yaml = effective("", args);
        assert!(yaml.lines().any(|one| one == line), "{line} is not in:\n{yaml}");
        assert_eq!(effective(&yaml, &[]), yaml, "it gives itself again");
    }

    #[test]
    fn what_is_printed_gives_the_same_again() {
        check(&[], "grace: 30");
        check(&["--kv-memory", "4GiB"], "kv-memory: \"4GiB\"");
        check(&["--state-memory", "2GiB"], "state-memory: \"2GiB\"");
        check(&[], "state-every: 2048");
        check(&["--unix-mode", "0660"], "unix-mode: \"0660\"");
        check(&["--pin"], "pin: true");
        check(&["--numa"], "numa: true");
        check(&["--request-timeout", "0.5"], "request-timeout: 0.5");
        check(&["--cors", "*"], "cors: \"*\"");
        check(&["--model", "a: b # c\n\"d\""], r#"model: "a: b # c\n\"d\"""#);
        check(&["--port", "0", "--host", "::1"], "host: \"::1\"");
    }

    #[test]
    fn api_keys_are_shown_as_digests() {
        let yaml = effective("api-key: [hidden-1, hidden-2]", &[]);
        assert!(!yaml.contains("hidden") && yaml.contains("# a key of clients: sha256:0"));
        let yaml = effective("", &["--api-key", "hidden-3"]);
        assert!(!yaml.contains("hidden"), "{yaml}");
    }
}
