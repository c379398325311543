//! Bytes of files and commands as text that does nothing to a terminal and hides nothing.

use client::is_hidden;
use std::fmt::Write;

/// `bytes` as text: invalid UTF-8, control characters and characters that are invisible or change
/// the direction of text are shown as escapes. Line breaks and tabs stay; the line end `\r\n`
/// becomes a line break.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        add_valid(&mut text, chunk.valid());
        for byte in chunk.invalid() {
            add(&mut text, format_args!("\\x{byte:02x}"));
        }
    }
    text
}

/// A line with its number, as the model reads it; edits name lines by these numbers.
pub fn numbered(number: usize, line: &[u8]) -> String {
    format!("{number}\t{}\n", printable(line))
}

fn add_valid(text: &mut String, valid: &str) {
    let mut chars = valid.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\n' | '\t' => text.push(char),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => text.push_str("\\r"),
            _ if char.is_ascii_control() => add(text, format_args!("\\x{:02x}", u32::from(char))),
            _ if is_hidden(char) => add(text, format_args!("\\u{{{:x}}}", u32::from(char))),
            _ => text.push(char),
        }
    }
}

fn add(text: &mut String, escape: std::fmt::Arguments<'_>) {
    text.write_fmt(escape).expect("a string takes all text");
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn control_and_hidden_characters_are_shown_as_escapes() {
        let check = |bytes: &[u8], expected: &str| assert_eq!(printable(bytes), expected);
        check("é\tx\r\ny\rz\n".as_bytes(), "é\tx\ny\\rz\n");
        check(b"\x1b[31m\x00\x7f", "\\x1b[31m\\x00\\x7f");
        check(b"caf\xe9!", "caf\\xe9!");
        check(
            "a\u{202e}b\u{9b}c\u{200b}\u{e0041}".as_bytes(),
            "a\\u{202e}b\\u{9b}c\\u{200b}\\u{e0041}",
        );
        check("👩\u{200d}💻".as_bytes(), "👩\u{200d}💻");
    }
}
