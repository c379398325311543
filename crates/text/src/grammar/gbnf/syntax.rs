//! The rules of a GBNF grammar as they are written.

use super::char_set::CharSet;
use std::collections::HashMap;

/// Depth of groups.
const MAX_DEPTH: usize = 100;
/// Number of rules.
const MAX_RULES: usize = 2000;
/// Largest number of repetitions, as in llama.cpp.
const MAX_COUNT: u32 = 2000;

/// What a rule or a part of it matches.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Gbnf {
    /// One character of a set.
    Chars(CharSet),
    /// A token of the vocabulary by its id or its text, or any token but that.
    Token { name: TokenName, negated: bool },
    /// The rule of this index.
    Rule(usize),
    /// All parts, one after the other.
    Seq(Vec<Gbnf>),
    /// One of the parts.
    Alt(Vec<Gbnf>),
    /// The part from `least` to `most` times; without `most`, any number of times.
    Repeat { part: Box<Gbnf>, least: u32, most: Option<u32> },
}

/// A token as a grammar names it, with the offset of the name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenName {
    Id(u32, usize),
    Text(String, usize),
}

/// The rules of a grammar.
#[derive(Debug)]
pub(super) struct GbnfRules {
    /// The bodies of rules.
    pub bodies: Vec<Gbnf>,
    /// The index of the rule `root`.
    pub root: usize,
    /// Where the definition of each rule begins.
    pub places: Vec<usize>,
}

/// A fault at an offset of the text.
#[derive(Debug)]
pub(super) struct Fault {
    pub at: usize,
    pub what: String,
}

impl Fault {
    /// Returns the message with the line and the column in `text`.
    pub fn message(&self, text: &str) -> String {
        let before = &text[..self.at];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        format!("line {line}, column {column}: {}", self.what)
    }
}

/// Parses a grammar.
pub(super) fn parse(text: &str) -> Result<GbnfRules, Fault> {
    let mut reader = GbnfReader { text, at: 0, names: HashMap::new(), rules: Vec::new() };
    reader.grammar()?;
    let fault = |at: usize, what: String| Err(Fault { at, what });
    let Some(&root) = reader.names.get("root").filter(|root| reader.rules[**root].body.is_some())
    else {
        return fault(0, "expected a rule named root, found none".into());
    };
    let (mut bodies, mut places) = (Vec::new(), Vec::new());
    for rule in reader.rules {
        places.push(rule.at);
        match rule.body {
            Some(body) => bodies.push(body),
            None => return fault(rule.at, format!("the rule {} is not defined", rule.name)),
        }
    }
    Ok(GbnfRules { bodies, root, places })
}

struct GbnfReader<'a> {
    text: &'a str,
    at: usize,
    names: HashMap<&'a str, usize>,
    rules: Vec<NamedRule<'a>>,
}

/// A rule that has been named, at `at` first, and perhaps defined.
struct NamedRule<'a> {
    name: &'a str,
    at: usize,
    body: Option<Gbnf>,
}

impl<'a> GbnfReader<'a> {
    fn grammar(&mut self) -> Result<(), Fault> {
        loop {
            self.space();
            if self.rest().is_empty() {
                return Ok(());
            }
            let at = self.at;
            let Some(name) = self.name() else {
                return self.expected("the name of a rule");
            };
            let rule = self.rule(name, at)?;
            self.space();
            if !self.skip("::=") {
                return self.expected("::= after the name of a rule");
            }
            let body = self.alternatives(0)?;
            // The last definition of a name holds, as in llama.cpp.
            self.rules[rule].body = Some(body);
            self.rules[rule].at = at;
        }
    }

    fn alternatives(&mut self, depth: usize) -> Result<Gbnf, Fault> {
        if depth > MAX_DEPTH {
            return self.fault(format!("expected at most {MAX_DEPTH} nested groups, found more"));
        }
        let mut all = vec![self.sequence(depth)?];
        while self.skip("|") {
            all.push(self.sequence(depth)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Gbnf::Alt(all) })
    }

