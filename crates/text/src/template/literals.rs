//! String literals of templates, whose escapes are those of Python.

/// The value of the text between the quotes of a literal, or what is wrong with it.
///
/// Jinja2 decodes escapes after it has written characters outside ASCII as escapes, so that a
/// backslash before such a character leaves its escape as text.
pub(super) fn value(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut high = None;
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        if at > 0 && high.is_some() {
            return Err(lone());
        }
        let (unit, after) = escape(&rest[at + 1..])?;
        rest = after;
        match (high.take(), unit) {
            (None, Escaped::Text(text)) => out.push_str(&text),
            (None, Escaped::Code(code @ 0xD800..0xDC00)) => high = Some(code),
            (Some(first), Escaped::Code(second @ 0xDC00..0xE000)) => {
                let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                out.push(char::from_u32(code).ok_or_else(lone)?);
            }
            (None, Escaped::Code(code)) => out.push(char::from_u32(code).ok_or_else(lone)?),
            (Some(_), _) => return Err(lone()),
        }
    }
    if high.is_some() {
        return Err(lone());
    }
    out.push_str(rest);
    Ok(out)
}

fn lone() -> String {
    "a string has an escape of half a character".into()
}

/// What an escape stands for.
enum Escaped {
    Text(String),
    Code(u32),
}

/// Reads what follows a backslash, and returns the rest of the text.
fn escape(text: &str) -> Result<(Escaped, &str), String> {
    let mut chars = text.chars();
    let c = chars.next().ok_or("a string ends with a backslash")?;
    let rest = chars.as_str();
    let code = |code: u32| Ok((Escaped::Code(code), rest));
    match c {
        '\n' => Ok((Escaped::Text(String::new()), rest)),
        '\\' | '\'' | '"' => code(c.into()),
        'a' => code(7),
        'b' => code(8),
        'f' => code(12),
        'n' => code(10),
        'r' => code(13),
        't' => code(9),
        'v' => code(11),
        '0'..='7' => {
            let octal = text.find(|c: char| !c.is_digit(8)).unwrap_or(text.len()).min(3);
            number(text, octal, 8).map(|(found, rest)| (Escaped::Code(found), rest))
        }
        'x' => number(rest, 2, 16).map(|(found, rest)| (Escaped::Code(found), rest)),
        'u' => number(rest, 4, 16).map(|(found, rest)| (Escaped::Code(found), rest)),
        'U' => number(rest, 8, 16).map(|(found, rest)| (Escaped::Code(found), rest)),
        'N' => name(rest),
        c if c.is_ascii() => Ok((Escaped::Text(format!("\\{c}")), rest)),
        c => Ok((Escaped::Text(ascii(c)), rest)),
    }
}

fn number(text: &str, digits: usize, radix: u32) -> Result<(u32, &str), String> {
    let found = text.get(..digits).filter(|found| found.chars().all(|c| c.is_digit(radix)));
    let found = found.and_then(|found| u32::from_str_radix(found, radix).ok());
    let found = found.filter(|code| *code <= u32::from(char::MAX));
    let problem = || format!("a string has an escape without {digits} digits of a character");
    Ok((found.ok_or_else(problem)?, &text[digits..]))
}

/// `\N{name}`.
fn name(text: &str) -> Result<(Escaped, &str), String> {
    let found = text.strip_prefix('{').and_then(|text| text.split_once('}'));
    let (name, rest) = found.ok_or("a string has \\N without a name in braces")?;
    let c = unicode_names2::character(name)
        .ok_or_else(|| format!("a string names the unknown character \"{name}\""))?;
    Ok((Escaped::Code(c.into()), rest))
}

/// A character as `ascii()` writes it in a string, between quotes.
pub(super) fn ascii(c: char) -> String {
    match u32::from(c) {
        code @ 0..=0xFF => format!("\\x{code:02x}"),
        code @ 0x100..=0xFFFF => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }
}

/// A literal of the template engine with this value.
pub(super) fn written(value: &str) -> String {
    let mut out = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\0'..' ' => out.push_str(&ascii(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_python() {
        let check = |text, expected: &str| assert_eq!(value(text).unwrap(), expected, "{text}");
        check(r"\/\d\8\ \%", r"\/\d\8\ \%");
        check(r"\a\b\f\n\r\t\v\\\'", "\x07\x08\x0c\n\r\t\x0b\\'");
        check(r"\x41\101\7\08\777é", "A\x41\x07\08\u{1ff}é");
        check(r"\u00e9\U0001F600\ud83d\ude00", "é😀😀");
        check(r"\N{DIGIT ONE}\N{latin small letter e with acute}", "1é");
        check("a\\\nb", "ab");
        check("\\é\\中\\😀", r"\xe9\u4e2d\U0001f600");
        for text in [
            r"\x4",
            r"\xg1",
            r"\u12",
            r"\U00110000",
            r"\N{NO SUCH}",
            r"\N",
            r"\ud83d",
            r"\ud83dx\ude00",
            r"\ude00",
        ] {
            assert!(value(text).is_err(), "{text}");
        }
    }
}
