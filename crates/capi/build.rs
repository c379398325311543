//! Keeps names of dependencies out of the shared library: the one for grammars has functions for C
//! of its own.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("linux") => println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL"),
        Ok("macos") => println!("cargo::rustc-cdylib-link-arg=-Wl,-unexported_symbol,_llg_*"),
        _ => {}
    }
}
