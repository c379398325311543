//! `gannet.yaml` and variables as defaults of the flags.

use crate::gannet::{Ended, check_error, command, file, run, succeed, tiny};
use serde_json::Value;
use std::path::Path;

fn tokens(settings: &str, variable: Option<&str>, flag: Option<&str>) -> Value {
    let (tiny, mut command) = (tiny(), command());
    command.args(["--config", settings, "run", "x", "--json", "-m", &tiny, "--ignore-eos"]);
    command.envs(variable.map(|value| ("GANNET_MAX_TOKENS", value)));
    command.args(flag.map(|value| format!("--max-tokens={value}")));
    let output = command.output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    value["usage"]["completion_tokens"].clone()
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let settings = file("settings.yaml", "max-tokens: 2\ntemp: 0\n");
    assert_eq!(tokens(&settings, None, None), 2);
    assert_eq!(tokens(&settings, Some("3"), None), 3);
    assert_eq!(tokens(&settings, Some("3"), Some("4")), 4);
}

#[test]
fn a_wrong_setting_names_file_and_key() {
    let settings = file("wrong.yaml", "tempo: 1\n");
    check_error(&run(&["--config", &settings, "run", "x"]), "wrong.yaml: tempo");
}

#[test]
fn what_blocks_or_never_ends_in_the_current_folder_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gannet.yaml");
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    check_error(&run_in(folder.path(), &["run", "hi"]), "gannet.yaml: expected a regular file");
    std::fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    check_error(&run_in(folder.path(), &["run", "hi"]), "gannet.yaml: expected a regular file");
    let named = run_in(folder.path(), &["--config", "/dev/null", "cache", "path"]);
    assert_eq!(named.code, Some(0), "{}", named.err);
}

/// Runs a command in a folder.
fn run_in(folder: &Path, args: &[&str]) -> Ended {
    command().args(args).current_dir(folder).output().unwrap().into()
}

#[test]
fn a_file_of_the_current_folder_is_named_where_it_is_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gannet.yaml");
    std::fs::write(&path, "max-tokens: 2\nthreads: 1\nignore-eos: true\n").unwrap();
    let ended = run_in(folder.path(), &["run", "Hello", "--json"]);
    let answer: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(answer["usage"]["completion_tokens"], 2);
    let line = format!("settings of {}: ", path.canonicalize().unwrap().display());
    assert_eq!(ended.err.matches(&line).count(), 1, "{}", ended.err);
    // Nothing is said where no flag is set by the file, or where the file was named.
    assert_eq!(run_in(folder.path(), &["devices"]).err, "");
    let named = run_in(folder.path(), &["--config", "gannet.yaml", "run", "Hello"]);
    assert!(!named.err.contains("settings of"), "{}", named.err);
}

#[test]
fn a_file_of_the_current_folder_sets_no_address_key_or_folder() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("kv");
    for key in ["hub-endpoint", "kv-dir", "state-dir", "tls-key", "cors", "trace-dir", "host"] {
        let yaml = format!("temp: 0\n{key}: \"{}\"\n", own.display());
        std::fs::write(folder.path().join("gannet.yaml"), yaml).unwrap();
        for args in [&["run", "Hello", "-n", "2"][..], &["serve", "--port", "0"]] {
            let ended = run_in(folder.path(), args);
            check_error(&ended, &format!("gannet.yaml: {key}: "));
            assert!(ended.err.contains("--config ./gannet.yaml"), "{}", ended.err);
        }
    }
    // Help does not depend on the file.
    assert_eq!(run_in(folder.path(), &["run", "--help"]).code, Some(0));
    std::fs::write(folder.path().join("gannet.yaml"), "kv-dir: kv\n").unwrap();
    let named = run_in(folder.path(), &["--config", "gannet.yaml", "cache", "path"]);
    assert_eq!(named.out, "kv\n");
}

#[test]
fn the_users_own_file_is_obeyed_in_its_folder_too() {
    let config = tempfile::tempdir().unwrap();
    let folder = config.path().join("gannet");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("gannet.yaml"), "kv-dir: /some/kv\n").unwrap();
    for place in [folder.as_path(), config.path()] {
        let mut command = command();
        command.env("XDG_CONFIG_HOME", config.path()).current_dir(place);
        let ended = Ended::from(command.args(["cache", "path"]).output().unwrap());
        assert_eq!((&*ended.out, &*ended.err), ("/some/kv\n", ""));
    }
}

#[test]
fn sessions_and_caches_are_those_of_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let (state, kv) = (folder.path().join("st"), folder.path().join("kv"));
    let yaml = format!("state-dir: {}\nkv-dir: {}\n", state.display(), kv.display());
    let settings = file("folders.yaml", yaml);
    let settings = ["--config", &settings];
    std::fs::create_dir_all(state.join("sessions")).unwrap();
    std::fs::write(state.join("sessions/mine.json"), "{").unwrap();
    let args = [&settings[..], &["sessions", "list"]].concat();
    assert!(succeed(&args).starts_with("mine  cannot be read"));
    let args = [&settings[..], &["sessions", "list", "--state-dir", "/none"]].concat();
    assert_eq!(succeed(&args), "no sessions\n");
    let args = [&settings[..], &["cache", "path"]].concat();
    assert_eq!(succeed(&args).trim(), kv.to_str().unwrap());
    let mut by_variable = command();
    by_variable.env("GANNET_KV_DIR", &kv).args(["cache", "path"]);
    assert_eq!(Ended::from(by_variable.output().unwrap()).out.trim(), kv.to_str().unwrap());
}

#[test]
fn an_empty_variable_is_none_and_a_misspelt_one_is_named() {
    let mut command = command();
    command.env("GANNET_TEMP", "").env("GANNET_TMEP", "1").args(["run", "Hello", "-n", "2"]);
    let ended = Ended::from(command.output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.err.contains("GANNET_TMEP: no such setting; did you mean GANNET_TEMP?"));
}

#[test]
fn printed_settings_change_nothing_and_replace_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let written = ["serve", "--print-config=printed.yaml", "--port", "8443"];
    assert_eq!(run_in(folder.path(), &written).code, Some(0));
    let printed = std::fs::read_to_string(folder.path().join("printed.yaml")).unwrap();
    let set: Vec<_> = printed.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(set, ["port: 8443"]);
    check_error(&run_in(folder.path(), &written), "printed.yaml exists already");
    let replaced = run_in(folder.path(), &[&written[..], &["--force"]].concat());
    assert_eq!(replaced.code, Some(0), "{}", replaced.err);
    // Not even that of other commands: state-dir is off for servers only.
    let args = ["--config", "printed.yaml", "sessions", "list"];
    let listed = run_in(folder.path(), &args);
    assert_eq!(listed.code, Some(0), "{}", listed.err);
}
