//! Python's string operations on plain text.

use super::budget::Budget;
use super::unicode;
use super::values::invalid;
use minijinja::{Error, Value};

/// White space as `str.strip` and `str.split` see it.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `strip`, `lstrip`, `rstrip`, with an optional set of characters.
pub(super) fn strip<'a>(s: &'a str, set: Option<&str>, start: bool, end: bool) -> &'a str {
    let stripped = |c: char| set.map_or_else(|| is_space(c), |set| set.contains(c));
    let s = if start { s.trim_start_matches(stripped) } else { s };
    if end { s.trim_end_matches(stripped) } else { s }
}

/// `split` and `rsplit`; without a separator, runs of white space separate.
pub(super) fn split<'a>(
    s: &'a str,
    separator: Option<&str>,
    limit: Option<usize>,
    from_right: bool,
) -> Vec<&'a str> {
    match (separator, limit) {
        (Some(sep), None) => s.split(sep).collect(),
        (Some(sep), Some(limit)) if from_right => {
            let mut parts: Vec<&str> = s.rsplitn(limit.saturating_add(1), sep).collect();
            parts.reverse();
            parts
        }
        (Some(sep), Some(limit)) => s.splitn(limit.saturating_add(1), sep).collect(),
        (None, limit) => split_spaces(s, limit.unwrap_or(usize::MAX), from_right),
    }
}

fn split_spaces(s: &str, limit: usize, from_right: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = strip(s, None, !from_right, from_right);
    while !rest.is_empty() && parts.len() < limit {
        let (part, more) = match from_right {
            true => rest.rsplit_once(is_space).map_or((rest, ""), |(more, part)| (part, more)),
            false => rest.split_once(is_space).unwrap_or((rest, "")),
        };
        parts.push(part);
        rest = strip(more, None, !from_right, from_right);
    }
    parts.extend((!rest.is_empty()).then_some(rest));
    if from_right {
        parts.reverse();
    }
    parts
}

/// `separator.join(texts)`, charged for while it is done.
pub(super) fn join(
    budget: &Budget,
    separator: &str,
    texts: impl Iterator<Item = Result<String, Error>>,
) -> Result<Value, Error> {
    let mut out = String::new();
    for (index, text) in texts.enumerate() {
        let text = text?;
        budget.make(text.len() + separator.len())?;
        out.push_str(if index > 0 { separator } else { "" });
        out.push_str(&text);
    }
    Ok(Value::from(out))
}

