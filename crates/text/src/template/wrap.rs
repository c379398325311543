//! The filters `wordwrap` and `pprint`: text in lines of a width.

use super::budget::Budget;
use super::lazy::is_list;
use super::pystr::{repr_of, str_of};
use super::strings;
use super::values::{as_int, first, invalid, options, text_of};
use fancy_regex::Regex;
use minijinja::value::ValueKind;
use minijinja::{Error, Value};
use std::sync::LazyLock;

/// White space of ASCII, at which text is wrapped.
const SPACES: &[char] = &['\t', '\n', '\x0b', '\x0c', '\r', ' '];

/// White space, dashes between words, and words up to a place where they may break.
static CHUNKS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r#"[\t\n\x0b\x0c\r ]+|(?<=[\w!"'&.,?])-{2,}(?=\w)|[^\t\n\x0b\x0c\r ]+?(?:"#,
        r#"-(?:(?<=[^\d\W]{2}-)|(?<=[^\d\W]-[\w!"'&.,?]-))(?=[^\d\W]-?[^\d\W])"#,
        r#"|(?=[\t\n\x0b\x0c\r ]|\z)|(?<=[\w!"'&.,?])(?=-{2,}\w))"#
    ))
    .ok()
});

/// `text|wordwrap(width, break_long_words, wrapstring, break_on_hyphens)`.
pub(super) fn word_wrap(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let names = ["width", "break_long_words", "wrapstring", "break_on_hyphens"];
    let [width, breaks, between, hyphens] = options(args, names)?;
    let width = width.map_or(Some(79), |width| as_int(&width)).filter(|width| *width > 0);
    let width = width.and_then(|width| usize::try_from(width).ok());
    let width = width.ok_or_else(|| invalid("wordwrap: invalid width (must be > 0)"))?;
    let flag = |flag: Option<Value>| flag.is_none_or(|flag| flag.is_true());
    let (breaks, hyphens) = (flag(breaks), flag(hyphens));
    let between = between.filter(|it| !it.is_none()).map_or(Ok("\n".into()), |it| str_of(&it))?;
    let text = str_of(first(args)?)?;
    budget.make(text.len())?;
    let mut lines = Vec::new();
    for line in strings::split_lines(&text, false) {
        let wrapped = wrap(chunks(line, hyphens)?, width, breaks, hyphens);
        budget.make(wrapped.len().saturating_mul(between.len()))?;
        lines.push(wrapped.join(&between));
    }
    Ok(Value::from(lines.join(&between)))
}

/// The pieces of a line between which it may break.
fn chunks(line: &str, hyphens: bool) -> Result<Vec<Vec<char>>, Error> {
    let mut pieces = Vec::new();
    if let Some(regex) = CHUNKS.as_ref().filter(|_| hyphens) {
        for found in regex.find_iter(line) {
            let found = found.map_err(|e| invalid(&format!("wordwrap: {e}")))?;
            pieces.push(found.as_str().chars().collect());
        }
        return Ok(pieces);
    }
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let spaces = SPACES.contains(&c);
        let end = rest.find(|c: char| SPACES.contains(&c) != spaces).unwrap_or(rest.len());
        pieces.push(rest[..end].chars().collect());
        rest = &rest[end..];
    }
    Ok(pieces)
}

fn wrap(chunks: Vec<Vec<char>>, width: usize, breaks: bool, hyphens: bool) -> Vec<String> {
    let is_blank = |chunk: &[char]| chunk.iter().all(|c| strings::is_space(*c));
    let mut lines = Vec::new();
    let mut rest: Vec<Vec<char>> = chunks.into_iter().rev().collect();
    while !rest.is_empty() {
        let (mut line, mut length) = (Vec::new(), 0);
        if !lines.is_empty() && rest.last().is_some_and(|chunk| is_blank(chunk)) {
            rest.pop();
        }
        while let Some(chunk) = rest.pop_if(|chunk| length + chunk.len() <= width) {
            length += chunk.len();
            line.push(chunk);
        }
        if let Some(chunk) = rest.last_mut().filter(|chunk| chunk.len() > width) {
            if breaks {
                let kept = chunk.split_off(broken_at(chunk, width - length, hyphens));
                line.push(std::mem::replace(chunk, kept));
            } else if line.is_empty() {
                line.extend(rest.pop());
            }
        }
        line.pop_if(|chunk| is_blank(chunk));
        if !line.is_empty() {
            lines.push(line.into_iter().flatten().collect());
        }
    }
    lines
}

/// Where a word that is longer than a line breaks, `room` characters before the end of the line.
fn broken_at(word: &[char], room: usize, hyphens: bool) -> usize {
    let end = room.min(word.len());
    let hyphen = word[..end].iter().rposition(|c| *c == '-').filter(|_| hyphens);
    match hyphen {
        Some(at) if at > 0 && word[..at].iter().any(|c| *c != '-') => at + 1,
        _ => end,
    }
}

/// Columns of a printed value, and depth of what is printed in several lines.
const COLUMNS: usize = 80;
const MAX_DEPTH: usize = 100;

/// `value|pprint`.
pub(super) fn pretty_print(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let mut printer = Printer { out: String::new(), budget };
    printer.value(first(args)?, 0, 0, 0)?;
    Ok(Value::from(printer.out))
}

/// Prints as `pprint.pformat` does.
struct Printer<'a> {
    out: String,
    budget: &'a Budget,
}

