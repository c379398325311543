//! What commands try with the process of the tools, which starts them, and with its files.

use super::scene::{AgentScene, RunningAgent, bash, is_confined};
use super::server::ServerAnswer;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A program that becomes another one on a system without Landlock, as a filter of system calls
/// (x86-64 and AArch64) has it.
const WITHOUT_LANDLOCK: &str = r#"
import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050026), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;
const PYTHON: &str = "/usr/bin/python3";

/// A scene in which the model runs these commands, one in each answer.
fn scene(commands: &[String]) -> AgentScene {
    let call = |(number, command): (usize, &String)| {
        ServerAnswer::calls(&[(&number.to_string(), "bash", bash(command))])
    };
    let calls = commands.iter().enumerate().map(call);
    AgentScene::new(calls.chain([ServerAnswer::text("done")]).collect())
}

/// `program` with the command and its arguments as further arguments.
fn before(mut program: Command, scene: &AgentScene, args: &[&str]) -> Command {
    let command = scene.command();
    program.arg(command.get_program()).args(command.get_args()).args(args);
    program.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    program
}

#[test]
fn where_nothing_can_be_confined_each_call_is_outside() {
    if !is_confined("where_nothing_can_be_confined_each_call_is_outside")
        || !Path::new(PYTHON).exists()
    {
        return;
    }
    for (args, code, text) in [
        (&["--json", "go"][..], 3, "absent"),
        (&["--json", "--confirm", "allow", "go"], 0, "x\n"),
        (&["--json", "--sandbox", "read-only", "go"], 1, "absent"),
    ] {
        let scene = scene(&["echo x >>log".to_owned()]);
        let mut python = Command::new(PYTHON);
        python.args(["-c", WITHOUT_LANDLOCK]);
        let end = RunningAgent::start(before(python, &scene, args)).end();
        assert_eq!((end.code, scene.text("work/log").as_str()), (Some(code), text), "{end:?}");
        assert!(code == 1 || end.err.contains("nothing is confined here"), "{}", end.err);
    }
}

#[test]
fn a_command_does_not_speak_for_the_agent_or_for_its_tools() {
    if !is_confined("a_command_does_not_speak_for_the_agent_or_for_its_tools") {
        return;
    }
    let accept = json!({"id": 77, "tool": "accept", "arguments": {"change": 0}});
    let answer = json!({"id": 2, "ok": true, "text": "forged", "changed": [], "guarded": []});
    let scene = scene(&[
        "mkdir -p .git/hooks; echo x >.git/hooks/pre-commit".to_owned(),
        format!("echo '{accept}' >/proc/$PPID/fd/0; echo '{answer}' >/proc/$PPID/fd/1; echo $?"),
        "exec 9>/proc/$PPID/fd/0 || echo refused".to_owned(),
    ]);
    let end = scene.run(&["go"]);
    assert_eq!(end.code, Some(3), "{end:?}");
    let results = scene.server.results();
    assert_eq!(results.len(), 3, "{results:?}");
    assert!(
        results[1].contains("Permission denied") && results[1].contains("\n1\n"),
        "{results:?}"
    );
    assert!(results[2].contains("refused"), "{results:?}");
    assert_eq!(scene.text("work/.git/hooks/pre-commit"), "absent");
}

#[test]
fn a_command_signals_none_of_the_processes_above_it() {
    let test = "a_command_signals_none_of_the_processes_above_it";
    if !is_confined(test) || !confine::support().unwrap().scopes {
        return;
    }
    let scene = scene(&[
        "for s in STOP KILL TERM; do kill -$s $PPID && echo signalled; done; echo x >.envrc"
            .to_owned(),
        "echo still here".to_owned(),
    ]);
    let end = scene.run(&["go"]);
    assert_eq!(end.code, Some(3), "{end:?}");
    let results = scene.server.results();
    assert!(!results[0].contains("signalled"), "{results:?}");
    assert!(results[1].contains("still here"), "{results:?}");
    assert_eq!(scene.text("work/.envrc"), "absent");
}

#[test]
fn commands_write_none_of_the_files_that_the_agent_and_its_tools_keep() {
    if !is_confined("commands_write_none_of_the_files_that_the_agent_and_its_tools_keep") {
        return;
    }
    let scene = scene(&[
        "k=$(dirname $TMPDIR)/kept; seq 9999; ls $k; cat $k/gitconfig".to_owned(),
        "k=$(dirname $TMPDIR)/kept; for f in $k/*; do rm -rf $f; ln -sfn /etc $f; echo x >$f; \
         done; echo x >$k/new; mv $k $TMPDIR/k; mv $TMPDIR $k.tmp; ls $k/gitconfig"
            .to_owned(),
        "rm -rf $TMPDIR/*; chmod 500 $TMPDIR; echo works".to_owned(),
        "echo still works".to_owned(),
    ]);
    let end = scene.run(&["go"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    let results = scene.server.results();
    assert!(results[0].contains("agent@localhost"), "{results:?}");
    assert!(results[1].trim_end().ends_with("/kept/gitconfig"), "{results:?}");
    assert!(results[3].contains("still works"), "{results:?}");
    assert_eq!(fs::read_dir(scene.path("tmp")).unwrap().count(), 0);
}

#[test]
fn a_session_has_more_commands_than_a_process_open_files() {
    if !is_confined("a_session_has_more_commands_than_a_process_open_files") {
        return;
    }
    let commands: Vec<String> = (0..60).map(|number| format!("echo {number}")).collect();
    let scene = scene(&commands);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 48; exec \"$0\" \"$@\""]);
    let limited = before(limited, &scene, &["--json", "go"]);
    let end = RunningAgent::start(limited).end();
    assert_eq!((end.code, end.all("result").len()), (Some(0), 60), "{end:?}");
    assert!(end.all("result").iter().all(|it| it["ok"] == true), "{end:?}");
}