/// `splitlines`: every line boundary of Unicode ends a line, `\r\n` counts as one.
pub(super) fn split_lines(s: &str, keep_ends: bool) -> Vec<&str> {
    let boundary = |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = s;
    while let Some(at) = rest.find(boundary) {
        let first = rest[at..].chars().next().map_or(1, char::len_utf8);
        let len = if rest[at..].starts_with("\r\n") { 2 } else { first };
        lines.push(if keep_ends { &rest[..at + len] } else { &rest[..at] });
        rest = &rest[at + len..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

/// `partition` and `rpartition`.
pub(super) fn partition<'a>(s: &'a str, separator: &'a str, from_right: bool) -> [&'a str; 3] {
    let found = if from_right { s.rsplit_once(separator) } else { s.split_once(separator) };
    match found {
        Some((before, after)) => [before, separator, after],
        None if from_right => ["", "", s],
        None => [s, "", ""],
    }
}

/// `title`: letters after letters with a case are lower case, all others titles.
pub(super) fn title(s: &str) -> String {
    title_words(s, |c| !unicode::is_cased(c))
}

/// Returns `s` with the first character and those after a `boundary` as in titles, others lower.
pub(super) fn title_words(s: &str, boundary: impl Fn(char) -> bool) -> String {
    let lower = lower_chars(s);
    let mut starts = true;
    let cased = |(c, lower): (char, String)| match std::mem::replace(&mut starts, boundary(c)) {
        true => unicode::title(c),
        false => lower,
    };
    s.chars().zip(lower).map(cased).collect()
}

/// The lower case of each character: a sigma at the end of a word has another.
fn lower_chars(s: &str) -> Vec<String> {
    let mut lower: Vec<String> = s.chars().map(|c| c.to_lowercase().collect()).collect();
    if s.contains('Σ') {
        // Of all characters, this one alone depends on its neighbours, and has one lower case.
        let whole = s.replace('İ', "i").to_lowercase();
        for (one, (c, found)) in lower.iter_mut().zip(s.chars().zip(whole.chars())) {
            if c == 'Σ' {
                *one = found.into();
            }
        }
    }
    lower
}

/// Returns markup that shows `s`.
pub(super) fn escape(s: &str) -> String {
    let entities = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('\'', "&#39;"), ('"', "&#34;")];
    entities.into_iter().fold(s.to_owned(), |text, (c, entity)| text.replace(c, entity))
}

/// Percent encoding; in a query, space becomes `+` and `/` is encoded too.
pub(super) fn url_quote(s: &str, query: bool) -> String {
    let mut out = String::with_capacity(s.len());
    for byte in s.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => {
                out.push(byte.into());
            }
            b'/' if !query => out.push('/'),
            b' ' if query => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// `capitalize`: the first character upper case, the rest lower.
pub(super) fn capitalize(s: &str) -> String {
    let mut lower = lower_chars(s).into_iter();
    lower.next();
    s.chars().next().map(unicode::title).into_iter().chain(lower).collect()
}

/// `swapcase`.
pub(super) fn swap_case(s: &str) -> String {
    let swapped = |(c, lower): (char, String)| match (c.is_uppercase(), c.is_lowercase()) {
        (true, _) => lower,
        (_, true) => c.to_uppercase().to_string(),
        _ => c.to_string(),
    };
    s.chars().zip(lower_chars(s)).map(swapped).collect()
}

/// `replace`, charged for before it is done.
pub(super) fn replace(
    budget: &Budget,
    s: &str,
    old: &str,
    new: &str,
    count: Option<usize>,
) -> Result<String, Error> {
    let hits = if old.is_empty() { s.chars().count() + 1 } else { s.matches(old).count() };
    let hits = hits.min(count.unwrap_or(usize::MAX));
    budget.make(s.len().saturating_add(hits.saturating_mul(new.len())))?;
    Ok(s.replacen(old, new, hits))
}

/// `zfill`, `center`, `ljust`, `rjust` and `expandtabs`, charged for before they are done.
pub(super) fn pad(
    budget: &Budget,
    s: &str,
    how: &str,
    width: i128,
    fill: char,
) -> Result<String, Error> {
    let width = usize::try_from(width.max(0)).map_err(|_| invalid("a width is too large"))?;
    if how == "expandtabs" {
        return expand_tabs(budget, s, width);
    }
    let missing = width.saturating_sub(s.chars().count());
    budget.make(s.len().saturating_add(missing.saturating_mul(fill.len_utf8())))?;
    let run = |count: usize| fill.to_string().repeat(count);
    Ok(match how {
        "ljust" => s.to_owned() + &run(missing),
        "rjust" => run(missing) + s,
        "zfill" => {
            let sign = s.len() - s.strip_prefix(['+', '-']).unwrap_or(s).len();
            format!("{}{}{}", &s[..sign], "0".repeat(missing), &s[sign..])
        }
        _ => {
            // Python puts the odd character on the left when the width is odd.
            let left = missing / 2 + (missing & width & 1);
            run(left) + s + &run(missing - left)
        }
    })
}

/// `expandtabs`: each tab fills up to the next multiple of `width` in its line.
fn expand_tabs(budget: &Budget, s: &str, width: usize) -> Result<String, Error> {
    let mut out = String::new();
    let mut column = 0;
    for c in s.chars() {
        if c == '\t' {
            let fill = width.checked_rem(width).map_or(0, |_| width - column % width);
            out.push_str(&spaces(budget, fill)?);
            column += fill;
        } else {
            out.push(c);
            column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
        }
    }
    Ok(out)
}

/// Returns a run of spaces, which is charged for.
pub(super) fn spaces(budget: &Budget, count: usize) -> Result<String, Error> {
    budget.make(count)?;
    Ok(" ".repeat(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_follows_python() {
        assert_eq!(split(" a  b c ", None, None, false), ["a", "b", "c"]);
        assert_eq!(split(" a  b c ", None, Some(1), false), ["a", "b c "]);
        assert_eq!(split(" a  b c ", None, Some(1), true), [" a  b", "c"]);
        assert_eq!(split("a,b,c", Some(","), Some(1), true), ["a,b", "c"]);
        assert_eq!(split("", Some(","), None, false), [""]);
        assert_eq!(split_lines("a\r\nb\n\nc\u{85}", false), ["a", "b", "", "c"]);
        assert_eq!(split_lines("a\r\nb", true), ["a\r\n", "b"]);
        assert_eq!(partition("a-b-c", "-", true), ["a-b", "-", "c"]);
    }

    #[test]
    fn padding_follows_python() {
        let budget = Budget::for_input(0);
        let check = |s, how, width, expected: &str| {
            assert_eq!(pad(&budget, s, how, width, ' ').unwrap(), expected, "{how}");
        };
        check("ab", "center", 5, "  ab ");
        check("abc", "center", 6, " abc  ");
        check("-7", "zfill", 4, "-007");
        check("a\tb", "expandtabs", 4, "a   b");
        assert!(pad(&budget, "x", "ljust", 1 << 60, ' ').is_err());
    }

    #[test]
    fn replacing_is_bounded() {
        let budget = Budget::for_input(0);
        assert_eq!(replace(&budget, "aaa", "a", "bb", Some(2)).unwrap(), "bbbba");
        assert_eq!(replace(&budget, "ab", "", "-", None).unwrap(), "-a-b-");
        let long = "a".repeat(1 << 16);
        assert!(replace(&budget, &long, "a", &long, None).is_err());
    }
}