impl Printer<'_> {
    /// Prints a value at a column, so that `allowance` characters fit after it.
    fn value(
        &mut self,
        value: &Value,
        indent: usize,
        allowance: usize,
        level: usize,
    ) -> Result<(), Error> {
        let flat = flat(value, 0)?;
        self.budget.make(flat.len() + indent)?;
        let fits = flat.chars().count() + indent + allowance <= COLUMNS;
        if fits || level > MAX_DEPTH {
            self.out.push_str(&flat);
            return Ok(());
        }
        match text_of(value) {
            Some(text) => self.text(text, indent, allowance, level + 1),
            None if value.kind() == ValueKind::Map => self.map(value, indent, allowance, level + 1),
            None if is_list(value) => self.list(value, indent, allowance, level + 1),
            None => {
                self.out.push_str(&flat);
                Ok(())
            }
        }
    }

    fn line(&mut self, indent: usize) {
        self.out.push_str(",\n");
        self.out.push_str(&" ".repeat(indent));
    }

    fn map(
        &mut self,
        map: &Value,
        indent: usize,
        allowance: usize,
        level: usize,
    ) -> Result<(), Error> {
        self.out.push('{');
        let keys = sorted_keys(map)?;
        for (at, key) in keys.iter().enumerate() {
            let last = at + 1 == keys.len();
            let name = repr_of(key)?;
            self.out.push_str(&name);
            self.out.push_str(": ");
            let column = indent + 1 + name.chars().count() + 2;
            self.value(&map.get_item(key)?, column, if last { allowance + 1 } else { 1 }, level)?;
            if !last {
                self.line(indent + 1);
            }
        }
        self.out.push('}');
        Ok(())
    }

    fn list(
        &mut self,
        list: &Value,
        indent: usize,
        allowance: usize,
        level: usize,
    ) -> Result<(), Error> {
        let items: Vec<Value> = list.try_iter()?.collect();
        let (open, close) = match (list.is_tuple(), items.len()) {
            (true, 1) => ("(", ",)"),
            (true, _) => ("(", ")"),
            _ => ("[", "]"),
        };
        self.out.push_str(open);
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.line(indent + 1);
            }
            let last = at + 1 == items.len();
            self.value(item, indent + 1, if last { allowance + close.len() } else { 1 }, level)?;
        }
        self.out.push_str(close);
        Ok(())
    }

    fn text(
        &mut self,
        text: &str,
        indent: usize,
        allowance: usize,
        level: usize,
    ) -> Result<(), Error> {
        let outer = level == 1;
        let (indent, allowance) = (indent + usize::from(outer), allowance + usize::from(outer));
        let chunks = text_chunks(text, COLUMNS.saturating_sub(indent), allowance)?;
        let wrapped = outer && chunks.len() > 1;
        self.out.push_str(if wrapped { "(" } else { "" });
        self.out.push_str(&chunks.join(&format!("\n{}", " ".repeat(indent))));
        self.out.push_str(if wrapped { ")" } else { "" });
        Ok(())
    }
}

/// A long string as literals of at most `width` characters where its spaces allow.
fn text_chunks(text: &str, width: usize, allowance: usize) -> Result<Vec<String>, Error> {
    let repr = |text: &str| repr_of(&Value::from(text));
    let lines = strings::split_lines(text, true);
    let mut chunks = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let room = |last: bool| width.saturating_sub(if last { allowance } else { 0 });
        let last_line = at + 1 == lines.len();
        let whole = repr(line)?;
        if whole.chars().count() <= room(last_line) {
            chunks.push(whole);
            continue;
        }
        let mut current = String::new();
        let mut rest = *line;
        while !rest.is_empty() {
            let word = rest.find(strings::is_space).unwrap_or(rest.len());
            let spaces = rest[word..].find(|c| !strings::is_space(c)).unwrap_or(rest.len() - word);
            let (part, after) = rest.split_at(word + spaces);
            rest = after;
            let longer = format!("{current}{part}");
            if repr(&longer)?.chars().count() <= room(last_line && rest.is_empty()) {
                current = longer;
                continue;
            }
            if !current.is_empty() {
                chunks.push(repr(&current)?);
            }
            part.clone_into(&mut current);
        }
        if !current.is_empty() {
            chunks.push(repr(&current)?);
        }
    }
    Ok(chunks)
}

fn sorted_keys(map: &Value) -> Result<Vec<Value>, Error> {
    let mut keys: Vec<Value> = map.try_iter()?.collect();
    keys.sort();
    Ok(keys)
}

/// A value in one line, the keys of dictionaries in order.
fn flat(value: &Value, depth: usize) -> Result<String, Error> {
    if depth > MAX_DEPTH {
        return Err(invalid("a printed value nests too deeply"));
    }
    if value.kind() == ValueKind::Map {
        let pair = |key: &Value| {
            Ok(format!("{}: {}", repr_of(key)?, flat(&value.get_item(key)?, depth + 1)?))
        };
        let pairs = sorted_keys(value)?.iter().map(pair).collect::<Result<Vec<_>, Error>>()?;
        return Ok(format!("{{{}}}", pairs.join(", ")));
    }
    if !is_list(value) {
        return repr_of(value);
    }
    let items = value.try_iter()?.map(|item| flat(&item, depth + 1));
    let items = items.collect::<Result<Vec<_>, Error>>()?;
    Ok(match (value.is_tuple(), items.len()) {
        (true, 1) => format!("({},)", items[0]),
        (true, _) => format!("({})", items.join(", ")),
        _ => format!("[{}]", items.join(", ")),
    })
}
