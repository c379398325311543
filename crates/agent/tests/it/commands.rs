//! Commands, and jobs that outlast their call.

use crate::support::{Place, assert_has};
use serde_json::json;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn commands_return_their_exit_code_and_output() {
    let mut place = Place::new();
    let text = place.text("bash", json!({"command": "echo out; echo err >&2; pwd; exit 3"}));
    assert_has(&text, &["[exit code 3]", "\nout\nerr\n/"]);
    assert!(text.ends_with("/work\n"));
    assert_has(&place.text("bash", json!({"command": "kill -9 $$"})), &["[ended by signal 9"]);
    assert_has(&place.text("bash", json!({"command": "true"})), &["exit code 0", "no output"]);
    // There is no input to wait for.
    assert_has(&place.text("bash", json!({"command": "cat; echo $TMPDIR"})), &["/temporary\n"]);
    let text = place.text("bash", json!({"command": "printf 'a\\033[1m\\377\\r\\n'"}));
    assert!(text.ends_with("\na\\x1b[1m\\xff\n"), "{text}");
}

#[test]
fn commands_cannot_make_results_wait_or_lead_elsewhere() {
    let mut place = Place::new();
    place.put("kept", "kept");
    let script = "echo out; cd $TMPDIR; rm output-1.txt; mkfifo output-1.txt result-1.txt; \
        ln -s ../work/kept output-2.txt; mkfifo ../work/pipe";
    assert!(place.text("bash", json!({"command": script})).ends_with("]\nout\n"));
    assert!(place.text("bash", json!({"command": "echo two"})).ends_with("]\ntwo\n"));
    assert_eq!(place.bytes("kept"), b"kept");
    assert_has(&place.error("read", json!({"path": "pipe"})), &["pipe: it is no regular file"]);
    assert_has(&place.text("search", json!({"pattern": "kept"})), &["1 match\nkept:1: kept\n"]);
    (0..300).for_each(|at| place.put(&format!("{}{at}", "f".repeat(100)), ""));
    assert_has(&place.text("list", json!({"path": "."})), &["result-1-2.txt"]);
}

#[test]
fn a_character_that_two_looks_divide_is_shown_whole() {
    let mut place = Place::new();
    for character in ["é", "€", "🦀"] {
        let bytes: Vec<String> = character.bytes().map(|it| format!("\\x{it:02x}")).collect();
        let (first, last) = bytes.split_at(bytes.len() - 1);
        let command = format!(
            "printf 'a{}'; while [ ! -e go ]; do sleep 0.01; done; printf '{}b\\xff'; rm go",
            first.concat(),
            last[0]
        );
        let text = place.text("bash", json!({"command": command, "wait_s": 1}));
        assert!(text.ends_with("\na"), "{text:?}");
        let id = text.split([' ', ']']).find_map(|word| word.parse::<u64>().ok()).unwrap();
        place.put("go", "");
        let text = place.text("job", json!({"id": id, "action": "wait"}));
        assert!(text.ends_with(&format!("\n{character}b\\xff")), "{text:?}");
    }
}

#[test]
fn a_command_that_runs_long_goes_on_as_a_job() {
    let mut place = Place::new();
    let command = "echo first; while [ ! -e go ]; do sleep 0.02; done; echo second; exit 4";
    let begun = Instant::now();
    let text = place.text("bash", json!({"command": command, "wait_s": 1}));
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_has(&text, &["[job 1 still runs", "first\n"]);
    let text = place.text("job", json!({"id": 1, "action": "status"}));
    assert_has(&text, &["[job 1 still runs", "no new output"]);
    place.put("go", "");
    let text = place.text("job", json!({"id": 1, "action": "wait"}));
    assert_has(&text, &["[exit code 4", "]\nsecond\n"]);
    let text = place.text("job", json!({"id": 1, "action": "status"}));
    assert_has(&text, &["[exit code 4", "no new output"]);
    assert_has(&place.error("job", json!({"id": 2, "action": "stop"})), &["there is no job 2"]);
    assert_has(&place.error("job", json!({"id": 0, "action": "stop"})), &["there is no job 0"]);
}

/// Whether a process that is no zombie has this number.
fn runs(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

/// Starts a shell with two children, which write their numbers; `prefix` goes before.
fn start(place: &mut Place, prefix: &str) -> Vec<String> {
    let command = format!(
        "{prefix} sleep 1000 & echo $! >a; \
         sh -c '{prefix} echo $$ >b; while :; do sleep 1; done' & \
         echo $$ >c; wait"
    );
    place.text("bash", json!({"command": command, "wait_s": 0}));
    let begun = Instant::now();
    loop {
        let read = |name| fs::read_to_string(place.path(name)).unwrap_or_default();
        let found = ["a", "b", "c"].map(read);
        if found.iter().all(|number| number.ends_with('\n')) {
            return found.to_vec();
        }
        assert!(begun.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn stopped_jobs_leave_no_process() {
    for (prefix, least, end) in [("", 0, "signal 15"), ("trap \"\" TERM;", 2, "signal 9")] {
        let mut place = Place::new();
        let processes = start(&mut place, prefix);
        assert!(processes.iter().all(|process| runs(process)));
        let begun = Instant::now();
        let text = place.text("job", json!({"id": 1, "action": "stop"}));
        assert!(begun.elapsed() >= Duration::from_secs(least));
        assert_has(&text, &[end]);
        assert!(!processes.iter().any(|process| runs(process)));
    }
}

#[test]
fn a_dropped_workspace_leaves_no_process() {
    let mut place = Place::new();
    let processes = start(&mut place, "trap \"\" TERM;");
    place.text("bash", json!({"command": "sleep 1000 & echo $! >d"}));
    let left = fs::read_to_string(place.path("d")).unwrap();
    assert!(runs(&left) && processes.iter().all(|process| runs(process)));
    drop(place);
    assert!(!runs(&left) && !processes.iter().any(|process| runs(process)));
}

#[test]
fn processes_that_a_command_leaves_are_reported() {
    let mut place = Place::new();
    let text = place.text("bash", json!({"command": "sleep 1000 & echo started"}));
    assert_has(&text, &["[exit code 0", "job 1: processes that it started still run", "started"]);
    let text = place.text("job", json!({"id": 1, "action": "stop"}));
    assert_has(&text, &["[exit code 0"]);
    assert!(!text.contains("still run"));
}
