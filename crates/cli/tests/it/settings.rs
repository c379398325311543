//! `gannet.yaml` and variables as defaults of the flags.

use crate::gannet::{check_error, command, file, run, tiny};
use serde_json::Value;

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
