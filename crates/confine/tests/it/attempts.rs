//! Attempts on files outside, by paths, links, descriptors and `/proc`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use libc::{EACCES, EBADF, ENOENT, EPERM, EXDEV};

use crate::run::Act::{Python, Rust};
use crate::run::Attempt;
use crate::scene::Scene;

const fn attempt(name: &'static str, act: crate::run::Act, refused: &'static [i32]) -> Attempt {
    Attempt { name, act, refused }
}

pub const FILES: &[Attempt] = &[
    attempt("read_a_key", Rust(|s| read(s.key())), &[EACCES]),
    attempt("read_through_dots", Rust(|_| read("../home/.ssh/id_ed25519")), &[EACCES]),
    attempt("read_through_an_old_link", Rust(|_| read("link/.ssh/id_ed25519")), &[EACCES]),
    attempt("read_through_a_new_link", Rust(read_through_a_new_link), &[EACCES]),
    attempt("read_through_a_hard_link", Rust(read_through_a_hard_link), &[EACCES, EXDEV]),
    attempt("read_through_own_root", Rust(|s| read(below("/proc/self/root", s))), &[EACCES]),
    attempt("read_through_root_of_outside", Rust(|s| read(below(&proc("root"), s))), &[EACCES]),
    attempt("read_through_root_of_init", Rust(|s| read(below("/proc/1/root", s))), &[EACCES]),
    attempt("read_through_cwd_of_outside", Rust(|_| read(proc("cwd/home/victim"))), &[EACCES]),
    attempt("read_the_environment_of_outside", Rust(|_| read(proc("environ"))), &[EACCES, EPERM]),
    attempt("open_the_memory_of_outside", Rust(|_| open(proc("mem"))), &[EACCES, EPERM]),
    attempt("read_the_maps_of_outside", Rust(|_| read(proc("maps"))), &[EACCES, EPERM]),
    attempt("name_a_descriptor_of_outside", Rust(name_a_pipe), &[EACCES, EPERM]),
    attempt("open_a_pipe_of_outside", Rust(write_a_pipe), &[EACCES, EPERM]),
    attempt("read_the_environment_of_init", Rust(|_| read("/proc/1/environ")), &[EACCES, EPERM]),
    attempt("read_passwords", Rust(|_| read("/etc/shadow")), &[EACCES]),
    attempt("list_the_home_folder", Rust(|s| list(s.base.join("home"))), &[EACCES]),
    attempt("list_the_root", Rust(|_| list("/")), &[EACCES]),
    attempt("truncate_when_opening", Rust(|s| File::create(s.victim()).map(drop)), &[EACCES]),
    attempt("append", Rust(|s| append(s.victim())), &[EACCES]),
    attempt("create_a_file", Rust(|s| fs::write(s.base.join("home/new"), "")), &[EACCES]),
    attempt("create_a_folder", Rust(|s| fs::create_dir(s.base.join("home/new"))), &[EACCES]),
    attempt("create_a_link", Rust(|s| symlink("victim", s.base.join("home/new"))), &[EACCES]),
    attempt("remove_a_file", Rust(|s| fs::remove_file(s.victim())), &[EACCES]),
    attempt("remove_a_folder", Rust(remove_a_folder), &[EACCES]),
    attempt("rename_out", Rust(|s| fs::rename("own", s.base.join("home/new"))), &[EACCES, EXDEV]),
    attempt("rename_over", Rust(|s| fs::rename("own", s.victim())), &[EACCES, EXDEV]),
    attempt("rename_in", Rust(|s| fs::rename(s.victim(), "new")), &[EACCES, EXDEV]),
    attempt("link_out", Rust(|s| fs::hard_link("own", s.base.join("home/n"))), &[EACCES, EXDEV]),
    attempt("execute_a_program_outside", Rust(execute), &[EACCES]),
    attempt("write_a_shared_temporary_file", Rust(write_shared), &[EACCES]),
    attempt("write_shared_memory", Rust(write_shared_memory), &[EACCES]),
    attempt("write_in_proc", Rust(|_| rewrite("/proc/self/oom_score_adj")), &[EACCES]),
    attempt(
        "write_a_setting_of_the_kernel",
        Rust(|_| rewrite("/proc/sys/vm/swappiness")),
        &[EACCES],
    ),
    attempt("read_a_file_without_rights", Rust(|_| read("sealed")), &[EACCES]),
    attempt("truncate_by_path", Python("os.truncate(VICTIM, 0)"), &[EACCES]),
    attempt("make_a_pipe_outside", Python("os.mkfifo(SCENE + '/home/new')"), &[EACCES]),
    attempt(
        "make_a_device",
        Python("os.mknod('device', 0o20600, os.makedev(1, 1))"),
        &[EACCES, EPERM],
    ),
    attempt(
        "open_again_what_was_opened_as_a_path",
        Python("os.open(f'/proc/self/fd/{os.open(KEY, os.O_PATH)}', os.O_RDONLY)"),
        &[EACCES],
    ),
    attempt(
        "open_below_an_opened_folder",
        Python("os.open('victim', os.O_RDONLY, dir_fd=os.open(SCENE + '/home', os.O_PATH))"),
        &[EACCES],
    ),
    // `subprocess` of the standard library passes descriptors on, and so does `exec`.
    attempt(
        "read_an_inherited_descriptor",
        Python("os.read(int(os.environ['CONFINE_OPEN']), 1)"),
        &[EBADF],
    ),
    attempt("open_an_inherited_descriptor", Rust(reopen_inherited), &[ENOENT]),
];

