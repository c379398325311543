//! Patterns of ECMA-262, which JSON Schema has, in the syntax of llguidance's expressions.
//!
//! Both read most patterns alike. A class is written anew as ranges of characters where they do
//! not, or where llguidance quotes it wrongly in JSON. A pattern that is translated stays as it is
//! when it is translated again.

use super::expression::Expression;
use llguidance::regex_to_lark;
use regex_syntax::hir::{Class, Hir, HirKind, Look};
use regex_syntax::{is_escapeable_character, parse};

/// Alternatives of a pattern with anchors.
const MAX_OPTIONS: usize = 100;
/// Characters of the name of a set in a class, with its brackets.
const MAX_NAME: usize = 64;

/// Returns `pattern` in the syntax of the library.
///
/// # Errors
/// If the library would let quotes or backslashes into strings of the pattern.
pub(super) fn translated(pattern: &str) -> Result<String, String> {
    let text: Vec<char> = pattern.chars().collect();
    let (mut all, mut at) = (String::new(), 0);
    while let Some(c) = text.get(at) {
        let (written, length) = match c {
            '\\' => escape(&text[at..]),
            '[' => class(&text[at..]),
            c => (c.to_string(), 1),
        };
        all.push_str(&written);
        at += length;
    }
    // What cannot be parsed is refused by the library, which says why.
    match parse(&regex_to_lark(&all, "dw")) {
        Ok(found) if quotes_leak(&found) => Err("expected a pattern without sets of all control \
                                                 characters but not of \" and \\, found one"
            .into()),
        _ => Ok(all),
    }
}

/// Returns an escape outside of classes, and its length in the pattern.
fn escape(text: &[char]) -> (String, usize) {
    match (text.get(1), character(text)) {
        (Some('0' | 'c'), Some((code, length))) => (format!("\\x{code:02x}"), length),
        (Some('u'), Some((code, length))) if length > 6 && code > 0xFFFF => {
            // What is no character stays as it is, so that it is refused.
            let escape = || text[..length].iter().collect();
            (char::from_u32(code).map_or_else(escape, String::from), length)
        }
        (Some(c), _) if !c.is_ascii_alphanumeric() && !is_escapeable_character(*c) => {
            (c.to_string(), 2)
        }
        (Some(c), _) => (format!("\\{c}"), 2),
        (None, _) => ("\\".into(), 1),
    }
}

/// Returns a class and its length in the pattern. One that has no end or is not known stays as it
/// is, and the rest of the pattern with it.
fn class(text: &[char]) -> (String, usize) {
    let Some((members, length)) = members(text) else {
        return (text.iter().collect(), text.len());
    };
    let original: String = text[..length].iter().collect();
    let Some(mut ranges) = ranges(&members) else { return (original, length) };
    let leaks = leaks(&ranges);
    if ranges.is_empty()
        || !leaks && self::ranges(&regex_to_lark(&original, "dw")) == Some(ranges.clone())
    {
        return (original, length);
    }
    if leaks {
        // Without this character, the library does not take the set for one of all characters.
        ranges[0].0 = 1;
    }
    let ranges = ranges.iter().map(|(first, last)| match first == last {
        true => code(*first),
        false => format!("{}-{}", code(*first), code(*last)),
    });
    (format!("[{}]", ranges.collect::<String>()), length)
}

fn code(code: u32) -> String {
    match char::from_u32(code) {
        Some(c) if c.is_ascii_alphanumeric() => c.into(),
        _ => format!("\\u{{{code:x}}}"),
    }
}

/// Returns a class of the same members that means the same to the library, and the length of the
/// class in the pattern; `None` if it has no end or an escape that is not known.
fn members(text: &[char]) -> Option<(String, usize)> {
    let mut at = 1;
    let mut all = "[".to_owned();
    if text.get(at) == Some(&'^') {
        all.push('^');
        at += 1;
    }
    let first = at;
    loop {
        let rest = text.get(at..)?;
        if rest.first()? == &']' && at > first {
            return Some((all + "]", at + 1));
        }
        if let Some((set, length)) = named_set(rest) {
            all.push_str(&set);
            at += length;
            continue;
        }
        let (low, length) = character(rest)?;
        at += length;
        all.push_str(&code(low));
        let ends_range = |rest: &&[char]| !rest.starts_with(&[']']) && named_set(rest).is_none();
        if let Some(rest) = text.get(at..)?.strip_prefix(&['-']).filter(ends_range) {
            let (high, length) = character(rest)?;
            at += 1 + length;
            all.push_str(&format!("-{}", code(high)));
        }
    }
}

