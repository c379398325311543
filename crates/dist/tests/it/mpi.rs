//! Ranks that MPI starts: each launcher that `GANNET_TEST_MPIRUN` names, paths with `:` between
//! them, starts this program as its ranks.

#![allow(clippy::print_stderr)]

use crate::laws;
use dist::{Comm, Mpi};
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Names the library of MPI.
const LIBRARY: &str = "GANNET_MPI";
/// Time for the ranks of a test.
const LIMIT: Duration = Duration::from_secs(120);
/// Says to a process what it is.
const ROLE: &str = "GANNET_TEST_ROLE";

/// Starts so many ranks of this program with a launcher, in a role. Gives what they wrote to
/// standard error, and whether all succeeded.
fn launched(launcher: &Launcher, ranks: usize, role: &str) -> (String, bool) {
    let Launcher { path, library } = launcher;
    // In the usual folder Open MPI does not start where an ended launcher has left what had the
    // same process id.
    let folder = format!("gannet-mpi-{role}-{ranks}-{}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    // A pipe would be waited for as long as any process has it.
    let file = folder.join("errors");
    let mut command = Command::new(path);
    command.env("TMPDIR", &folder);
    command.env(ROLE, role).env_remove(LIBRARY).envs(library.iter().map(|it| (LIBRARY, it)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&file).unwrap());
    if is_open_mpi(path) {
        command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
    }
    let own = std::env::current_exe().unwrap();
    command.args(["-n", &ranks.to_string()]).arg(own);
    command.args(["--exact", "mpi::one_rank", "--nocapture", "--test-threads", "1"]);
    command.process_group(0);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{launcher:?}: {error}"));
    let succeeded = ended(&mut child);
    let said = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    (said, succeeded)
}

/// Waits for the end of a launcher, which is ended itself if it waits for ranks that are gone.
fn ended(child: &mut Child) -> bool {
    for _ in 0..LIMIT.as_millis() / 50 {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // On SIGTERM a launcher waits for ranks that may be gone.
    signal("-KILL", &format!("-{}", child.id()));
    child.wait().unwrap();
    false
}

fn signal(name: &str, process: &str) {
    Command::new("kill").args([name, "--", process]).status().unwrap();
}

fn is_open_mpi(launcher: &Path) -> bool {
    let said = Command::new(launcher).arg("--version").output().unwrap();
    String::from_utf8_lossy(&said.stdout).contains("Open MPI")
}

/// A launcher, and a library for its ranks; they find one without.
#[derive(Debug)]
struct Launcher {
    path: PathBuf,
    library: Option<PathBuf>,
}

/// The launchers, with each library that belongs to them; none where the variable is not set.
fn launchers() -> Vec<Launcher> {
    let named = std::env::var_os("GANNET_TEST_MPIRUN").unwrap_or_default();
    if named.is_empty() {
        eprintln!("skipped: GANNET_TEST_MPIRUN names no launcher");
    }
    let paths = std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty());
    let of = |path: PathBuf| {
        let folder = path.parent().unwrap().parent().unwrap().join("lib");
        let libraries = ["libmpi.so.40", "libmpi_abi.so.1", "libmpi.so.12"];
        let there = libraries.map(|name| folder.join(name)).into_iter().filter(|it| it.is_file());
        let libraries: Vec<_> = there.map(Some).chain([None]).collect();
        libraries.into_iter().map(move |library| Launcher { path: path.clone(), library })
    };
    paths.flat_map(of).collect()
}

/// What a rank does in its role; nothing in a process that is none.
#[test]
fn one_rank() {
    match std::env::var(ROLE).as_deref() {
        Ok("laws") => {
            let comm = Mpi::world().unwrap();
            laws::hold(&comm);
            let said =
                format!("rank {} of {} with {}\n", comm.rank(), comm.ranks(), comm.version());
            // In one piece, as other ranks write too.
            std::io::stderr().write_all(said.as_bytes()).unwrap();
        }
        Ok("stops") => watch_a_rank_that_stops(),
        Ok(role) => panic!("no role {role}"),
        Err(_) => {}
    }
}

#[test]
fn ranks_that_are_processes_keep_the_laws() {
    for launcher in launchers() {
        for ranks in [1, 2, 4] {
            let (said, succeeded) = launched(&launcher, ranks, "laws");
            assert!(succeeded, "{launcher:?}, {ranks}: {said}");
            let count = said.matches(&format!(" of {ranks} with ")).count();
            assert_eq!(count, ranks, "{launcher:?}: {said}");
        }
    }
}

/// Rank 1 stops in the middle of its work, and the others get an error.
fn watch_a_rank_that_stops() {
    let mut comm = Mpi::world().unwrap();
    assert!(comm.watch(Duration::from_secs(1), |_| {}).unwrap());
    let mut processes = vec![0.0; comm.ranks()];
    comm.all_gather(&[f32::from_bits(std::process::id())], &mut processes).unwrap();
    // Longer than the limit: what computes is not silent.
    std::thread::sleep(Duration::from_millis(1500));
    comm.barrier().unwrap();
    let started = Instant::now();
    if comm.rank() == 1 {
        signal("-STOP", &std::process::id().to_string());
        // The signal may come after the end of the program that has sent it.
        std::thread::sleep(Duration::from_millis(200));
    }
    let error = comm.all_reduce_sum(&mut [1.0; 8]).unwrap_err();
    let (rank, took) = (comm.rank(), started.elapsed().as_secs_f64());
    assert!(comm.receive((rank + 1) % 3, &mut [0.0]).is_err(), "told again");
    let said = format!("rank {rank}: {error}; {took} s\n");
    std::io::stderr().write_all(said.as_bytes()).unwrap();
    // Before a rank ends: the launcher may leave one that is stopped.
    if rank == 0 {
        std::thread::sleep(Duration::from_millis(500));
        signal("-KILL", &processes[1].to_bits().to_string());
    }
    std::thread::sleep(Duration::from_secs(2));
    std::process::exit(0);
}

#[test]
fn a_rank_that_stops_is_named_to_all() {
    for launcher in launchers() {
        let (said, _) = launched(&launcher, 3, "stops");
        for rank in [0, 2] {
            let of_rank = format!("rank {rank}: rank 1 has been silent for ");
            assert!(said.contains(&of_rank), "{launcher:?}: {said}");
        }
    }
}
