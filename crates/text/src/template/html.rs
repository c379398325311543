//! The filters `striptags`, `xmlattr` and `urlize`.

use super::budget::Budget;
use super::methods;
use super::ops::escaped;
use super::pystr::str_of;
use super::strings;
use super::values::{as_int, first, invalid, options};
use fancy_regex::Regex;
use minijinja::{Error, Value};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// `value|striptags`: text without comments, tags and runs of white space.
pub(super) fn strip_tags(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let text = str_of(first(args)?)?;
    let text = without(budget, text, "<!--", "-->")?;
    let text = without(budget, text, "<", ">")?;
    let words = strings::split(&text, None, None, false).join(" ");
    Ok(Value::from(unescape(&words)))
}

/// Text without what stands between two marks, again and again.
fn without(budget: &Budget, mut text: String, open: &str, close: &str) -> Result<String, Error> {
    while let Some(start) = text.find(open) {
        let Some(length) = text[start..].find(close) else { break };
        budget.read(text.len())?;
        text.replace_range(start..start + length + close.len(), "");
    }
    Ok(text)
}

/// Text with characters for the entities of HTML that have numbers, and the ones of XML.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let entity =
            rest[1..].split_once(';').and_then(|(name, after)| Some((entity(name)?, after)));
        match entity {
            Some((c, after)) => {
                out.push(c);
                rest = after;
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out + rest
}

fn entity(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        return code.ok().and_then(char::from_u32);
    }
    Some(match name {
        "amp" | "AMP" => '&',
        "lt" | "LT" => '<',
        "gt" | "GT" => '>',
        "quot" | "QUOT" => '"',
        "apos" => '\'',
        "nbsp" => '\u{a0}',
        _ => return None,
    })
}

/// `attributes|xmlattr(autospace)`.
pub(super) fn xml_attributes(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [space] = options(args, ["autospace"])?;
    let items = methods::items(budget, args.get(..1).unwrap_or_default())?;
    let mut attributes = Vec::new();
    for pair in items.try_iter()? {
        let (key, value) = (pair.get_item_by_index(0)?, pair.get_item_by_index(1)?);
        if value.is_none() || value.is_undefined() {
            continue;
        }
        let name = str_of(&key)?;
        if name.contains(|c: char| strings::is_space(c) || matches!(c, '/' | '>' | '=')) {
            return Err(invalid(&format!("invalid character in attribute name: \"{name}\"")));
        }
        attributes.push(format!("{}=\"{}\"", escaped(&key)?, escaped(&value)?));
    }
    let spaced = space.is_none_or(|space| space.is_true()) && !attributes.is_empty();
    Ok(Value::from(format!("{}{}", if spaced { " " } else { "" }, attributes.join(" "))))
}

static HTTP: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?i)^((https?://|www\.)(([\w%-]+\.)+)?([a-z]{2,63}|xn--[\w%]{2,59})",
        r"|([\w%-]{2,63}\.)+(com|net|int|edu|gov|org|info|mil)",
        r"|(https?://)((([\d]{1,3})(\.[\d]{1,3}){3})|(\[([\da-f]{0,4}:){2}([\da-f]{0,4}:?){1,6}\])))",
        r"(?::[\d]{1,5})?(?:[/?#]\S*)?$"
    ))
    .ok()
});
static MAIL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\S+@\w[\w.-]*\.\w+$").ok());

fn matches(regex: &LazyLock<Option<Regex>>, text: &str) -> bool {
    regex.as_ref().is_some_and(|regex| regex.is_match(text).unwrap_or(false))
}