/// Returns a set that stands in a class, as the library has it, and its length in the pattern.
fn named_set(text: &[char]) -> Option<(String, usize)> {
    let near = &text[..text.len().min(MAX_NAME)];
    let until = |end: &[char]| near.windows(end.len()).position(|part| part == end);
    match text {
        ['\\', 'd', ..] => Some(("0-9".into(), 2)),
        ['\\', 'D', ..] => Some(("[^0-9]".into(), 2)),
        ['\\', 'w', ..] => Some(("0-9A-Za-z_".into(), 2)),
        ['\\', 'W', ..] => Some(("[^0-9A-Za-z_]".into(), 2)),
        ['\\', c @ ('s' | 'S'), ..] => Some((format!("\\{c}"), 2)),
        ['\\', 'p' | 'P', '{', ..] => {
            let length = until(&['}'])? + 1;
            Some((text[..length].iter().collect(), length))
        }
        // Not of ECMA-262, but taken for what they mean elsewhere.
        ['\\', 'p' | 'P', c, ..] if c.is_ascii_alphabetic() => {
            Some((text[..3].iter().collect(), 3))
        }
        ['[', ':', ..] => {
            let length = until(&[':', ']'])? + 2;
            let name = text.get(2..length - 2)?;
            let known = name.iter().all(|c| c.is_ascii_lowercase() || *c == '^');
            known.then(|| (text[..length].iter().collect(), length))
        }
        _ => None,
    }
}

/// Returns the code point of a character of a class, and its length in the pattern; `None` for an
/// escape that is not known.
fn character(text: &[char]) -> Option<(u32, usize)> {
    let ['\\', c, rest @ ..] = text else { return Some((u32::from(*text.first()?), 1)) };
    let digits = |rest: &[char], count: usize| {
        let digits: String = rest.get(..count)?.iter().collect();
        let all = digits.chars().all(|digit| digit.is_ascii_hexdigit());
        u32::from_str_radix(&digits, 16).ok().filter(|_| all)
    };
    let code = match (c, rest) {
        ('b', _) => 8,
        ('t', _) => 9,
        ('n', _) => 10,
        ('v', _) => 11,
        ('f', _) => 12,
        ('r', _) => 13,
        ('a', _) => 7,
        ('0', rest) if !rest.first().is_some_and(char::is_ascii_digit) => 0,
        ('c', [letter, ..]) if letter.is_ascii_alphabetic() => {
            return Some((u32::from(*letter) & 31, 3));
        }
        ('x' | 'u', ['{', rest @ ..]) => {
            let count = rest.iter().position(|c| *c == '}')?;
            return Some((digits(rest, count)?, count + 4));
        }
        ('x', rest) => return Some((digits(rest, 2)?, 4)),
        ('u', rest) => {
            let unit = digits(rest, 4)?;
            let low = match rest.get(4..) {
                Some(['\\', 'u', rest @ ..]) => digits(rest, 4),
                _ => None,
            };
            return Some(match (unit, low) {
                (0xD800..=0xDBFF, Some(low @ 0xDC00..=0xDFFF)) => {
                    (0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00), 12)
                }
                _ => (unit, 6),
            });
        }
        (c, _) if c.is_ascii_alphanumeric() => return None,
        (c, _) => u32::from(*c),
    };
    Some((code, 2))
}

/// Returns the ranges of code points of a class; `None` if it is malformed.
fn ranges(class: &str) -> Option<Vec<(u32, u32)>> {
    match parse(class).ok()?.into_kind() {
        HirKind::Class(class) => Some(ranges_of(&class)),
        HirKind::Literal(literal) => {
            let mut found = std::str::from_utf8(&literal.0).ok()?.chars();
            let code = u32::from(found.next()?);
            found.next().is_none().then(|| vec![(code, code)])
        }
        _ => None,
    }
}

