//! What a confined process cannot do and what it can, tried by processes that confine themselves.
//!
//! The program executes itself again for each attempt, because a confinement lasts as long as its
//! process: once as it is, when the attempt must succeed, and once confined, when it must fail with
//! an error of the kernel that is on the attempt's list. An attempt that does not succeed
//! unconfined, because the machine or the user cannot, says nothing and is skipped by name.
//!
//! Arguments are parts of names, of which one must be in a test's name for the test to run.

#[cfg(target_os = "linux")]
mod attempts;
#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod scene;
#[cfg(target_os = "linux")]
mod sockets;
#[cfg(target_os = "linux")]
mod work;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    run::main()
}

/// Elsewhere there is nothing to try: `apply` is an error.
#[cfg(not(target_os = "linux"))]
fn main() {
    let here = std::env::temp_dir();
    assert!(confine::support().is_err());
    assert!(confine::Confinement::new(here.join("a"), here.join("b")).apply().is_err());
}