/// `text|urlize(trim_url_limit, nofollow, target, rel, extra_schemes)`.
pub(super) fn urlize(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let names = ["trim_url_limit", "nofollow", "target", "rel", "extra_schemes"];
    let [limit, nofollow, target, rel, schemes] = options(args, names)?;
    let limit = limit.as_ref().and_then(as_int).and_then(|limit| usize::try_from(limit).ok());
    let rel = rel.filter(|rel| !rel.is_none()).map_or(Ok(String::new()), |rel| str_of(&rel))?;
    let mut relations: BTreeSet<&str> = rel.split_whitespace().collect();
    relations.extend(nofollow.is_some_and(|it| it.is_true()).then_some("nofollow"));
    relations.insert("noopener");
    let relations: Vec<&str> = relations.into_iter().collect();
    let mut attributes = format!(" rel=\"{}\"", strings::escape(&relations.join(" ")));
    if let Some(target) = target.filter(|target| target.is_true()) {
        attributes += &format!(" target=\"{}\"", escaped(&target)?);
    }
    let schemes = schemes.filter(|schemes| !schemes.is_none());
    let schemes: Vec<String> = match schemes {
        Some(schemes) => schemes.try_iter()?.map(|it| str_of(&it)).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let links = Links { limit, attributes, schemes };
    let text = escaped(first(args)?)?;
    budget.read(text.len())?;
    let mut out = String::new();
    for word in text.split_inclusive(strings::is_space) {
        let bare = word.trim_end_matches(strings::is_space);
        out.push_str(&links.word(bare));
        out.push_str(&word[bare.len()..]);
    }
    Ok(Value::from(out))
}

/// What is written into links.
struct Links {
    limit: Option<usize>,
    attributes: String,
    schemes: Vec<String>,
}

impl Links {
    fn word(&self, word: &str) -> String {
        let (head, middle, tail) = parts(word);
        format!("{head}{}{tail}", self.link(&middle))
    }

    fn link(&self, text: &str) -> String {
        let attributes = &self.attributes;
        if matches(&HTTP, text) {
            let scheme = if text.starts_with("http://") || text.starts_with("https://") {
                ""
            } else {
                "https://"
            };
            let shown = match self.limit {
                Some(limit) if text.chars().count() > limit => {
                    text.chars().take(limit).collect::<String>() + "..."
                }
                _ => text.to_owned(),
            };
            return format!("<a href=\"{scheme}{text}\"{attributes}>{shown}</a>");
        }
        if let Some(address) = text.strip_prefix("mailto:").filter(|it| matches(&MAIL, it)) {
            return format!("<a href=\"{text}\">{address}</a>");
        }
        let plain = !text.starts_with("www.") && !text.starts_with('@') && !text.contains(':');
        if text.contains('@') && plain && matches(&MAIL, text) {
            return format!("<a href=\"mailto:{text}\">{text}</a>");
        }
        let known = |scheme: &String| text != scheme && text.starts_with(scheme.as_str());
        match self.schemes.iter().any(known) {
            true => format!("<a href=\"{text}\"{attributes}>{text}</a>"),
            false => text.to_owned(),
        }
    }
}

/// A word without the brackets and punctuation around it, which stay where they balance.
fn parts(word: &str) -> (&str, String, String) {
    let mut middle = word;
    while let Some(rest) = ["(", "<", "&lt;"].into_iter().find_map(|it| middle.strip_prefix(it)) {
        middle = rest;
    }
    let (head, rest) = word.split_at(word.len() - middle.len());
    let mut end = rest;
    let ends = [")", ">", ".", ",", "&gt;"];
    while let Some(before) = ends.into_iter().find_map(|it| end.strip_suffix(it)) {
        end = before;
    }
    let (mut middle, mut tail) = (end.to_owned(), rest[end.len()..].to_owned());
    for (open, close) in [("(", ")"), ("<", ">"), ("&lt;", "&gt;")] {
        let opened = middle.matches(open).count();
        if opened <= middle.matches(close).count() {
            continue;
        }
        for _ in 0..opened.min(tail.matches(close).count()) {
            let Some(at) = tail.find(close) else { break };
            middle.extend(tail.drain(..at + close.len()));
        }
    }
    (head, middle, tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_links_are_those_of_jinja() {
        let budget = Budget::for_input(0);
        let strip = |text: &str| strip_tags(&budget, &[Value::from(text)]).unwrap().to_string();
        assert_eq!(strip("<p> a <!-- <b> -->&amp; &lt;b&#62;\n&bogus; < c</p>"), "a & <b> &bogus;");
        let link = |text: &str| urlize(&budget, &[Value::from(text)]).unwrap().to_string();
        assert_eq!(link("http://a.b c"), "http://a.b c");
        assert_eq!(
            link("(see www.example.org/a_(b).) x@y.zz"),
            "(see <a href=\"https://www.example.org/a_(b)\" rel=\"noopener\">www.example.org/a_(b)</a>.) \
             <a href=\"mailto:x@y.zz\">x@y.zz</a>"
        );
    }
}
