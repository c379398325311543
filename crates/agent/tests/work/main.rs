//! The loop of the agent with a scripted model and the confined process of the tools.
//!
//! The program executes itself again as the process of the tools. Arguments are parts of names, of
//! which one must be in a test's name for the test to run.

mod compacting;
mod continuing;
mod cuts;
mod forced;
mod forced_session;
mod full_disk;
mod plans;
mod scene;
mod servers;
mod tiny_model;
mod tokens;
mod tool_process;
mod undoing;
mod working;

use std::io::Write;
use std::panic::catch_unwind;
use std::process::ExitCode;

/// A test, by its name.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let [_, command, settings, program @ ..] = &args[..]
        && command == agent::TOOL_HOST
    {
        let program: Vec<_> = program.iter().map(Into::into).collect();
        return ExitCode::from(agent::serve_tools(settings, &program));
    }
    if let [_, command, folder] = &args[..]
        && command == servers::HOLD
    {
        servers::hold(folder);
    }
    if let [_, command, path] = &args[..]
        && command == full_disk::FILL
    {
        return full_disk::fill(path);
    }
    if let Err(missing) = confine::support() {
        say(&format!("skipped: the loop of the agent: {missing}"));
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = args[1..].iter().filter(|it| !it.starts_with('-')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|it| name.contains(*it));
    let mut failed = 0;
    let all = [
        working::TESTS,
        continuing::TESTS,
        undoing::TESTS,
        compacting::TESTS,
        tokens::TESTS,
        cuts::TESTS,
        servers::TESTS,
        full_disk::TESTS,
    ];
    let all = all.concat();
    for (name, test) in all.into_iter().filter(|(name, _)| wanted(name)) {
        let is_ok = catch_unwind(test).is_ok();
        failed += usize::from(!is_ok);
        say(&format!("test {name} ... {}", if is_ok { "ok" } else { "FAILED" }));
    }
    say(&format!("test result: {failed} failed"));
    ExitCode::from(u8::from(failed > 0))
}

fn say(line: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "{line}").unwrap();
}
