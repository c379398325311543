//! The environment of a confined process: what is on a list, without secrets.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The variables of `given` that a confined process gets, and the ones that are set for it:
///
/// | variable | value |
/// |---|---|
/// | `TMPDIR` | `temporary` |
/// | `XDG_CACHE_HOME` | `cache` in it: the caches in the home folder cannot be written |
/// | `GIT_CONFIG_GLOBAL` | `git_config`, since git ends on a file that it cannot read |
/// | `GIT_CONFIG_NOSYSTEM` | `1`: the machine's file may name programs, and may be unreadable |
/// | `GIT_TERMINAL_PROMPT` | `0`: there is no terminal to ask at |
///
/// `git_config` is a file that the caller has written, with the text of [`git_identity`]. A
/// variable whose name says that it is a secret is left out, also if the list has it.
pub fn environment(
    given: impl IntoIterator<Item = (OsString, OsString)>,
    temporary: &Path,
    git_config: &Path,
) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<_> = given.into_iter().filter(|(name, _)| is_passed(name)).collect();
    let cache = temporary.join("cache");
    let set: [(&str, &OsStr); 5] = [
        ("TMPDIR", temporary.as_os_str()),
        ("XDG_CACHE_HOME", cache.as_os_str()),
        ("GIT_CONFIG_GLOBAL", git_config.as_os_str()),
        ("GIT_CONFIG_NOSYSTEM", OsStr::new("1")),
        ("GIT_TERMINAL_PROMPT", OsStr::new("0")),
    ];
    variables.extend(set.map(|(name, value)| (name.into(), value.into())));
    variables
}

/// The text of a configuration of git with the author's name and address, and nothing else.
pub fn git_identity(name: &str, email: &str) -> String {
    format!("[user]\n\tname = {}\n\temail = {}\n", quoted(name), quoted(email))
}

/// Names that are passed: languages, terminals, and where the user's tools are and how they build.
/// None whose value is often an address with a password, as that of a proxy, and none that names a
/// folder for results, which is outside.
const PASSED: [&str; 46] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TZDIR",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "LINES",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "CARGO_INCREMENTAL",
    "RUSTFLAGS",
    "RUST_BACKTRACE",
    "CC",
    "CXX",
    "AR",
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "PKG_CONFIG_PATH",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "GOROOT",
    "GOPATH",
    "GOFLAGS",
    "JAVA_HOME",
    "NODE_PATH",
    "NVM_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CI",
];

/// Beginnings of names that are passed.
const PASSED_BEGINNINGS: [&str; 1] = ["LC_"];

/// What the name of a secret contains.
const SECRET: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];

fn is_passed(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_listed = PASSED.contains(&name)
        || PASSED_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning));
    is_listed && !says_secret(name)
}

/// Whether `text` has a word that a secret is called by, in any case.
pub(crate) fn says_secret(text: &str) -> bool {
    let upper = text.to_ascii_uppercase();
    SECRET.iter().any(|word| upper.contains(word))
}

/// A value in git's form: in quotation marks, so that no character of it starts a comment or ends
/// the line.
fn quoted(value: &str) -> String {
    let mut quoted = String::from("\"");
    for character in value.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // Git has no way to write the others.
            character if character.is_control() => (),
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(given: &[&str]) -> Vec<String> {
        let given = given.iter().map(|name| (OsString::from(name), OsString::from("value")));
        let passed = environment(given, Path::new("/tmp/private"), Path::new("/tmp/git"));
        passed.into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
    }

    #[test]
    fn only_listed_names_are_passed() {
        let given =
            ["PATH", "LC_ALL", "SSH_AUTH_SOCK", "LD_PRELOAD", "EDITOR", "HTTP_PROXY", "path"];
        assert_eq!(names(&given)[..2], ["PATH", "LC_ALL"]);
        assert_eq!(names(&given).len(), 7);
    }

    #[test]
    fn a_name_that_says_secret_is_left_out_though_its_beginning_is_listed() {
        for secret in ["LC_API_KEY", "LC_Token", "LC_secret", "LC_PASSWORD", "LC_CREDENTIALS"] {
            assert!(!names(&[secret]).iter().any(|name| name == secret), "{secret}");
        }
    }

    #[test]
    fn what_is_set_replaces_what_was_given() {
        let given = [("TMPDIR", "/tmp"), ("GIT_CONFIG_GLOBAL", "/home/user/.gitconfig")];
        let given = given.map(|(name, value)| (name.into(), value.into()));
        let passed = environment(given, Path::new("/tmp/private"), Path::new("/tmp/git"));
        let of = |name: &str| {
            let values = passed.iter().filter(|(passed, _)| passed == name);
            values.map(|(_, value)| value.to_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(of("TMPDIR"), ["/tmp/private"]);
        assert_eq!(of("GIT_CONFIG_GLOBAL"), ["/tmp/git"]);
        assert_eq!(of("XDG_CACHE_HOME"), ["/tmp/private/cache"]);
    }

    #[test]
    fn a_name_of_an_author_cannot_add_a_setting() {
        let text = git_identity("A \"B\" \\ # ;\n[core]\n\tpager = sh", "a@b.example");
        let name = "\"A \\\"B\\\" \\\\ # ;\\n[core]\\n\\tpager = sh\"";
        assert_eq!(text, format!("[user]\n\tname = {name}\n\temail = \"a@b.example\"\n"));
    }
}
