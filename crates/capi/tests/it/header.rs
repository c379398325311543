//! The header is that of the code, and every function is guarded.

use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files with functions, in the order of the header.
const PARTS: [&str; 5] = ["texts", "engine", "calls", "sequences", "arrays"];

fn source(part: &str) -> PathBuf {
    folder().join("src/ffi").join(part).with_extension("rs")
}

/// What cbindgen makes of the code.
fn generated() -> String {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_config(config);
    let builder =
        PARTS.iter().fold(builder.with_src(folder().join("src/status.rs")), |builder, part| {
            builder.with_src(source(part))
        });
    let mut bytes = Vec::new();
    builder.generate().unwrap().write(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

/// `GANNET_WRITE_HEADER=1 cargo test -p gannet-capi` writes it anew.
#[test]
fn the_header_is_what_is_compiled() {
    let path = folder().join("include/gannet.h");
    let generated = generated();
    if std::env::var_os("GANNET_WRITE_HEADER").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let hint = "GANNET_WRITE_HEADER=1 cargo test -p gannet-capi writes it anew";
    assert!(committed == generated, "{} is not that of the code: {hint}", path.display());
    for name in functions() {
        let found = [' ', '*'].map(|before| committed.matches(&format!("{before}{name}(")).count());
        assert_eq!(found.iter().sum::<usize>(), 1, "{name}");
    }
}

#[test]
fn every_function_runs_in_the_guard() {
    let count: usize = PARTS.iter().map(|part| check_guards(part)).sum();
    assert_eq!(count, functions().len());
    assert!(count > 25, "{count} functions");
}

/// Checks the functions of a part, and returns their number.
fn check_guards(part: &str) -> usize {
    let source = fs::read_to_string(source(part)).unwrap();
    let functions = source.split("extern \"C\" fn ").skip(1).map(|function| {
        let name = &function[..function.find('(').unwrap()];
        let body = &function[function.find(" {\n").unwrap() + 3..];
        assert!(body.trim_start().starts_with("entry!("), "{name} begins outside of entry!");
    });
    functions.count()
}

/// The names of all functions of the interface, in all files of the folder.
fn functions() -> Vec<String> {
    let files = fs::read_dir(folder().join("src/ffi")).unwrap();
    let sources = files.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let names = |source: String| {
        let functions = source.split("extern \"C\" fn ").skip(1);
        let names = functions.map(|function| function[..function.find('(').unwrap()].to_owned());
        names.collect::<Vec<_>>()
    };
    sources.flat_map(names).collect()
}
