//! Where an answer is in the markup of its calls, byte by byte.
//!
//! A model decides names, attributes and values while it writes a call, and has nothing to decide
//! in the markup around them. The tracker says which of both comes next. It rejects nothing: text
//! that is no tag is passed over. Its state depends on the bytes alone, not on how they are cut.

use super::dsml_dialects::{DIALECTS, Dialect, LITERALS, Tag, TagEntry};
use crate::think::{Reasoning, THINK};

/// Longest tag that is read, in bytes. What is longer is no tag.
const MAX_TAG: usize = 4096;
/// A further bar that models write before the `>` of a closing tag.
const BAR: &[u8] = "｜".as_bytes();

/// The place of an answer in the markup of its calls.
#[derive(Clone, Debug)]
pub struct CallStructure {
    place: Place,
    dialect: &'static Dialect,
    /// The end of the text, as far as a tag may begin in it.
    tail: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the text: the tag of reasoning may come.
    Start,
    Reasoning,
    /// In text before a block of calls.
    Outside,
    /// Between the tags of a block, or in text that is no tag.
    Between,
    /// In the value of a string parameter.
    Text,
    /// In the value of another parameter, outside its strings.
    Json,
    /// In a string of such a value; the flag says whether the next byte is escaped.
    JsonString(bool),
    /// After the block.
    Over,
}

impl CallStructure {
    /// The start of an answer. While the reasoning is open, calls are not looked for.
    pub(super) fn new(reasoning: Reasoning) -> Self {
        let place = match reasoning {
            Reasoning::Unsplit => Place::Outside,
            Reasoning::Possible => Place::Start,
            Reasoning::Open | Reasoning::Continued => Place::Reasoning,
        };
        Self { place, dialect: &DIALECTS[0], tail: Vec::new() }
    }

