//! The tags of DSML in its three dialects, and the escapes within them.

use crate::call_reader::LiteralRole::{self, Implicit, Start};

/// The literals that begin calls, and what they do.
pub(super) const LITERALS: &[(&str, LiteralRole)] = &[
    ("<｜DSML｜tool_calls", Start),
    ("<｜DSML｜function_calls", Start),
    ("<｜DSML｜invoke", Implicit),
    ("<DSML｜tool_calls", Start),
    ("<DSML｜function_calls", Start),
    ("<DSML｜invoke", Implicit),
    ("<tool_calls", Start),
    ("<function_calls", Start),
];

/// The element of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Block,
    Invoke,
    Parameter,
}

/// The text of a tag up to its name, its element, and whether it opens.
pub(super) type TagEntry = (&'static str, Tag, bool);

/// One way to write the tags.
#[derive(Debug)]
pub(super) struct Dialect {
    /// Begins every opening tag.
    pub prefix: &'static str,
    /// Tags between invocations.
    pub in_block: [TagEntry; 3],
    /// Tags between parameters. The last one only ends an inner object.
    pub in_object: [TagEntry; 3],
    /// The closing tag of a parameter up to its name, and how it is written inside a value.
    pub in_text: [&'static str; 2],
}

macro_rules! dialect {
    ($prefix:literal) => {
        Dialect {
            prefix: concat!("<", $prefix),
            in_block: [
                (concat!("<", $prefix, "invoke"), Tag::Invoke, true),
                (concat!("</", $prefix, "tool_calls"), Tag::Block, false),
                (concat!("</", $prefix, "function_calls"), Tag::Block, false),
            ],
            in_object: [
                (concat!("<", $prefix, "parameter"), Tag::Parameter, true),
                (concat!("</", $prefix, "invoke"), Tag::Invoke, false),
                (concat!("</", $prefix, "parameter"), Tag::Parameter, false),
            ],
            in_text: [concat!("</", $prefix, "parameter"), concat!("&lt;/", $prefix, "parameter>")],
        }
    };
}

pub(super) static DIALECTS: [Dialect; 3] = [dialect!("｜DSML｜"), dialect!("DSML｜"), dialect!("")];

impl Dialect {
    /// Returns the dialect of an opening tag, and its element.
    pub fn of(literal: &str) -> (&'static Self, Tag) {
        let [standard, short, plain] = &DIALECTS;
        let dialect = [standard, short].into_iter().find(|d| literal.starts_with(d.prefix));
        let tag = if literal.ends_with("invoke") { Tag::Invoke } else { Tag::Block };
        (dialect.unwrap_or(plain), tag)
    }

    /// Returns the value of an attribute in the text of a tag.
    pub fn attribute(text: &str, name: &str) -> Option<String> {
        let mut rest = text.trim_start();
        while let Some((key, value)) = rest.split_once('=') {
            let value = value.trim_start();
            let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
            let (value, after) = value[1..].split_once(quote)?;
            if key.trim() == name {
                return Some(unescape(value));
            }
            rest = after.trim_start();
        }
        None
    }
}

/// The entities of XML, the one of the character that begins them first.
pub(super) const ENTITIES: [(&str, char); 5] =
    [("&amp;", '&'), ("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"'), ("&apos;", '\'')];

/// Writes a text as the value of an attribute.
pub(super) fn escape(text: &str) -> String {
    ENTITIES.iter().fold(text.to_owned(), |text, (name, c)| text.replace(*c, name))
}

/// Resolves the five entities of XML, once, from left to right.
pub(super) fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, after) = rest.split_at(at);
        let found = ENTITIES.iter().find(|(name, _)| after.starts_with(name));
        let (taken, c) = found.map_or((1, '&'), |&(name, c)| (name.len(), c));
        out.push_str(before);
        out.push(c);
        rest = &after[taken..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_by_name_and_unescaped() {
        let text = " name=\"a&lt;&amp;lt;&x\" string = 'true' ";
        assert_eq!(Dialect::attribute(text, "name").unwrap(), "a<&lt;&x");
        assert_eq!(Dialect::attribute(text, "string").unwrap(), "true");
        assert_eq!(Dialect::attribute(text, "other"), None);
        for broken in ["", " name", " name=x", " name=\"x", " x=\"name=\""] {
            assert_eq!(Dialect::attribute(broken, "name"), None, "{broken}");
        }
    }

    #[test]
    fn the_opening_tag_tells_the_dialect() {
        assert_eq!(Dialect::of("<｜DSML｜tool_calls").0.in_text[0], "</｜DSML｜parameter");
        assert_eq!(Dialect::of("<DSML｜invoke").1, Tag::Invoke);
        assert_eq!(Dialect::of("<tool_calls").0.in_text[0], "</parameter");
    }
}
