//! The header is that of the code, and every function is guarded.

use std::fs;
use std::path::Path;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What cbindgen makes of the code.
fn generated() -> String {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).unwrap();
    let sources = fs::read_dir(folder().join("src/ffi")).unwrap();
    let mut sources: Vec<_> = sources.map(|entry| entry.unwrap().path()).collect();
    sources.sort();
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = sources.iter().fold(builder, |builder, path| builder.with_src(path));
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
    let functions = committed.matches(" gannet_").count();
    assert!(functions > 20, "{functions} functions");
}

#[test]
fn every_function_runs_in_the_guard() {
    let mut functions = 0;
    for entry in fs::read_dir(folder().join("src/ffi")).unwrap() {
        let source = fs::read_to_string(entry.unwrap().path()).unwrap();
        for function in source.split("extern \"C\" fn ").skip(1) {
            let name = &function[..function.find('(').unwrap()];
            let body = &function[function.find(" {\n").unwrap() + 3..];
            assert!(body.trim_start().starts_with("entry!("), "{name} begins outside of entry!");
            functions += 1;
        }
    }
    assert!(functions > 20, "{functions} functions");
}