    /// Takes the next bytes of the answer.
    pub fn push(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.step(*byte));
    }

    /// Whether markup comes next: tags between values, JSON outside its strings, or the rest of a
    /// tag. In a string, `</` is the start of a tag; `<` alone may be text.
    pub fn is_structural(&self) -> bool {
        match self.place {
            Place::Between | Place::Json => true,
            Place::Text => self.tail.len() >= 2,
            Place::Outside => starts().any(|(name, ..)| self.has_begun(name)),
            Place::Start | Place::Reasoning | Place::JsonString(_) | Place::Over => false,
        }
    }

    /// The rest of the tag that the text has begun, as far as all tags that begin so have it.
    pub fn rest(&self) -> String {
        let is_tag = matches!(self.place, Place::Between | Place::Text | Place::Json);
        let names: Vec<TagEntry> = match self.place {
            // A single `<` may be text.
            _ if self.tail.len() < 2 => return String::new(),
            Place::Outside => starts().collect(),
            _ if is_tag => self.known().collect(),
            _ => return String::new(),
        };
        let rests = names.iter().filter_map(|(name, tag, opens)| {
            let rest = name.strip_prefix(std::str::from_utf8(&self.tail).ok()?)?;
            let is_named = *opens && *tag != Tag::Block;
            Some(format!("{rest}{}", if is_named { " name=\"" } else { ">" }))
        });
        let common = |one: String, other: String| {
            let pairs = one.chars().zip(other.chars());
            pairs.take_while(|(one, other)| one == other).map(|(one, _)| one).collect()
        };
        rests.reduce(common).unwrap_or_default()
    }

    /// The tags that may come in a block.
    fn known(&self) -> impl Iterator<Item = TagEntry> + Clone + use<> {
        let Dialect { in_block, in_object, .. } = self.dialect;
        let place = self.place;
        let known = in_block.iter().chain(in_object).copied();
        known.filter(move |&(_, tag, opens)| match place {
            Place::Text => tag == Tag::Parameter && !opens,
            Place::Json => tag == Tag::Parameter,
            _ => true,
        })
    }

    /// Whether the tail is a tag of this name, and more of it.
    fn has_begun(&self, name: &str) -> bool {
        self.tail.len() > name.len() && self.tail.starts_with(name.as_bytes())
    }

    fn step(&mut self, byte: u8) {
        match self.place {
            Place::Start => self.start(byte),
            Place::Reasoning => self.reason(byte),
            Place::Outside => self.outside(byte),
            Place::Between | Place::Text | Place::Json => self.inside(byte),
            Place::JsonString(true) => self.place = Place::JsonString(false),
            Place::JsonString(false) => match byte {
                b'\\' => self.place = Place::JsonString(true),
                b'"' => self.place = Place::Json,
                _ => {}
            },
            Place::Over => {}
        }
    }

    /// Takes a byte before the text.
    fn start(&mut self, byte: u8) {
        if self.tail.is_empty() && byte.is_ascii_whitespace() {
            return;
        }
        let [open, _] = THINK[0];
        self.tail.push(byte);
        if self.tail == open.as_bytes() {
            (self.place, self.tail) = (Place::Reasoning, Vec::new());
        } else if !open.as_bytes().starts_with(&self.tail) {
            self.place = Place::Outside;
            let read = std::mem::take(&mut self.tail);
            self.push(&read);
        }
    }

    /// Takes a byte of reasoning.
    fn reason(&mut self, byte: u8) {
        let close = THINK[0][1].as_bytes();
        if close[self.tail.len()] != byte {
            self.tail.clear();
        }
        if close[self.tail.len()] == byte {
            self.tail.push(byte);
        }
        if self.tail == close {
            (self.place, self.tail) = (Place::Outside, Vec::new());
        }
    }

    /// Takes a byte of text before the block.
    fn outside(&mut self, byte: u8) {
        if let Some((name, ..)) = self.tag(starts(), byte) {
            (self.dialect, self.place) = (Dialect::of(name).0, Place::Between);
            self.tail.clear();
        }
    }

    /// Takes a byte of a block outside the strings of JSON.
    fn inside(&mut self, byte: u8) {
        match self.tag(self.known(), byte) {
            Some((_, Tag::Block, _)) => self.place = Place::Over,
            Some((name, Tag::Parameter, true)) => {
                let attributes = self.tail.get(name.len()..).unwrap_or_default();
                let attributes = String::from_utf8_lossy(attributes);
                let string = Dialect::attribute(&attributes, "string");
                self.place =
                    if string.as_deref() == Some("true") { Place::Text } else { Place::Json };
            }
            Some(_) => self.place = Place::Between,
            None if byte == b'"' && self.place == Place::Json && self.tail.is_empty() => {
                self.place = Place::JsonString(false);
            }
            None => return,
        }
        self.tail.clear();
    }

    /// Takes a byte of a tag or of other text. Returns the tag that the byte ends, if it is one of
    /// `known`, with its text in the tail.
    fn tag(&mut self, known: impl Iterator<Item = TagEntry> + Clone, byte: u8) -> Option<TagEntry> {
        let named =
            |tail: &[u8]| known.clone().find(|(name, ..)| tail.starts_with(name.as_bytes()));
        let fits = match named(&self.tail) {
            Some(entry) if byte == b'>' => return Some(entry),
            Some((name, _, opens)) => {
                let rest = &self.tail[name.len()..];
                let space = byte.is_ascii_whitespace();
                match opens {
                    true => space || !rest.is_empty(),
                    false => space || ends_with_bar(rest, byte),
                }
            }
            None => {
                let len = self.tail.len();
                let next = |name: &str| name.as_bytes().get(len) == Some(&byte);
                known
                    .clone()
                    .any(|(name, ..)| name.as_bytes().starts_with(&self.tail) && next(name))
            }
        };
        if fits && self.tail.len() < MAX_TAG {
            self.tail.push(byte);
        } else {
            self.tail.clear();
            // Tags begin with the only `<` of their names.
            self.tail.extend((byte == b'<').then_some(byte));
        }
        None
    }
}

/// The tags that begin a block, and those of calls in a block that was not opened.
fn starts() -> impl Iterator<Item = TagEntry> + Clone {
    LITERALS.iter().map(|(name, _)| (*name, Dialect::of(name).1, true))
}

