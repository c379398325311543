//! The table of settings: their keys, and which of them a file in the current folder may set.
//!
//! Which commands take a setting is no part of it: a command takes the settings that it has a flag
//! for.

use clap::{Arg, Command};

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The long name of its flag, or that of [`OTHER_NAMES`].
    pub key: &'static str,
    /// Whether a file that was found in the current folder cannot set it: it names an address, a
    /// key, a certificate, a file or folder that is written, or a file of further settings, or it
    /// switches a protection off.
    pub trusted_only: bool,
}

/// A setting that a file in the current folder may have.
const fn any(key: &'static str) -> Setting {
    Setting { key, trusted_only: false }
}

/// A setting that only the user gives.
const fn user(key: &'static str) -> Setting {
    Setting { key, trusted_only: true }
}

/// All settings, by subject.
#[rustfmt::skip]
pub(crate) const SETTINGS: &[Setting] = &[
    any("model"), user("hub-endpoint"), any("pre-fallback"), any("chat-template"),
    any("tool-format"), any("greedy-structure"), any("placement"), any("lora"),
    any("device"), any("device-memory"), any("threads"), any("pin"), any("numa"), any("ctx"),
    any("mode"), any("bits"), any("kv-type"), any("cache-rounding"), any("kv-memory"),
    any("state-memory"),
    any("state-every"), any("kv-block"), any("chunk"), any("pooling"), any("check"),
    any("weights-pack"), any("weights-memory"), any("table-memory"),
    any("weights-read-threads"),
    any("weights-preload"), user("route-trace"), any("simulate-memory"),
    any("ranks"), any("pipeline"), any("tensor"), any("stage-layers"), any("local-cpus"),
    any("in-flight"), any("rank-timeout"),
    user("kv-dir"), any("kv-dir-size"), any("kv-dir-write"), any("kv-dir-write-rate"),
    user("kv-dir-key"), any("kv-dir-min-tokens"),
    any("max-tokens"), any("min-tokens"), any("temp"), any("top-k"), any("top-p"), any("min-p"),
    any("typical-p"), any("repeat-penalty"), any("presence-penalty"), any("frequency-penalty"),
    any("penalty-window"), any("logit-bias"), any("seed"), any("stop"), any("stop-id"),
    any("ignore-eos"),
    any("system"), any("stats"), user("state-dir"),
    user("models"), any("models-memory"), any("keep-alive"), user("host"), any("port"),
    user("unix"), user("unix-mode"), user("tls-cert"), user("tls-key"),
    any("lora-dir"), any("max-loras"), user("allow-lora-updates"), any("alias"), any("no-ui"),
    any("no-slots"), user("slot-save-path"), any("no-metrics"),
    user("api-key"), user("api-key-file"), user("cors"), user("allowed-host"), user("rate-limit"),
    user("rate-limit-tokens"), user("max-concurrent"), user("cache-isolation"),
    user("log-prompts"), any("receipts"), user("receipt-key"),
    user("connections"), user("header-limit"), user("header-timeout"), user("body-limit"),
    user("body-timeout"), user("json-depth"), any("sse-ping-interval"), user("stall-timeout"),
    any("progress-timeout"), any("grace"),
    any("stored-responses"), any("stored-response-bytes"), any("stored-response-age"),
    any("resume-background"),
    any("parallel"), any("queue"), any("itl-target-ms"), any("speculate"), any("draft-memory"), any("draft-model"),
    any("draft-kv-memory"), any("request-timeout"),
    user("trace-dir"),
    user("url"), user("server-key-file"), user("sandbox"), user("net"), user("read"), user("write"), user("confirm"),
    user("allow"), user("max-turns"), user("work-timeout"), user("no-instructions"),
    any("verbose"), any("log-format"),
];

/// Flags whose setting has another name, with that: the setting `max-tokens` is the length of one
/// answer in every command, `api-key-file` has the keys of the server's clients, and `timeout` is
/// also the time that `health` waits.
const OTHER_NAMES: [(&str, &str); 3] = [
    ("answer-tokens", "max-tokens"),
    ("api-key-file", "server-key-file"),
    ("timeout", "work-timeout"),
];

/// The key of the agent's MCP servers. It has no flag and no variable, and only the user gives it:
/// servers are commands.
pub(crate) const MCP: &str = "mcp";

/// The keys that a file may have.
pub(crate) fn keys() -> impl Iterator<Item = &'static str> + Clone {
    SETTINGS.iter().map(|setting| setting.key).chain([MCP])
}

/// The setting with this key.
pub(crate) fn setting(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

/// The setting that a flag gives. A flag of the same name that means something else in its command
/// has an id that is not its name.
pub(crate) fn setting_of(arg: &Arg) -> Option<&'static Setting> {
    let (long, id) = (arg.get_long()?, arg.get_id().as_str());
    let has_id = |key: &&str| id == key.replace('-', "_");
    let other = OTHER_NAMES.iter().filter(|(flag, _)| *flag == long).map(|(_, key)| *key);
    std::iter::once(long).chain(other).find(has_id).and_then(setting)
}

/// Calls `each` with the names of every command below `command` that has flags of its own, and
/// these flags.
#[cfg(test)]
pub(crate) fn for_each_command(command: &Command, each: &mut dyn FnMut(&str, &[&Arg])) {
    let args: Vec<&Arg> = command.get_arguments().collect();
    each(command.get_name(), &args);
    command.get_subcommands().for_each(|inner| for_each_command(inner, each));
}

/// The flag of a command that gives a setting.
pub(crate) fn flag<'a>(command: &'a Command, setting: &Setting) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| setting_of(arg) == Some(setting))
}