    fn sequence(&mut self, depth: usize) -> Result<Gbnf, Fault> {
        let mut parts = Vec::new();
        loop {
            self.space();
            if self.rest().is_empty() || self.rest().starts_with(['|', ')']) {
                break;
            }
            let Some(part) = self.part(depth)? else { break };
            let part = self.repeated(part)?;
            parts.push(part);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Gbnf::Seq(parts) })
    }

    /// Reads a part without its repetition; `None` where the next rule begins.
    fn part(&mut self, depth: usize) -> Result<Option<Gbnf>, Fault> {
        let at = self.at;
        if let Some(name) = self.name() {
            let end = self.at;
            self.space();
            let defines = self.rest().starts_with("::=");
            self.at = if defines { at } else { end };
            return if defines { Ok(None) } else { Ok(Some(Gbnf::Rule(self.rule(name, at)?))) };
        }
        let c = self.rest().chars().next().unwrap_or_default();
        let part = match c {
            '"' => self.literal()?,
            '[' => self.class()?,
            '.' => {
                self.at += 1;
                Gbnf::Chars(CharSet::all())
            }
            '(' => {
                self.at += 1;
                let inner = self.alternatives(depth + 1)?;
                if !self.skip(")") {
                    return self.expected(") at the end of a group");
                }
                inner
            }
            '<' | '!' => self.token()?,
            _ => return self.expected("a rule, a literal, a class of characters or a group"),
        };
        Ok(Some(part))
    }

    fn literal(&mut self) -> Result<Gbnf, Fault> {
        let begin = self.at;
        self.at += 1;
        let mut chars = Vec::new();
        while !self.skip("\"") {
            match self.character()? {
                Some(c) => chars.push(Gbnf::Chars(CharSet::one(c))),
                None => return Err(Fault { at: begin, what: "the literal has no end".into() }),
            }
        }
        Ok(Gbnf::Seq(chars))
    }

    fn class(&mut self) -> Result<Gbnf, Fault> {
        let begin = self.at;
        self.at += 1;
        let negated = self.skip("^");
        let mut ranges = Vec::new();
        while !self.skip("]") {
            let at = self.at;
            let no_end = || Fault { at: begin, what: "the class of characters has no end".into() };
            let first = self.character()?.ok_or_else(no_end)?;
            let mut last = first;
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.at += 1;
                last = self.character()?.ok_or_else(no_end)?;
            }
            if last < first {
                let what =
                    format!("expected a range in ascending order, found {first:?} to {last:?}");
                return Err(Fault { at, what });
            }
            ranges.push((first.into(), last.into()));
        }
        let set = CharSet::new(ranges);
        let set = if negated { set.negated() } else { set };
        if set.is_empty() {
            let what = "the class of characters is empty".into();
            return Err(Fault { at: begin, what });
        }
        Ok(Gbnf::Chars(set))
    }

    /// Reads a character of a literal or of a class; `None` at the end of the text.
    fn character(&mut self) -> Result<Option<char>, Fault> {
        let at = self.at;
        let mut rest = self.rest().chars();
        let Some(first) = rest.next() else { return Ok(None) };
        self.at += first.len_utf8();
        if first != '\\' {
            return Ok(Some(first));
        }
        let Some(escape) = rest.next() else { return Ok(None) };
        self.at += escape.len_utf8();
        let digits = match escape {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            'n' => return Ok(Some('\n')),
            'r' => return Ok(Some('\r')),
            't' => return Ok(Some('\t')),
            '\\' | '"' | '[' | ']' | '-' | '^' | '/' => return Ok(Some(escape)),
            _ => {
                let what = format!("\\{escape} is no escape; \\\\ is a backslash");
                return Err(Fault { at, what });
            }
        };
        let code =
            self.rest().get(..digits).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(code) = code.and_then(|hex| u32::from_str_radix(hex, 16).ok()) else {
            return Err(Fault {
                at,
                what: format!("expected {digits} hexadecimal digits after \\{escape}"),
            });
        };
        self.at += digits;
        let none = || Fault { at, what: format!("U+{code:04X} is not a character") };
        char::from_u32(code).map(Some).ok_or_else(none)
    }

    /// Reads `<text>`, `<[id]>`, or one of them after `!`.
    fn token(&mut self) -> Result<Gbnf, Fault> {
        let begin = self.at;
        let negated = self.skip("!");
        let wrong = |what: &str| Err(Fault { at: begin, what: what.into() });
        let inside = self.rest().strip_prefix('<').and_then(|rest| rest.split_once('>'));
        let Some((name, _)) = inside.filter(|(name, _)| !name.contains(['\n', '<'])) else {
            return wrong("expected a token as <text> or <[id]>");
        };
        let at = self.at;
        self.at += name.len() + 2;
        let id = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let name = match id.map(str::parse) {
            None => TokenName::Text(format!("<{name}>"), at),
            Some(Ok(id)) => TokenName::Id(id, at),
            Some(Err(_)) => return wrong("expected the id of a token in <[ ]>"),
        };
        Ok(Gbnf::Token { name, negated })
    }

    fn repeated(&mut self, mut part: Gbnf) -> Result<Gbnf, Fault> {
        for _ in 0..MAX_DEPTH {
            self.space();
            let (least, most) = match self.rest().chars().next() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => self.counts()?,
                _ => return Ok(part),
            };
            self.at += 1;
            part = Gbnf::Repeat { part: Box::new(part), least, most };
        }
        self.fault(format!("expected at most {MAX_DEPTH} repetitions of repetitions, found more"))
    }

    /// Reads `{m}`, `{m,}`, `{,n}` or `{m,n}` up to the closing bracket.
    fn counts(&mut self) -> Result<(u32, Option<u32>), Fault> {
        let begin = self.at;
        self.at += 1;
        let least = self.count()?;
        let most = if self.skip(",") { self.count()? } else { least };
        if !self.rest().starts_with('}') || least.is_none() && most.is_none() {
            let what = "expected a repetition such as {3}, {3,} or {3,5}".into();
            return Err(Fault { at: begin, what });
        }
        let least = least.unwrap_or(0);
        if most.is_some_and(|most| most < least) {
            let what = "expected a repetition with a maximum of at least its minimum".into();
            return Err(Fault { at: begin, what });
        }
        Ok((least, most))
    }

    fn count(&mut self) -> Result<Option<u32>, Fault> {
        self.space();
        let at = self.at;
        let rest = self.rest();
        let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
        self.at += digits.len();
        self.space();
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse() {
            Ok(count) if count <= MAX_COUNT => Ok(Some(count)),
            _ => {
                let what = format!("expected at most {MAX_COUNT} repetitions, found {digits}");
                Err(Fault { at, what })
            }
        }
    }

    fn rule(&mut self, name: &'a str, at: usize) -> Result<usize, Fault> {
        if let Some(rule) = self.names.get(name) {
            return Ok(*rule);
        }
        if self.rules.len() == MAX_RULES {
            return Err(Fault {
                at,
                what: format!("expected at most {MAX_RULES} rules, found more"),
            });
        }
        self.names.insert(name, self.rules.len());
        self.rules.push(NamedRule { name, at, body: None });
        Ok(self.rules.len() - 1)
    }

    fn name(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let name = &rest[..rest.find(|c| !fits(c)).unwrap_or(rest.len())];
        self.at += name.len();
        Some(name).filter(|name| !name.is_empty())
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found
    }

    /// Skips white space, line ends and comments.
    fn space(&mut self) {
        loop {
            let trimmed = self.rest().trim_start();
            self.at = self.text.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn expected<T>(&self, what: &str) -> Result<T, Fault> {
        match self.rest().chars().next() {
            Some(c) => self.fault(format!("expected {what}, found {c:?}")),
            None => self.fault(format!("expected {what}, found the end")),
        }
    }

    fn fault<T>(&self, what: String) -> Result<T, Fault> {
        Err(Fault { at: self.at, what })
    }
}
