//! Tests of settings as defaults of flags, over all commands.

use super::keys::{self, SETTINGS, for_each_command};
use super::*;
use clap::{CommandFactory, FromArgMatches};
use std::collections::BTreeSet;

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
    check("device: cpu\ndevice-memory: 1MiB", &run, "device_memory: Some(1048576)");
    check("verbose: 2\nlog-format: json", &run, "verbose: 2, log_format: Json");
    check("# nothing\n\n", &run, "temp: None");
}

#[test]
fn settings_reach_commands_of_commands() {
    check("kv-dir: /kv", &["gannet", "cache", "path"], r#"kv_dir: "/kv""#);
    check("state-dir: /st", &["gannet", "sessions", "list"], r#"state_dir: Some("/st")"#);
    check("kv-dir: /kv", &["gannet", "cache", "verify", "--kv-dir", "/x"], r#"kv_dir: "/x""#);
}

fn check_refused(yaml: &str, expected: &str) {
    let error = format!("{:#}", parse(yaml, &["gannet", "run", "x"]).unwrap_err());
    assert!(error.contains("gannet.yaml") && error.contains(expected), "{error}");
}

#[test]
fn values_are_those_that_the_file_spells() {
    let (run, serve) = (["gannet", "run", "x"], ["gannet", "serve"]);
    check("kv-dir-write: off", &run, "kv_dir_write: Off");
    check("cache-rounding: off", &run, "cache_rounding: Some(Off)");
    check("speculate: off", &run, "speculate: Off");
    check("stop: yes", &run, r#"stop: ["yes"]"#);
    check("stop: [1.0, 0123]", &run, r#"stop: ["1.0", "0123"]"#);
    check("cache-isolation: off", &serve, "cache_isolation: Some(Off)");
    check("unix: s\nunix-mode: 0o660", &serve, "unix_mode: 432");
    check("api-key: [0x1234, 1e5]", &serve, r#"api_key: ["0x1234", "1e5"]"#);
    let long = "12345678901234567890123";
    check(&format!("api-key: {long}"), &serve, &format!(r#"api_key: ["{long}"]"#));
    check("alias: 1.10", &serve, r#"alias: ["1.10"]"#);
    check("alias: [0123, 1_000]", &serve, r#"alias: ["0123", "1_000"]"#);
}

#[test]
fn lists_are_separated_by_commas_as_those_of_flags_are() {
    let serve = ["gannet", "serve"];
    check("host: 127.0.0.1,::1", &serve, "host: [127.0.0.1, ::1]");
    check(r#"allowed-host: "a,b""#, &serve, r#"allowed_host: ["a", "b"]"#);
    check("alias: [a, \"b,c\"]", &serve, r#"alias: ["a", "b", "c"]"#);
    check_refused("host: 127.0.0.1,here", "host: invalid value 'here'");
}

#[test]
fn a_named_device_is_read_up_to_the_limit() {
    let error =
        SettingsFile::read(&AskedSettings { file: Some("/dev/zero".into()), ..Default::default() })
            .unwrap_err()
            .to_string();
    assert!(error.starts_with("/dev/zero: expected at most"), "{error}");
}

#[test]
fn wrong_settings_are_refused_by_name() {
    check_refused("tempo: 1", "tempo: no such setting (did you mean temp?)");
    check_refused("temp: warm", "invalid value 'warm'");
    check_refused("temp: [1, 2]", "temp: expected one value");
    check_refused("ignore-eos: 7", "ignore-eos: expected true or false");
    check_refused("ignore-eos: yes", "ignore-eos: expected true or false");
    check_refused("temp: 1\ntemp: 2", "duplicate mapping key: temp not allowed here");
    check_refused("verbose: much", "verbose");
    check_refused("port: 99999", "port");
    check_refused("- a", "key: value");
}

#[test]
fn a_file_of_the_folder_has_no_setting_that_only_the_user_gives() {
    for setting in SETTINGS {
        let yaml = format!("{}: x", setting.key);
        let file = SettingsFile::parse(&yaml, Path::new("/a/gannet.yaml")).unwrap();
        match file.of_folder() {
            Ok(_) => assert!(!setting.trusted_only, "{}", setting.key),
            Err(error) => {
                let error = error.to_string();
                assert!(setting.trusted_only, "{error}");
                let parts = ["/a/gannet.yaml", setting.key, "--config ./gannet.yaml"];
                assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            }
        }
    }
}

/// Flags of `serve`, and of programs as a whole, that are not settings: what one call does, and the
/// opposites of settings.
const NOT_SETTINGS: [&str; 7] =
    ["config", "print-config", "json", "slots", "metrics", "force", "stop-at-eof"];

#[test]
fn every_flag_of_the_server_is_a_setting() {
    let program = crate::Cli::command();
    let serve = program.find_subcommand("serve").unwrap();
    for arg in program.get_arguments().chain(serve.get_arguments()) {
        let Some(long) = arg.get_long() else { continue };
        let is_other = NOT_SETTINGS.contains(&long);
        assert_ne!(setting_of(arg).is_some(), is_other, "{long}");
    }
}

#[test]
fn every_key_is_the_name_of_a_flag() {
    let mut found = BTreeSet::new();
    for_each_command(&crate::Cli::command(), &mut |_, args| {
        found.extend(args.iter().filter_map(|arg| setting_of(arg)).map(|setting| setting.key));
    });
    let all: BTreeSet<_> = SETTINGS.iter().map(|setting| setting.key).collect();
    assert_eq!(found, all);
    assert_eq!(SETTINGS.len(), all.len());
}

/// Values of which each flag takes some.
const VALUES: [&str; 22] = [
    "77",
    "true",
    "off",
    "exact",
    "portable",
    "bf16",
    "mean",
    "::2",
    "9=1",
    "json",
    "cpu",
    "hermes",
    "7d",
    "local",
    "localhost",
    "9000000",
    "128",
    "4",
    "0.5",
    "refuse",
    "fetch:docs.rs",
    "workspace",
];

#[test]
fn every_setting_reaches_every_command_that_has_its_flag() {
    let program = crate::Cli::command();
    for setting in SETTINGS {
        let settings = |value: &'static str, quote: &str| {
            let yaml = format!("{}: {quote}{value}{quote}", setting.key);
            let file = SettingsFile::parse(&yaml, Path::new("gannet.yaml")).unwrap();
            file.check_command(&program).ok()?;
            Some((value, file.with_defaults(program.clone())))
        };
        for quote in ["", "\""] {
            let found = VALUES.into_iter().find_map(|value| settings(value, quote));
            let (value, program) = found.expect(setting.key);
            let mut commands = 0;
            for_each_command(&program, &mut |name, args| {
                let Some(arg) = args.iter().find(|arg| setting_of(arg) == Some(setting)) else {
                    return;
                };
                assert_eq!(arg.get_default_values(), [value], "{name} --{}", setting.key);
                commands += 1;
            });
            assert!(commands > 0, "{}", setting.key);
        }
    }
}

#[test]
fn a_flag_that_is_no_setting_has_another_meaning() {
    let mut found = Vec::new();
    for_each_command(&crate::Cli::command(), &mut |name, args| {
        let longs = args.iter().filter_map(|arg| Some((arg.get_long()?, *arg)));
        let others =
            longs.filter(|(long, arg)| keys::setting(long).is_some() && setting_of(arg).is_none());
        found.extend(others.map(|(long, _)| format!("{name} --{long}")));
    });
    let expected = [
        "agent --max-tokens",
        "agent --system",
        "inspect --placement",
        "inspect --pipeline",
        "inspect --tensor",
        "prune --model",
        "bench-serve --model",
        "bench-serve --api-key",
        "bench-serve --seed",
        "bench-serve --temp",
        "synth --seed",
    ];
    assert_eq!(found, expected);
}

const SERVERS: &str = "temp: 0\nmcp:\n  files: { command: [x, 8080], net: true }\n";

#[test]
fn servers_of_the_agent_are_kept_as_they_are_written() {
    let path = Path::new("/a/gannet.yaml");
    let file = SettingsFile::parse(SERVERS, path).unwrap();
    let value = serde_json::json!({"files": {"command": ["x", "8080"], "net": "true"}});
    assert_eq!(file.mcp(), Some(McpSetting { path: path.to_owned(), value }));
    check(SERVERS, &["gannet", "run", "x"], "temp: Some(0.0)");
    assert_eq!(SettingsFile::parse("temp: 0", path).unwrap().mcp(), None);
    check_refused("mpc: {}", "mpc: no such setting (did you mean mcp?)");
    let error = file.of_folder().unwrap_err().to_string();
    assert!(error.starts_with("/a/gannet.yaml: mcp: a file in the current folder"), "{error}");
    assert!(error.ends_with("the user's configuration folder"), "{error}");
}

#[test]
fn the_agents_flags_are_settings() {
    let yaml = "allow: [\"bash: cargo test\", \"fetch: docs.rs\"]\nconfirm: writes\nnet: true\n\
                read: [/a, /b]\nsandbox: read-only\nmax-turns: 9\nurl: http://x\n";
    let agent = ["gannet", "agent", "x"];
    let rules = r#"allow: [Command(["cargo", "test"]), Host("docs.rs")]"#;
    for expected in [
        rules,
        "confirm: Some(Writes)",
        "net: true",
        r#"read: ["/a", "/b"]"#,
        "sandbox: ReadOnly",
        "max_turns: 9",
        r#"url: Some("http://x")"#,
    ] {
        check(yaml, &agent, expected);
    }
    let command = ["gannet", "agent", "--allow", "mcp: a/b", "--confirm", "allow", "x"];
    check(yaml, &command, r#"allow: [Mcp { server: "a", tool: "b" }]"#);
    check_refused("allow: cargo test", "allow: ");
    check_refused("allow:\n  - bash: cargo test", "allow: expected a value or a list of values; a");
    check_refused("allow: [\"bash: a | b\"]", "allow: ");
    // The length of an answer is no limit of the work, and the key of a server none of clients.
    check("max-tokens: 7", &agent, "work_tokens: None");
    check("max-tokens: 7", &agent, "max_tokens: Some(7)");
    check("max-tokens: 7", &["gannet", "agent", "x", "-n", "9"], "work_tokens: Some(9)");
    check("server-key-file: k", &agent, r#"api_key_file: Some("k")"#);
    check("server-key-file: k", &["gannet", "serve"], "api_key_file: None");
    check("work-timeout: 5", &agent, "timeout: Some(5s)");
    check("work-timeout: 5", &["gannet", "health"], "timeout: 5s");
    // A text for the other commands is no file for this one.
    check("system: Be brief.\napi-key-file: keys", &agent, "api_key_file: None");
}

#[test]
fn the_file_is_named_before_the_command() {
    let asked =
        |args: &[&str]| asked_for(&args.iter().map(OsString::from).collect::<Vec<_>>()).file;
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

#[test]
fn agents_leave_the_file_of_the_current_folder_out() {
    let asked = |words: &[&str]| {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        asked_for(&words)
    };
    let agent = asked(&["gannet", "-v", "--log-format", "json", "agent", "run"]);
    assert!(agent.leaves_folder_out && agent.file.is_none());
    let named = asked(&["gannet", "--config", "a.yaml", "agent", "--config", "b.yaml"]);
    assert!(named.leaves_folder_out && named.file == Some("a.yaml".into()));
    assert!(!asked(&["gannet", "run", "agent"]).leaves_folder_out);
}
