//! Templates in the spelling of the template engine.
//!
//! The grammar of Jinja2 has more than that of the engine: escapes in strings, a plus before a
//! value, tuples without parentheses, `{% print %}`, and blocks of the environment of Hugging Face.
//! What it has is written here as the engine reads it, line by line as it was.

use super::literals;

/// The function that `{% print %}` becomes a call of, in a `do` tag.
pub(super) const PRINT: &str = "__print";

/// Words after which a plus has one operand.
const BEFORE_OPERANDS: [&str; 12] =
    ["if", "elif", "in", "and", "or", "not", "else", "is", "print", "do", "filter", "recursive"];

/// Rewrites a template, or says what is wrong with it, and in which line.
pub(super) fn normalize(source: &str) -> Result<String, String> {
    let lines = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(lines.len());
    let mut rest = lines.as_str();
    while let Some(at) = next_tag(rest) {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let place =
            |problem: String| format!("{problem} (in chat:{})", 1 + out.matches('\n').count());
        let (text, length) = match &tag[..2] {
            "{#" => comment(tag),
            "{{" => expression(tag).map_err(place)?,
            _ => raw(tag).map_or_else(|| block(tag), Ok).map_err(place)?,
        };
        out.push_str(&text);
        rest = &tag[length..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The place of the next `{{`, `{%` or `{#`.
fn next_tag(text: &str) -> Option<usize> {
    let braces = text.match_indices('{').map(|(at, _)| at);
    { braces }.find(|at| matches!(text.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')))
}

fn comment(tag: &str) -> (String, usize) {
    let length = tag.find("#}").map_or(tag.len(), |at| at + 2);
    (tag[..length].to_owned(), length)
}

/// A `raw` block up to its end tag. The engine drops a line end after the opening tag, which Jinja2
/// keeps.
fn raw(tag: &str) -> Option<(String, usize)> {
    let open = lone_word(&tag[2..], "raw")?;
    let open = 2 + open + 2;
    let length = tag[open..].find("endraw").map_or(tag.len(), |at| open + at);
    let (head, body) = tag[..length].split_at(open);
    let keeps = !head.ends_with("-%}") && body.starts_with('\n');
    Some((format!("{head}{}{body}", if keeps { "\n" } else { "" }), length))
}

/// The place of the next `%}` if `word` is the only one before it.
fn lone_word(tag: &str, word: &str) -> Option<usize> {
    let close = tag.find("%}")?;
    let body = tag[..close].strip_prefix(['-', '+']).unwrap_or(&tag[..close]);
    let body = body.strip_suffix(['-', '+']).unwrap_or(body);
    (body.trim() == word).then_some(close)
}

/// Rewrites a `{{ }}` tag, and returns its length.
fn expression(tag: &str) -> Result<(String, usize), String> {
    let Some(mut lexed) = Lexed::read(tag, "}}")? else { return Ok((tag.to_owned(), tag.len())) };
    lexed.plus_signs();
    lexed.parenthesize(0..lexed.tokens.len());
    Ok(lexed.written())
}

/// Rewrites a `{% %}` tag, and returns its length.
fn block(tag: &str) -> Result<(String, usize), String> {
    let Some(mut lexed) = Lexed::read(tag, "%}")? else { return Ok((tag.to_owned(), tag.len())) };
    let Some(first) = lexed.tokens.iter().position(|token| !token.is_space()) else {
        return Ok(lexed.written());
    };
    let all = first + 1..lexed.tokens.len();
    lexed.plus_signs();
    match lexed.tokens[first].text.as_str() {
        // For rendering, what the model wrote is only a scope.
        "generation" if lexed.ends_at(first) => lexed.tokens[first].text = "with".into(),
        "endgeneration" if lexed.ends_at(first) => lexed.tokens[first].text = "endwith".into(),
        "if" | "elif" => lexed.parenthesize(all),
        "for" => {
            if let Some(iterated) = lexed.iterated() {
                lexed.parenthesize(iterated);
            }
        }
        "print" => {
            lexed.tokens[first].text = format!("do {PRINT}(");
            lexed.tokens.push(SourceToken::new(TokenKind::Sign, ")"));
        }
        _ => {}
    }
    Ok(lexed.written())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    Space,
    Literal,
    Word,
    Sign,
}

struct SourceToken {
    kind: TokenKind,
    text: String,
    /// Brackets around it.
    depth: usize,
}

impl SourceToken {
    fn new(kind: TokenKind, text: &str) -> Self {
        SourceToken { kind, text: text.to_owned(), depth: 0 }
    }

    fn is_space(&self) -> bool {
        self.kind == TokenKind::Space
    }

    fn is_outside(&self, kind: TokenKind, text: &str) -> bool {
        self.depth == 0 && self.kind == kind && self.text == text
    }
}

/// The tokens of a tag.
struct Lexed<'a> {
    /// The brackets, and the signs of white space beside them.
    open: &'a str,
    close: &'a str,
    tokens: Vec<SourceToken>,
    length: usize,
}

impl<'a> Lexed<'a> {
    /// Reads a tag up to its closing brackets; `None` if there are none.
    fn read(tag: &'a str, end: &str) -> Result<Option<Self>, String> {
        let signed = tag[2..].starts_with(['-', '+']);
        let open = if signed { &tag[..3] } else { &tag[..2] };
        let (mut at, mut depth, mut tokens) = (open.len(), 0usize, Vec::new());
        while at < tag.len() {
            let rest = &tag[at..];
            let unsigned = rest.strip_prefix(['-', '+']).unwrap_or(rest);
            if depth == 0 && unsigned.starts_with(end) {
                let close = &rest[..rest.len() - unsigned.len() + end.len()];
                let length = at + close.len();
                return Ok(Some(Lexed { open, close, tokens, length }));
            }
            let Some((kind, length)) = token(rest) else { return Ok(None) };
            let text = &rest[..length];
            depth -= usize::from(matches!(text, ")" | "]" | "}")).min(depth);
            let text = match kind {
                TokenKind::Literal => literal(text)?,
                _ => text.to_owned(),
            };
            tokens.push(SourceToken { kind, depth, text });
            depth += usize::from(kind == TokenKind::Sign && rest.starts_with(['(', '[', '{']));
            at += length;
        }
        Ok(None)
    }

    /// Whether the token at `at` is the last one.
    fn ends_at(&self, at: usize) -> bool {
        self.tokens[at + 1..].iter().all(SourceToken::is_space)
    }

    /// A plus before its only operand is a minus twice.
    fn plus_signs(&mut self) {
        let mut operand = true;
        for token in self.tokens.iter_mut().filter(|token| !token.is_space()) {
            let before = operand;
            operand = match token.kind {
                TokenKind::Sign => !matches!(&*token.text, ")" | "]" | "}"),
                TokenKind::Word => BEFORE_OPERANDS.contains(&&*token.text),
                _ => false,
            };
            if before && token.kind == TokenKind::Sign && token.text == "+" {
                token.text = "- -".into();
            }
        }
    }

    /// What a `for` tag iterates.
    fn iterated(&self) -> Option<std::ops::Range<usize>> {
        let is_word = |token: &SourceToken, text: &str| token.is_outside(TokenKind::Word, text);
        let start = 1 + self.tokens.iter().position(|token| is_word(token, "in"))?;
        let rest = &self.tokens[start..];
        let ends = |token: &SourceToken| is_word(token, "if") || is_word(token, "recursive");
        let end = rest.iter().position(ends);
        Some(start..end.map_or(self.tokens.len(), |end| start + end))
    }

    /// Puts a tuple in `range` into parentheses.
    fn parenthesize(&mut self, range: std::ops::Range<usize>) {
        let comma = |token: &SourceToken| token.is_outside(TokenKind::Sign, ",");
        if self.tokens[range.clone()].iter().any(comma) {
            self.tokens.insert(range.end, SourceToken::new(TokenKind::Sign, ") "));
            self.tokens.insert(range.start, SourceToken::new(TokenKind::Sign, " ("));
        }
    }

    fn written(&self) -> (String, usize) {
        let texts = self.tokens.iter().map(|token| token.text.as_str());
        let all = [self.open].into_iter().chain(texts).chain([self.close]);
        (all.collect(), self.length)
    }
}

/// The kind and length of the next token; `None` if a string has no end.
fn token(text: &str) -> Option<(TokenKind, usize)> {
    let first = text.chars().next()?;
    let run = |part: fn(char) -> bool| text.find(|c| !part(c)).unwrap_or(text.len());
    Some(match first {
        c if c.is_whitespace() => (TokenKind::Space, run(char::is_whitespace)),
        '"' | '\'' => (TokenKind::Literal, literal_length(text, first)?),
        c if is_word(c) => (TokenKind::Word, run(is_word)),
        c => (TokenKind::Sign, c.len_utf8()),
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn literal_length(text: &str, quote: char) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// A literal as the engine reads it; the line ends that it has left out follow it.
fn literal(text: &str) -> Result<String, String> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    let value = literals::value(&text[1..text.len() - 1])?;
    Ok(literals::written(&value) + &"\n".repeat(text.matches('\n').count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        assert_eq!(normalize(source).unwrap(), expected, "{source}");
    }

    #[test]
    fn what_the_engine_reads_stays() {
        for source in [
            "{{- a + b -}} {%+ if x -%}{# {{ +1, 2 }} #}{% raw %}{{ +n }}{% endraw %}",
            "{{ {'a': {}}['a'] }}{% set a, b = 1, 2 %}{{ f(1, 2)[a:b] }}{{+ s }}",
            "{% for a, b in x.items() if a, b %}{{ 'it' \"s\" }}{% endfor %}",
            "no tags { { } } {",
            "{{ 'unfinished",
        ] {
            check(source, source);
        }
    }

    #[test]
    fn what_only_jinja_reads_is_rewritten() {
        check(
            "{{ +n }}{{ a+ +b }}{{ [+1, x and +y] }}",
            "{{ - -n }}{{ a+ - -b }}{{ [- -1, x and - -y] }}",
        );
        check("{{ 1,2 }}{% for x in 1,2 if +x %}", "{{ ( 1,2 ) }}{% for x in ( 1,2 ) if - -x %}");
        check("{% print a, b -%}", "{% do __print( a, b )-%}");
        check("{%- generation -%}x{% endgeneration %}", "{%- with -%}x{% endwith %}");
        check(r"{{ '\/' }}", r#"{{ "\\/" }}"#);
        check("{{ 'a\\\nb' }}\n", "{{ \"ab\"\n }}\n");
        check("{% raw %}\nx{% endraw %}", "{% raw %}\n\nx{% endraw %}");
        check("{%- raw -%}\nx{% endraw %}", "{%- raw -%}\nx{% endraw %}");
        check("a\r\nb\rc", "a\nb\nc");
    }

    #[test]
    fn broken_strings_are_errors_that_name_their_line() {
        assert!(normalize("\n{{ '\\x' }}").unwrap_err().contains("chat:2"));
    }
}
