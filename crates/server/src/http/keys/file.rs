//! A file of keys: one a line, as `key` or `name:key`; lines that begin with `#` are comments.

use super::key::{Key, KeyError, MAX_KEYS};
use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

/// Most bytes of the file.
const MAX_BYTES: u64 = 8 << 20;
/// Longest name of a key.
const MAX_NAME_LEN: usize = 64;

/// The keys of the file at `path`; none is an error.
pub(super) fn read(path: &Path) -> Result<Vec<Key>, KeyError> {
    let io = |source| KeyError::Io { path: path.to_owned(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(io)?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > MAX_BYTES {
        let problem = format!("expected at most {MAX_BYTES} bytes");
        return Err(KeyError::invalid(path.display().to_string(), problem));
    }
    parse(&text, path)
}

/// The keys in `text`, which came from `path`.
pub(super) fn parse(text: &str, path: &Path) -> Result<Vec<Key>, KeyError> {
    let (mut keys, mut seen) = (Vec::new(), HashSet::new());
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = || format!("{}: line {number}", path.display());
        let key = key(line).map_err(|problem| KeyError::invalid(at(), problem))?;
        if !seen.insert(key.digest) {
            return Err(KeyError::invalid(at(), "expected each key once, found one again"));
        }
        keys.push(key);
    }
    if !(1..=MAX_KEYS).contains(&keys.len()) {
        let problem = format!("expected 1 to {MAX_KEYS} keys, found {}", keys.len());
        return Err(KeyError::invalid(path.display().to_string(), problem));
    }
    Ok(keys)
}

/// The key of a line. The text before the first colon is its name.
fn key(line: &str) -> Result<Key, String> {
    let Some((name, key)) = line.split_once(':') else { return Key::new(line, None) };
    let name = name.trim();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !(1..=MAX_NAME_LEN).contains(&name.len()) || !name.bytes().all(plain) {
        return Err(format!(
            "expected a name of 1 to {MAX_NAME_LEN} letters, digits, dots, dashes and underscores \
             before the colon"
        ));
    }
    Key::new(key.trim(), Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let keys = parse(text, Path::new("keys")).unwrap();
        let labels: Vec<_> = keys.iter().map(|key| &*key.label).collect();
        assert_eq!(labels, expected, "{text:?}");
    }

    fn check_refused(text: &str, expected: &str) {
        let error = parse(text, Path::new("keys")).unwrap_err().to_string();
        assert!(error.starts_with("keys: ") && error.contains(expected), "{error}");
        assert!(!error.contains("hidden"), "{error}");
    }

    #[test]
    fn keys_have_names_if_they_are_given_some() {
        check("secret", &["sha256:2bb80d53"]);
        check("# ours\n\n  alice: secret  \r\nbob:a:b\n", &["alice", "bob"]);
    }

    #[test]
    fn the_line_that_is_wrong_is_named_and_not_shown() {
        check_refused("", "found 0");
        check_refused("# nothing\n", "found 0");
        check_refused("good\nhidden words", "line 2");
        check_refused("two words:hidden", "line 1: expected a name");
        check_refused(":hidden", "line 1: expected a name");
        check_refused("alice:", "line 1: expected a key");
        check_refused("a:hidden\nb:hidden", "line 2: expected each key once");
    }
}