fn ranges_of(class: &Class) -> Vec<(u32, u32)> {
    match class {
        Class::Unicode(class) => {
            class.iter().map(|range| (range.start().into(), range.end().into())).collect()
        }
        Class::Bytes(class) => {
            class.iter().map(|range| (range.start().into(), range.end().into())).collect()
        }
    }
}

/// Whether the library lets `"` or `\` into JSON strings for a set that does not have both: it
/// takes a set of all control characters, a line break or not, for one of all characters.
fn leaks(ranges: &[(u32, u32)]) -> bool {
    let has = |code: u32| ranges.iter().any(|(first, last)| (*first..=*last).contains(&code));
    (0..0x20).all(|code| code == 10 || has(code)) && !(has(0x22) && has(0x5C))
}

fn quotes_leak(pattern: &Hir) -> bool {
    match pattern.kind() {
        HirKind::Class(class) => leaks(&ranges_of(class)),
        kind => kind.subs().iter().any(quotes_leak),
    }
}

/// Returns the expression of the texts in which a translated `pattern` is found.
///
/// # Errors
/// If an anchor stands where others than the ends of a text may be.
pub(super) fn searched(pattern: &str) -> Result<Expression, String> {
    let pattern = parse(&regex_to_lark(pattern, "dw")).map_err(|error| error.to_string())?;
    let any = "(?s:.*)";
    let options = options(&pattern)?.into_iter().map(|Anchored { parts, begins, ends }| {
        let [before, behind] = [begins, ends].map(|bound| if bound { "" } else { any });
        Expression::Regex(format!("{before}({}){behind}", printed(Hir::concat(parts))))
    });
    Ok(Expression::Any(options.collect()))
}

fn printed(pattern: Hir) -> String {
    let written = |c: char| match c.is_control() {
        true => format!("\\x{{{:x}}}", u32::from(c)),
        false => c.to_string(),
    };
    pattern.to_string().chars().map(written).collect()
}

/// An alternative of a pattern, without its anchors.
#[derive(Clone, Default)]
struct Anchored {
    parts: Vec<Hir>,
    /// The alternative is bound to the beginning of the text.
    begins: bool,
    /// The alternative is bound to the end of the text.
    ends: bool,
}

fn options(pattern: &Hir) -> Result<Vec<Anchored>, String> {
    let one = |parts, begins, ends| Ok(vec![Anchored { parts, begins, ends }]);
    if is_plain(pattern) {
        return one(vec![pattern.clone()], false, false);
    }
    match pattern.kind() {
        HirKind::Look(Look::Start) => one(Vec::new(), true, false),
        HirKind::Look(Look::End) => one(Vec::new(), false, true),
        HirKind::Capture(group) => options(&group.sub),
        HirKind::Alternation(list) => {
            let all: Result<Vec<_>, _> = list.iter().map(options).collect();
            Ok(all?.concat())
        }
        HirKind::Concat(list) => list
            .chunk_by(|one, other| is_plain(one) && is_plain(other))
            .map(|parts| Hir::concat(parts.to_vec()))
            .try_fold(vec![Anchored::default()], |all, part| joined(all, &options(&part)?)),
        HirKind::Repetition(repeated) if (repeated.min, repeated.max) == (0, Some(1)) => {
            Ok([vec![Anchored::default()], options(&repeated.sub)?].concat())
        }
        _ => Err("anchors are supported at the ends of alternatives".into()),
    }
}

/// Whether a pattern has no anchors.
fn is_plain(pattern: &Hir) -> bool {
    pattern.properties().look_set().is_empty()
}

