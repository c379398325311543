//! The `gannet` binary, which is the library with the arguments of the process.

fn main() -> std::process::ExitCode {
    cli::run(std::env::args_os()).into()
}
