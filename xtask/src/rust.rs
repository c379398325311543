//! Rust source with comments and literals blanked out, so that braces and words can be counted.
//!
//! Not a parser: it knows comments, strings and characters, and keeps every line where it was.

use std::ops::Range;

/// `source` with comments, strings and characters turned into spaces; line ends stay.
pub(crate) fn code_only(source: &str) -> String {
    blanked(source, |_| true)
}

/// `source` with comments turned into spaces; line ends stay.
pub(crate) fn without_comments(source: &str) -> String {
    blanked(source, |first| first == '/')
}

/// `source` with the comments and literals blanked out whose first character `blank` accepts.
fn blanked(source: &str, blank: impl Fn(char) -> bool) -> String {
    let mut lexer = Lexer { rest: source, code: String::with_capacity(source.len()) };
    while let Some(first) = lexer.rest.chars().next() {
        match lexer.literal_len(first) {
            0 => lexer.take(first.len_utf8(), false),
            len => lexer.take(len, blank(first)),
        }
    }
    lexer.code
}

/// The lines, from 0, of items that only tests are compiled with. `code` is [`code_only`].
pub(crate) fn test_lines(code: &str) -> Vec<Range<usize>> {
    const MARK: &str = "#[cfg(test)]";
    let line = |at: usize| code[..at].matches('\n').count();
    let starts = code.match_indices(MARK).map(|(at, _)| at);
    starts.map(|at| line(at)..line(item_end(code, at + MARK.len())) + 1).collect()
}

/// `code` with the lines of [`test_lines`] empty.
pub(crate) fn without_tests(code: &str) -> String {
    let tests = test_lines(code);
    let is_test = |index: usize| tests.iter().any(|range| range.contains(&index));
    let lines = code.lines().enumerate();
    lines.flat_map(|(index, line)| [if is_test(index) { "" } else { line }, "\n"]).collect()
}

/// Names of the modules in separate files that are compiled for tests only.
pub(crate) fn test_modules(code: &str) -> Vec<&str> {
    let marked = code.split("#[cfg(test)]").skip(1);
    let declared = marked.filter_map(|rest| rest.trim_start().strip_prefix("mod "));
    declared
        .filter_map(|rest| rest.split_once([';', '{']).map(|(name, _)| (name, rest)))
        .filter(|(name, rest)| rest[name.len()..].starts_with(';'))
        .map(|(name, _)| name.trim())
        .collect()
}

/// Where the item ends that begins at `start`: at its semicolon or at its last brace.
fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[start..].char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' => depth -= 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return start + at;
                }
            }
            ';' if depth == 0 => return start + at,
            _ => {}
        }
    }
    code.len()
}

struct Lexer<'a> {
    rest: &'a str,
    code: String,
}

impl Lexer<'_> {
    fn take(&mut self, len: usize, blank: bool) {
        let (taken, rest) = self.rest.split_at(len);
        match blank {
            true => self.code.extend(taken.chars().map(|c| if c == '\n' { c } else { ' ' })),
            false => self.code.push_str(taken),
        }
        self.rest = rest;
    }

    /// Bytes of the comment, string or character that begins here; 0 if none does.
    fn literal_len(&self, first: char) -> usize {
        let in_word = self.code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        match first {
            '/' if self.rest.starts_with("//") => self.rest.find('\n').unwrap_or(self.rest.len()),
            '/' if self.rest.starts_with("/*") => block_comment(self.rest),
            '"' => string(self.rest),
            '\'' => character(self.rest),
            'r' | 'b' | 'c' if !in_word => raw_string(self.rest),
            _ => 0,
        }
    }
}

/// Block comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Up to and with the quote that ends it.
fn string(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

/// `r"..."`, `br#"..."#` and their like; 0 where it is an ordinary word.
fn raw_string(text: &str) -> usize {
    let Some(start) = text.find('r').filter(|&at| at <= 1) else { return 0 };
    let marks = text[start + 1..].bytes().take_while(|&b| b == b'#').count();
    let open = start + 1 + marks;
    if !text[open..].starts_with('"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(marks));
    let end = text[open + 1..].find(&close).map(|at| open + 1 + at + close.len());
    end.unwrap_or(text.len())
}

/// A character literal; 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((escaped, c))) => {
            let behind = escaped + c.len_utf8();
            text[behind..].find('\'').map_or(0, |at| behind + at + 1)
        }
        (Some((_, _)), Some((quote, '\''))) => quote + 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        assert_eq!(code_only(source), expected, "{source}");
    }

    #[test]
    fn only_code_is_left_and_it_stays_in_place() {
        check("a // {\nb", "a     \nb");
        check("a /* { /* } */ */ b", "a                 b");
        check(r#"f("{\"}") + 1"#, "f(      ) + 1");
        check("f(r#\"{\"}\"#)", "f(        )");
        check("f(b\"{\")", "f(b   )");
        check("'{' '\\'' '\\u{7d}'", "                 ");
        check("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
        check("var\"x\"", "var   ");
    }

    #[test]
    fn strings_are_code_and_comments_are_not() {
        assert_eq!(
            without_comments("a(\"// b\") // c\n'\"' /* d */"),
            "a(\"// b\")     \n'\"'        "
        );
    }

    #[test]
    fn items_of_tests_are_found_with_their_ends() {
        let code =
            "a\n#[cfg(test)]\nuse b;\n#[cfg(test)]\nmod c {\n{ }\n}\nd\n#[cfg(test)]\nmod e;";
        assert_eq!(test_lines(code), [1..3, 3..7, 8..10]);
        assert_eq!(test_modules(code), ["e"]);
    }
}