/// Returns all alternatives of `all` with one of `next` after each.
fn joined(mut all: Vec<Anchored>, next: &[Anchored]) -> Result<Vec<Anchored>, String> {
    if let [Anchored { parts, begins: false, ends: false }] = next
        && !all.iter().any(|one| one.ends)
    {
        all.iter_mut().for_each(|one| one.parts.extend_from_slice(parts));
        return Ok(all);
    }
    if all.len() * next.len() > MAX_OPTIONS {
        return Err(format!(
            "expected at most {MAX_OPTIONS} alternatives with anchors, found more"
        ));
    }
    let shortest = |parts: &[Hir]| -> usize {
        parts.iter().filter_map(|part| part.properties().minimum_len()).sum()
    };
    let mut found = Vec::new();
    for (one, other) in all.iter().flat_map(|one| next.iter().map(move |other| (one, other))) {
        // Text before the beginning or after the end.
        let outside = [(other.begins, &one.parts), (one.ends, &other.parts)];
        let mut outside = outside.into_iter().filter(|(bound, parts)| *bound && !parts.is_empty());
        match outside.next() {
            Some((_, parts)) if shortest(parts) > 0 => continue,
            Some(_) => return Err("anchors are supported at the ends of alternatives".into()),
            None => {}
        }
        found.push(Anchored {
            parts: [one.parts.clone(), other.parts.clone()].concat(),
            begins: one.begins || other.begins,
            ends: one.ends || other.ends,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_ecma() {
        let check = |pattern: &str, expected: &str| {
            let found = translated(pattern).unwrap();
            assert_eq!(found, expected, "{pattern}");
            assert_eq!(translated(&found).unwrap(), expected, "{pattern}");
        };
        for same in
            ["^[a-z0-9_-]+$", "[^a\\]b]", "[\\d.]\\w\\s", "\\[[a]", "[]a]", "é[é]", "\\p{L}"]
        {
            check(same, same);
        }
        check("[[a]", "[\\u{5b}a]");
        check("[[:]]", "[\\u{3a}\\u{5b}]]");
        check("[+--]", "[\\u{2b}-\\u{2d}]");
        check("[a~~b]", "[a-b\\u{7e}]");
        check("[A-C&&[^B]]", "[\\u{26}A-C\\u{5b}\\u{5e}]]");
        check("[\\b]", "[\\u{8}]");
        check("[\\<\\>]", "[\\u{3c}\\u{3e}]");
        check("[^\"]", "[\\u{1}-\\u{21}\\u{23}-\\u{10ffff}]");
        check("\\<\\0\\uD83D\\uDE00\\cA", "<\\x00😀\\x01");
        assert!(translated("\\p{Cc}").is_err());
    }

    #[test]
    fn what_is_no_character_is_refused() {
        let pattern = "^a\\u{110000}b$";
        assert_eq!(translated(pattern).unwrap(), pattern);
        assert!(searched(pattern).is_err());
    }

    #[test]
    fn classes_without_an_end_are_read_once() {
        for piece in ["[:", "[", "[\\p{", "[a-", "[^"] {
            let pattern = piece.repeat(200_000);
            assert_eq!(translated(&pattern).unwrap(), pattern);
        }
    }

    #[test]
    fn anchored_patterns_of_many_parts_are_joined_once() {
        for part in ["a?b?", "(a|b)?c?"] {
            let pattern = format!("^{}$", part.repeat(10_000));
            assert!(searched(&pattern).is_ok());
        }
        let many = "(^|a)".repeat(1000);
        assert!(searched(&many).is_err());
    }

    #[test]
    fn anchors_in_groups_bind_their_alternatives() {
        let check = |pattern: &str, expected: &[&str]| {
            let Ok(Expression::Any(found)) = searched(pattern) else { panic!("{pattern}") };
            let found: Vec<String> = found.iter().map(|option| format!("{option:?}")).collect();
            let expected = expected.iter().map(|text| format!("Regex({text:?})"));
            assert_eq!(found, expected.collect::<Vec<_>>(), "{pattern}");
        };
        check("^(a$|b$)", &["(a)", "(b)"]);
        check("(^a|b$)", &["(a)(?s:.*)", "(?s:.*)(b)"]);
        check("(^$|^a+$)", &["((?:))", "(a+)"]);
        check("a^b|^c$", &["(c)"]);
        assert!(searched("a*^b").is_err() && searched("(^a)+").is_err());
    }
}
