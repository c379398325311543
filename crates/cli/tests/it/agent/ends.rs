//! What is left when the agent ends.

use super::scene::{AgentScene, RunningAgent, bash, is_confined, tree};
use super::server::ServerAnswer;
use crate::gannet::until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::PathBuf;

/// A command whose processes leave its group and do not end by themselves.
const SLEEPERS: &str = "sleep 1000 & setsid sleep 1001 & setsid sh -c 'setsid sleep 1002 & \
    trap \"\" TERM HUP INT; while :; do sleep 1003; done' >/dev/null 2>&1 & \
    (nohup sleep 1004 &) >/dev/null 2>&1; echo $PPID >begun";

/// The command lines of processes that run in the workspace.
fn processes(scene: &AgentScene) -> Vec<String> {
    let work = scene.path("work");
    let ids = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let is_there = |path: &PathBuf| {
        fs::read_link(path.join("cwd")).is_ok_and(|folder| folder.starts_with(&work))
    };
    let line = |path: PathBuf| fs::read(path.join("cmdline")).unwrap_or_default();
    let lines = ids.filter(is_there).map(line);
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect()
}

/// An agent whose processes run in the workspace; it waits for the command if `waits`, else for
/// the server's next answer.
fn working(waits: bool) -> (AgentScene, RunningAgent) {
    let command = format!("{SLEEPERS}{}", if waits { "; sleep 1005" } else { "" });
    let call = ServerAnswer::calls(&[("1", "bash", bash(&command))]);
    let scene = AgentScene::new(vec![call, ServerAnswer::beginning("").held()]);
    let mut agent = scene.start(&["go"]);
    agent.event(if waits { "call" } else { "result" });
    let sleeps = |scene: &AgentScene| {
        processes(scene).iter().filter(|line| line.starts_with("sleep ")).count()
    };
    // The command writes the file after it has started them, which then take some time.
    until("the processes run", || {
        scene.text("work/begun").ends_with('\n') && sleeps(&scene) >= 5 + usize::from(waits)
    });
    (scene, agent)
}

/// Whether nothing runs in the workspace soon.
fn check(scene: &AgentScene) {
    until("all processes end", || processes(scene).is_empty());
}

/// What is in the folder for temporary files.
fn temporary(scene: &AgentScene) -> usize {
    fs::read_dir(scene.path("tmp")).unwrap().count()
}

#[test]
fn nothing_survives_an_agent_that_is_killed() {
    if !is_confined("nothing_survives_an_agent_that_is_killed") {
        return;
    }
    for waits in [true, false] {
        let (scene, agent) = working(waits);
        agent.kill();
        check(&scene);
        // A folder with nothing in it may stay.
        let has_file = |(path, _): &(PathBuf, Vec<u8>)| !path.is_dir();
        until("files are removed", || !tree(&scene.path("tmp")).iter().any(has_file));
    }
}

#[test]
fn nothing_survives_an_agent_that_a_signal_ends() {
    if !is_confined("nothing_survives_an_agent_that_a_signal_ends") {
        return;
    }
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        for waits in [true, false] {
            let (scene, agent) = working(waits);
            agent.signal(signal);
            let end = agent.end();
            assert_eq!(end.code, Some(code), "{end:?}");
            // They have ended before it.
            assert_eq!(processes(&scene), [""; 0]);
            assert_eq!(temporary(&scene), 0);
        }
    }
}

#[test]
fn nothing_survives_an_agent_that_is_done() {
    if !is_confined("nothing_survives_an_agent_that_is_done") {
        return;
    }
    let calls = ServerAnswer::calls(&[("1", "bash", bash(SLEEPERS))]);
    let scene = AgentScene::new(vec![calls, ServerAnswer::text("done")]);
    let end = scene.run(&["go"]);
    assert_eq!((end.code, end.text("text").as_str()), (Some(0), "done"), "{end:?}");
    assert!(end.text("result").contains("processes that it started still run"), "{end:?}");
    assert_eq!(processes(&scene), [""; 0]);
    assert_eq!(temporary(&scene), 0);
}

#[test]
fn nothing_survives_an_agent_whose_server_fails() {
    if !is_confined("nothing_survives_an_agent_whose_server_fails") {
        return;
    }
    let scene = AgentScene::new(vec![ServerAnswer::calls(&[("1", "bash", bash(SLEEPERS))])]);
    let end = scene.run(&["go"]);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert_eq!(processes(&scene), [""; 0]);
    assert_eq!(temporary(&scene), 0);
}

#[test]
fn an_unconfined_command_does_not_survive_either() {
    let calls = ServerAnswer::calls(&[("1", "bash", bash(&format!("{SLEEPERS}; sleep 1005")))]);
    let scene = AgentScene::new(vec![calls]);
    let mut agent = scene.start(&["go", "--sandbox", "off", "--confirm", "allow"]);
    agent.event("call");
    until("the processes run", || scene.text("work/begun").ends_with('\n'));
    agent.kill();
    check(&scene);
}

#[test]
fn nothing_survives_tools_that_are_killed() {
    if !is_confined("nothing_survives_tools_that_are_killed") {
        return;
    }
    let (scene, agent) = working(true);
    let pid = scene.text("work/begun").trim().parse().ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let end = agent.end();
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.err.contains("the process of the tools has ended"), "{}", end.err);
    check(&scene);
}
