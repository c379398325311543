//! C programs: the examples and those of the documentation, as C99 and as C++17.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A compiler and how it is called.
const COMPILERS: [(&str, &[&str]); 2] =
    [("cc", &["-std=c99", "-pedantic"]), ("c++", &["-x", "c++", "-std=c++17"])];

/// The shared library as this build has made it.
fn library() -> PathBuf {
    let name = format!("{}capi{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let test = std::env::current_exe().unwrap();
    let folders = test.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join(&name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not beside {}", test.display()))
}

/// Compiles `source` with every compiler, and runs each program with `arguments` and `input`.
fn run(source: &Path, arguments: &[&str], input: &str) -> Vec<Output> {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("libgannet{}", std::env::consts::DLL_SUFFIX);
    std::os::unix::fs::symlink(library(), folder.path().join(name)).unwrap();
    let compilers = COMPILERS.iter().filter(|(compiler, _)| fixtures::program(compiler));
    let ran = compilers.map(|(compiler, flags)| {
        let program = folder.path().join(compiler);
        let compiled = Command::new(compiler)
            .args(*flags)
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
            .arg(&program)
            .arg(format!("-I{}", root().join("crates/capi/include").display()))
            .arg(source)
            .args(["-x", "none", "-lgannet", "-lm", "-L"])
            .arg(folder.path())
            .arg(format!("-Wl,-rpath,{}", folder.path().display()))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{compiler} {}: {errors}", source.display());
        let mut command = Command::new(&program);
        let command = command.args(arguments).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    });
    ran.collect()
}

/// Runs an example, which is to write `expected` as its output.
fn check(example: &str, arguments: &[&str], input: &str, expected: &str) {
    let source = root().join("examples/c").join(example);
    for output in run(&source, arguments, input) {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{example}: {errors}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{example}: {errors}");
    }
}

#[test]
fn a_chat_in_c_answers_and_remembers() {
    let answers = "Nice to meet you, Tom!\nYour name is Tom.\n";
    let input = "My name is Tom.\nWhat is my name?\n";
    check("chat.c", &[r#"{"model": "builtin", "threads": 1}"#], input, answers);
}

#[test]
fn a_batch_in_c_continues_texts_of_different_lengths() {
    let input = "The capital of France is\n3 + 4 =\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    let engine = gannet::Engine::builder().threads(1).load(path).unwrap();
    let continued = |text: &str| {
        let request = gannet::Request::complete(text).temperature(0.0).max_tokens(32);
        format!("{text}|{}\n", engine.answer(request).unwrap().text)
    };
    let expected = input.lines().map(continued).collect::<String>();
    check("batch.c", &[r#"{"model": "builtin", "threads": 1}"#], input, &expected);
}

#[test]
fn a_beam_search_in_c_finds_no_less_than_the_most_likely_tokens() {
    let source = root().join("examples/c/beam_search.c");
    let arguments = ["The capital of France is", r#"{"model": "builtin", "threads": 1}"#];
    let outputs = run(&source, &arguments, "");
    let texts: Vec<String> =
        outputs.into_iter().map(|it| String::from_utf8(it.stdout).unwrap()).collect();
    assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "a search repeats: {texts:?}");
    let Some(text) = texts.first() else { return };
    assert!(text.contains(" Paris."), "{text}");
    let scores = text.lines().map(|line| line.split(' ').next().unwrap().parse::<f64>().unwrap());
    let scores: Vec<f64> = scores.collect();
    assert!(scores.len() == 3 && scores.is_sorted_by(|a, b| a >= b), "{text}");
}

#[test]
fn a_wrong_option_ends_an_example_with_its_error() {
    for output in run(&root().join("examples/c/chat.c"), &[r#"{"thread": 1}"#], "") {
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(errors, "unknown option \"thread\"; did you mean \"threads\"?\n");
    }
}

/// Every C program of the documentation is whole, compiles and runs.
#[test]
fn programs_of_the_documentation_run() {
    let folder = tempfile::tempdir().unwrap();
    let page = fs::read_to_string(root().join("docs/c.md")).unwrap();
    let programs: Vec<&str> = page.split("```c\n").skip(1).collect();
    assert!(programs.len() >= 3, "{} programs", programs.len());
    for (index, program) in programs.iter().enumerate() {
        let path = folder.path().join(format!("{index}.c"));
        fs::write(&path, program.split("```").next().unwrap()).unwrap();
        for output in run(&path, &[], "") {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "program {index}: {errors}");
            assert!(!output.stdout.is_empty(), "program {index} prints nothing");
        }
    }
}

#[test]
fn only_names_of_the_interface_are_exported() {
    if !cfg!(target_os = "linux") || !fixtures::program("nm") {
        return;
    }
    let listed = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next_back()).collect();
    let other: Vec<_> = names.iter().filter(|name| !name.starts_with("gannet_")).collect();
    assert!(other.is_empty(), "{other:?}");
    let header = fs::read_to_string(root().join("crates/capi/include/gannet.h")).unwrap();
    for name in &names {
        let is_there = [' ', '*'].iter().any(|it| header.contains(&format!("{it}{name}(")));
        assert!(is_there, "{name} is not in the header");
    }
    assert!(names.len() > 15, "{names:?}");
}