/// Whether `byte` continues the one bar that may stand before the end of a closing tag, between
/// white space.
fn ends_with_bar(rest: &[u8], byte: u8) -> bool {
    let bar = rest.iter().filter(|byte| !byte.is_ascii_whitespace()).count();
    BAR.get(bar) == Some(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCK: &str = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n";
    const STRING: &str = "<｜DSML｜parameter name=\"s\" string=\"true\">";
    const JSON: &str = "<｜DSML｜parameter name=\"n\" string=\"false\">";
    const END: &str = "</｜DSML｜parameter>";

    fn after(reasoning: Reasoning, pieces: &[&[u8]]) -> CallStructure {
        let mut structure = CallStructure::new(reasoning);
        pieces.iter().for_each(|piece| structure.push(piece));
        structure
    }

    #[track_caller]
    fn check(pieces: &[&str], place: Place, structural: bool) {
        let text = pieces.concat();
        let found = after(Reasoning::Possible, &[text.as_bytes()]);
        assert_eq!((found.place, found.is_structural()), (place, structural), "{text}");
    }

    #[test]
    fn blocks_begin_in_three_dialects_and_end_once() {
        check(&["Let me see.\n\n<｜DSML｜tool_calls"], Place::Outside, false);
        for prefix in ["｜DSML｜", "DSML｜", ""] {
            for block in ["tool_calls", "function_calls"] {
                let (open, close) = (format!("<{prefix}{block}>"), format!("</{prefix}{block}>"));
                check(&["a < b ", &open], Place::Between, true);
                check(&[&open, "\n", &close], Place::Over, false);
                check(&[&open, &close, &open], Place::Over, false);
            }
        }
        // The dialect is fixed where the block begins.
        check(&["<tool_calls></｜DSML｜tool_calls>"], Place::Between, true);
        check(&["<tool_calls>", STRING], Place::Between, true);
        check(&["<tool_calls><parameter name=\"s\" string=\"true\">"], Place::Text, false);
        // A block that the model forgot to open, and words that begin like one.
        check(&["<｜DSML｜invoke name="], Place::Outside, true);
        check(&["<｜DSML｜invoke name=\"f\">"], Place::Between, true);
        check(&["<tool_calls_2> and <invoke name=\"f\"> "], Place::Outside, false);
    }

    #[test]
    fn the_rest_of_a_tag_is_what_all_tags_that_begin_so_have() {
        let check = |pieces: &[&str], rest: &str| {
            let text = pieces.concat();
            let found = after(Reasoning::Possible, &[text.as_bytes()]).rest();
            assert_eq!(found, rest, "{text}");
        };
        check(&["a <"], "");
        check(&["a <｜DSML｜"], "");
        check(&["a <｜DSML｜tool"], "_calls>");
        check(&["a <｜DSML｜in"], "voke name=\"");
        check(&[BLOCK, "<｜DSML｜p"], "arameter name=\"");
        check(&[BLOCK, "<｜DSML｜parameter"], " name=\"");
        check(&[BLOCK, "<｜DSML｜parameter name=\"s"], "");
        check(&[BLOCK, "</｜DSML｜"], "");
        check(&[BLOCK, "</"], "｜DSML｜");
        check(&[BLOCK, STRING, "x <"], "");
        check(&[BLOCK, STRING, "x </"], "｜DSML｜parameter>");
        check(&[BLOCK, JSON, "1</｜DSML｜para"], "meter>");
        check(&["<think> <｜DSML｜tool"], "");
    }

    #[test]
    fn values_are_free_and_markup_is_not() {
        check(&[BLOCK, "<｜DSML｜param"], Place::Between, true);
        check(&[BLOCK, STRING], Place::Text, false);
        check(&[BLOCK, STRING, "ls <｜DSML｜invoke> <"], Place::Text, false);
        check(&[BLOCK, STRING, "ls </"], Place::Text, true);
        check(&[BLOCK, STRING, "ls </｜DSML"], Place::Text, true);
        check(&[BLOCK, STRING, "ls </b"], Place::Text, false);
        check(&[BLOCK, STRING, "ls </</"], Place::Text, true);
        check(&[BLOCK, STRING, "&lt;/｜DSML｜parameter>"], Place::Text, false);
        check(&[BLOCK, STRING, "ls", END], Place::Between, true);
        check(&[BLOCK, STRING, "ls</｜DSML｜parameter ｜\n>"], Place::Between, true);
        check(&[BLOCK, STRING, "ls</｜DSML｜parameter｜｜>"], Place::Text, false);
        check(&[BLOCK, JSON], Place::Json, true);
        check(&[BLOCK, JSON, "[1, {\"a"], Place::JsonString(false), false);
        check(&[BLOCK, JSON, "[1, {\"a\\"], Place::JsonString(true), false);
        check(&[BLOCK, JSON, "[1, {\"a\\\"", END, "\\\\"], Place::JsonString(false), false);
        check(&[BLOCK, JSON, "[1, {\"a\\\\\""], Place::Json, true);
        check(&[BLOCK, JSON, "{\"a\": \"b\"}</"], Place::Json, true);
        check(&[BLOCK, JSON, "{\"a\": \"b\"}", END, STRING], Place::Text, false);
    }

    #[test]
    fn parameters_without_a_type_are_json_and_may_hold_others() {
        let untyped = "<｜DSML｜parameter name=\"o\">";
        check(&[BLOCK, untyped, "1"], Place::Json, true);
        check(&[BLOCK, untyped, "\"x"], Place::JsonString(false), false);
        check(&[BLOCK, untyped, "\n", STRING, "it\"s"], Place::Text, false);
        check(&[BLOCK, untyped, STRING, "x", END, END, JSON], Place::Json, true);
        check(&[BLOCK, "<｜DSML｜parameter string='true' name=\"s\">"], Place::Text, false);
        check(&[BLOCK, "<｜DSML｜parameter name=\" string=&quot;true\">"], Place::Json, true);
    }

    #[test]
    fn unknown_text_in_a_block_is_markup_until_a_tag_comes() {
        check(&[BLOCK, "hm, \"quoted\" < text "], Place::Between, true);
        check(&[BLOCK, "hm ", STRING, "a"], Place::Text, false);
        check(&[BLOCK, "<｜DSML｜parameter ", &"x".repeat(MAX_TAG), ">"], Place::Between, true);
    }

    #[test]
    fn reasoning_is_asleep() {
        let quoted = format!("{BLOCK}{STRING}</");
        let open = |text: &str| after(Reasoning::Open, &[text.as_bytes()]);
        assert_eq!(open(&quoted).place, Place::Reasoning);
        assert!(!open(&quoted).is_structural());
        assert_eq!(open(&format!("{quoted}</</think>")).place, Place::Outside);
        assert_eq!(open(&format!("{quoted}</think>{BLOCK}{STRING}")).place, Place::Text);
        check(&[" \n<think>", &quoted], Place::Reasoning, false);
        check(&["<think>", &quoted, "</think>", BLOCK], Place::Between, true);
        check(&["a <think>", BLOCK], Place::Between, true);
        check(&["<thi", BLOCK], Place::Between, true);
        let unsplit = after(Reasoning::Unsplit, &[b"<think>", quoted.as_bytes()]);
        assert!(unsplit.is_structural());
    }

    /// The place after `text`, found by searching the whole text.
    fn searched(text: &str) -> (Place, bool) {
        let mut rest = text;
        if let Some(thought) = rest.trim_ascii_start().strip_prefix("<think>") {
            let Some((_, answer)) = thought.split_once("</think>") else {
                return (Place::Reasoning, false);
            };
            rest = answer;
        } else if "<think>".starts_with(rest.trim_ascii_start()) {
            return (Place::Start, false);
        }
        let Some((_, mut rest)) = rest.split_once("<｜DSML｜tool_calls>") else {
            return (Place::Outside, false);
        };
        let mut place = Place::Between;
        loop {
            let ends: &[(&str, Place)] = match place {
                Place::Text => &[(END, Place::Between)],
                Place::Json => &[(END, Place::Between), (STRING, Place::Text), (JSON, Place::Json)],
                _ => &[
                    ("</｜DSML｜tool_calls>", Place::Over),
                    (STRING, Place::Text),
                    (JSON, Place::Json),
                ],
            };
            let (mut string, mut escaped, mut next) = (false, false, None);
            for (at, c) in rest.char_indices() {
                let ended = ends.iter().find(|(end, _)| !string && rest[at..].starts_with(end));
                match c {
                    _ if ended.is_some() => {
                        next = ended.map(|(end, place)| (at + end.len(), *place));
                        break;
                    }
                    _ if escaped => escaped = false,
                    '\\' if string => escaped = true,
                    '"' if place == Place::Json => string = !string,
                    _ => {}
                }
            }
            let half = |len: usize| END.get(..len).is_some_and(|tag| rest.ends_with(tag));
            match next {
                Some((_, Place::Over)) => return (Place::Over, false),
                Some((at, next)) => (rest, place) = (&rest[at..], next),
                None if string => return (Place::JsonString(escaped), false),
                None if place == Place::Text => return (place, (2..END.len()).any(half)),
                None => return (place, true),
            }
        }
    }

    fn fragments() -> impl Strategy<Value = Vec<&'static str>> {
        let all = vec![
            "<think>",
            "</think>",
            "</th",
            " ",
            "\n",
            "a",
            "é｜",
            "<",
            "</",
            "\"",
            "\\",
            "{",
            "1",
            "<｜DSML｜tool_calls>",
            "</｜DSML｜tool_calls>",
            STRING,
            JSON,
            END,
            "</｜DSML｜par",
        ];
        prop::collection::vec(prop::sample::select(all), 0..14)
    }

    proptest! {
        #[test]
        fn the_state_is_that_of_the_whole_text(words in fragments()) {
            let text = words.concat();
            let found = after(Reasoning::Possible, &[text.as_bytes()]);
            prop_assert_eq!((found.place, found.is_structural()), searched(&text), "{}", text);
        }

        #[test]
        fn cutting_makes_no_difference(
            words in fragments(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let text = words.concat();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.sort_unstable();
            let ends = cuts.iter().copied().chain([text.len()]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let pieces: Vec<&[u8]> =
                starts.zip(ends).map(|(start, end)| &text.as_bytes()[start..end]).collect();
            let (cut, whole) =
                (after(Reasoning::Possible, &pieces), after(Reasoning::Possible, &[text.as_bytes()]));
            prop_assert_eq!(
                (cut.place, cut.tail, cut.dialect.prefix),
                (whole.place, whole.tail, whole.dialect.prefix)
            );
        }
    }
}