/// In a workspace that is only read.
pub const WRITES: &[Attempt] = &[
    attempt("write_the_workspace", Rust(|_| fs::write("own", "changed")), &[EACCES]),
    attempt("create_in_the_workspace", Rust(|_| fs::write("within/new", "")), &[EACCES]),
    attempt("remove_in_the_workspace", Rust(|_| fs::remove_file("own")), &[EACCES]),
    attempt("rename_in_the_workspace", Rust(|_| fs::rename("own", "new")), &[EACCES, EXDEV]),
];

fn read(path: impl Into<PathBuf>) -> io::Result<()> {
    File::open(path.into())?.read(&mut [0; 8]).map(drop)
}

fn open(path: impl Into<PathBuf>) -> io::Result<()> {
    File::open(path.into()).map(drop)
}

fn list(path: impl Into<PathBuf>) -> io::Result<()> {
    fs::read_dir(path.into()).map(drop)
}

fn append(path: PathBuf) -> io::Result<()> {
    File::options().append(true).open(path).map(drop)
}

/// Writes what is there already.
fn rewrite(path: &str) -> io::Result<()> {
    fs::write(path, fs::read(path)?)
}

fn proc(name: &str) -> String {
    format!("/proc/{}/{name}", std::env::var("CONFINE_OUTSIDE").unwrap())
}

fn below(root: &str, scene: &Scene) -> String {
    format!("{root}{}", scene.key().display())
}

fn read_through_a_new_link(scene: &Scene) -> io::Result<()> {
    symlink(scene.key(), "new")?;
    read("new")
}

fn read_through_a_hard_link(scene: &Scene) -> io::Result<()> {
    fs::hard_link(scene.key(), "new")?;
    read("new")
}

fn name_a_pipe(_: &Scene) -> io::Result<()> {
    fs::read_link(proc("fd/0")).map(drop)
}

fn write_a_pipe(_: &Scene) -> io::Result<()> {
    File::options().write(true).open(proc("fd/0")).map(drop)
}

fn remove_a_folder(scene: &Scene) -> io::Result<()> {
    let folder = scene.base.join("home/empty");
    if !folder.exists() {
        // What cannot be made cannot be removed: an existing one is taken.
        fs::create_dir(&folder)?;
    }
    fs::remove_dir(folder)
}

fn execute(scene: &Scene) -> io::Result<()> {
    Command::new(scene.base.join("home/bin/tool")).status().map(drop)
}

fn write_shared(scene: &Scene) -> io::Result<()> {
    let name = scene.base.file_name().unwrap().to_string_lossy();
    let path = std::env::temp_dir().join(format!("{name}-shared"));
    fs::write(&path, "")?;
    fs::remove_file(path)
}

fn write_shared_memory(scene: &Scene) -> io::Result<()> {
    let path = PathBuf::from("/dev/shm").join(scene.base.file_name().unwrap());
    fs::write(&path, "")?;
    fs::remove_file(path)
}

fn reopen_inherited(_: &Scene) -> io::Result<()> {
    open(format!("/proc/self/fd/{}", std::env::var("CONFINE_OPEN").unwrap()))
}
