//! Processes that leave their group end with the host. Alone in its process, whose children all
//! end.

#![cfg(target_os = "linux")]

use agent::{CommandShell, Host, ToolWorkspace};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

#[test]
fn processes_that_leave_their_group_end_with_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let (work, temporary) = (folder.path().join("work"), folder.path().join("temporary"));
    fs::create_dir_all(&work).unwrap();
    fs::create_dir_all(&temporary).unwrap();
    let shell = CommandShell::new(&temporary);
    let workspace = ToolWorkspace::open(&work, &temporary, shell).unwrap();
    let mut host = Host::with_orphans(workspace).unwrap();
    let (input, mut requests) = std::io::pipe().unwrap();
    let (answers, output) = std::io::pipe().unwrap();
    let thread = thread::spawn(move || host.serve(BufReader::new(input), output).unwrap());
    let command = "setsid sh -c 'echo $$ >a; while [ ! -e go ]; do sleep 0.01; done; \
        echo x >.envrc; touch done; sleep 1000' & while [ ! -e a ]; do sleep 0.01; done";
    let mut ask = |tool: &str, arguments: serde_json::Value| {
        let request = serde_json::json!({"id": 1, "tool": tool, "arguments": arguments});
        writeln!(requests, "{request}").unwrap();
    };
    let mut answers = BufReader::new(answers).lines();
    ask("bash", serde_json::json!({"command": command, "wait_s": 20}));
    assert!(answers.next().unwrap().unwrap().contains("exit code 0"));
    let process = fs::read_to_string(work.join("a")).unwrap();
    fs::write(work.join("go"), "").unwrap();
    while !work.join("done").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    // It is known to run, so that what it did is not taken for the user's.
    ask("list", serde_json::json!({"path": ".", "depth": null}));
    assert!(answers.next().unwrap().unwrap().contains("were undone: .envrc"));
    assert!(Path::new(&format!("/proc/{}", process.trim())).exists());
    drop(requests);
    thread.join().unwrap();
    assert!(!Path::new(&format!("/proc/{}", process.trim())).exists());
}
