//! Grammars in GBNF: answers match the grammar, and every text of the grammar is an answer.

use crate::grammar::player::{MARKED, Player, TINY, allowed, pick};
use base::Rng;
use std::collections::{HashMap, HashSet};
use text::{CompiledGrammar, GrammarSource, Thinking};

/// Grammars as people write them.
const WRITTEN: [&str; 12] = [
    // Sums line by line, in which white space may belong to either of two rules.
    r#"root   ::= (sum "=" blank atom "\n")+
sum    ::= atom ([-+*/%] atom)*
atom   ::= name | amount | "(" blank sum ")" blank
name   ::= [a-z] [a-z0-9_]* blank
amount ::= [0-9]+ ("." [0-9]+)? blank
blank  ::= [ \t\n]*
"#,
    // JSON with few spaces.
    r#"root ::= map
any ::= map | list | text | amount | ("null" | "true" | "false") gap

map ::=
  "{" gap (
    text ":" gap any
      ("," gap text ":" gap any)*
  )? "}" gap

list ::= "[" gap ( any ("," gap any)* )? "]" gap
text ::= "\"" ( # no control characters
    [^\x00-\x1F\x7F"\\] |
    "\\" ( ["\\bfnrt/] | "u" [0-9A-Fa-f]{4} )
  )* "\"" gap
amount ::= "-"? ("0" | [1-9] [0-9]{0,14}) ("." [0-9]{1,9})? ([eE] [-+]? [0-9]{1,2})? gap
gap ::= | " " | "\n" [ \t]{0,12}
"#,
    // Turns of a game.
    "root ::= \"1: \" turn \", \" turn \"\\n\" ([1-9] [0-9]? \": \" turn \", \" turn \"\\n\")*\n\
     turn ::= (foot | officer | swap) [!?]?\n\
     officer ::= [NBRQK] [a-h]? [1-8]? \"x\"? [a-h] [1-8]\n\
     foot ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBRQ])?\n\
     swap ::= \"0-0\" \"-0\"?\n",
    "# Points of a list\nroot ::= point+\n\
     point ::= (\"* \" | \"- \") [^\\r\\n\\x85\\u2028\\u2029]+ \"\\n\"\n",
    "root ::= sign+ ([ \\n] sign+)*\nsign ::= kana | han | mark\n\
     kana ::= [\\u3041-ゖァ-ヺ]\nmark ::= [。、]\nhan ::= [一-龥]\n",
    "root ::= sign+ (\" \" sign+)*\nsign ::= letter | digit | other\n\
     letter ::= [A-Za-z]\ndigit ::= [0-9]\nother ::= [-,;:'\"()\\[\\]^_]\n",
    // A language with blocks, keywords that are names too, and comments.
    r#"root ::= (function)*
function ::= kind word "(" (kind word)? ")" "{" step* "}"
kind  ::= "num" space | "text" space
word ::= [a-zA-Z_] [a-zA-Z_0-9]*
step ::=
    ( kind word space "=" space value ";" ) |
    ( word space ":=" space value ";" ) |
    ( word space "(" values? ")" ";" ) |
    ( "give" space value ";" ) |
    ( "loop" "(" test ")" "{" step* "}" ) |
    ( "when" "(" test ")" "{" step* "}" ("else" "{" step* "}")? ) |
    ( note )
test ::= value ("<=" | "<" | "==" | ">") value
value ::= product (("+" | "-") product)*
product ::= unit(("*" | "/") unit)*
unit ::= word | number | "-" unit | word "(" values? ")" | "(" space value space ")"
values ::= value ("," space value)*
number ::= [0-9]+
note ::= "--" [^\n]* "\n" | "/*" ( [^*] | ("*" [^/]) )* "*/"
space ::= ([ \t\n]+)
"#,
    // Free text before an object.
    "root ::= [^{]* object\nobject ::= \"{\" (pair (\",\" pair)*)? \"}\"\n\
     pair ::= [a-z]+ \":\" (object | [0-9]+)",
    // Recursion at the end, at the beginning and in the middle.
    "root ::= digits \"\\n\" left \"\\n\" middle\ndigits ::= [0-9] digits?\n\
     left ::= left \",\" [a-c]+ | [a-c]+\nmiddle ::= \"a\" middle \"b\" | \"ab\" | \"\"",
    "root ::= element\nelement ::= \"<\" name \">\" (text | element)* \"</\" name \">\"\n\
     name ::= [a-z]{1,3}\ntext ::= [^<]+",
    "root ::= (\"a\" | \"ab\" | \"b\" rest)* \"c\"\nrest ::= \"bc\" root | \"b\"",
    "root ::= x x\nx ::= \"(\" x* \")\" | [ab]{2,3} | \"é\\U0001F600\"? \"\\u00e9\" .",
];

/// Bytes of the longest text that the test's own matcher is given.
const MAX_MATCHED: usize = 120;

#[derive(Clone, Debug)]
enum Ast {
    Class(Vec<(char, char)>, bool),
    Call(String),
    All(Vec<Ast>),
    Any(Vec<Ast>),
    Times(Box<Ast>, usize, usize),
}

/// A reader and a matcher of GBNF that share nothing with the crate's.
struct Model {
    rules: HashMap<String, Ast>,
}

impl Model {
    fn of(text: &str) -> Self {
        let text: String =
            text.lines().map(|line| without_comment(line) + "\n").collect::<Vec<_>>().concat();
        let heads = fancy_regex::Regex::new(r"(?m)^\s*([A-Za-z0-9-]+)\s*::=").unwrap();
        let found: Vec<_> = heads.captures_iter(&text).map(|c| c.unwrap()).collect();
        let mut rules = HashMap::new();
        for (at, head) in found.iter().enumerate() {
            let end = found.get(at + 1).map_or(text.len(), |next| next.get(0).unwrap().start());
            let mut chars: Vec<char> =
                text[head.get(0).unwrap().end()..end].chars().rev().collect();
            rules.insert(head[1].to_owned(), any(&mut chars));
            assert!(chars.is_empty(), "{chars:?}");
        }
        Self { rules }
    }

    fn matches(&self, text: &str) -> bool {
        let chars: Vec<char> = text.chars().collect();
        let mut known = HashMap::new();
        // Ends of calls that call themselves grow until no round adds one.
        loop {
            let before = known.clone();
            let ends =
                self.ends(&Ast::Call("root".into()), 0, &chars, &mut known, &mut HashSet::new());
            if known == before {
                return ends.contains(&chars.len());
            }
        }
    }

    fn ends(
        &self,
        ast: &Ast,
        at: usize,
        text: &[char],
        known: &mut HashMap<(String, usize), HashSet<usize>>,
        open: &mut HashSet<(String, usize)>,
    ) -> HashSet<usize> {
        match ast {
            Ast::Class(ranges, negated) => match text.get(at) {
                Some(c) if ranges.iter().any(|(a, b)| a <= c && c <= b) != *negated => {
                    HashSet::from([at + 1])
                }
                _ => HashSet::new(),
            },
            Ast::Call(name) => {
                let key = (name.clone(), at);
                if open.insert(key.clone()) {
                    let ends = self.ends(&self.rules[name], at, text, known, open);
                    known.entry(key.clone()).or_default().extend(ends);
                }
                known.get(&key).cloned().unwrap_or_default()
            }
            Ast::All(parts) => parts.iter().fold(HashSet::from([at]), |from, part| {
                from.iter().flat_map(|at| self.ends(part, *at, text, known, open)).collect()
            }),
            Ast::Any(parts) => {
                parts.iter().flat_map(|part| self.ends(part, at, text, known, open)).collect()
            }
            Ast::Times(part, least, most) => {
                let (mut now, mut all) = (HashSet::from([at]), HashSet::new());
                for count in 0..=*most {
                    let before = all.len();
                    if count >= *least {
                        all.extend(&now);
                    }
                    if now.is_empty() || count > *least && all.len() == before {
                        break;
                    }
                    now =
                        now.iter().flat_map(|at| self.ends(part, *at, text, known, open)).collect();
                }
                all
            }
        }
    }

    /// A random text of the grammar, if chance finds a short one.
    fn text(&self, ast: &Ast, depth: usize, rng: &mut Rng) -> Option<String> {
        match ast {
            Ast::Class(ranges, false) => {
                let (a, b) = ranges[pick(rng, ranges.len())];
                let code = a as u32 + rng.below(u64::from(b as u32 - a as u32) + 1) as u32;
                char::from_u32(code).map(String::from)
            }
            Ast::Class(ranges, true) => {
                let free = |c: &char| !ranges.iter().any(|(a, b)| a <= c && c <= b);
                let all: Vec<char> = "ab1 \n{<é]".chars().filter(free).collect();
                Some(all[pick(rng, all.len())].into())
            }
            Ast::Call(_) if depth == 0 => None,
            Ast::Call(name) => self.text(&self.rules[name], depth - 1, rng),
            Ast::All(parts) => parts.iter().map(|part| self.text(part, depth, rng)).collect(),
            Ast::Any(parts) => {
                (0..6).find_map(|_| self.text(&parts[pick(rng, parts.len())], depth, rng))
            }
            Ast::Times(part, least, most) => {
                let count = least + pick(rng, (most - least).min(3) + 1);
                let texts: Option<String> =
                    (0..count).map(|_| self.text(part, depth, rng)).collect();
                if *least == 0 { Some(texts.unwrap_or_default()) } else { texts }
            }
        }
    }
}

fn without_comment(line: &str) -> String {
    let (mut quote, mut escaped, mut kept) = (None, false, String::new());
    for c in line.chars() {
        match (quote, c) {
            (None, '#') => break,
            (None, '"') => quote = Some('"'),
            (None, '[') => quote = Some(']'),
            (Some(end), c) if c == end && !escaped => quote = None,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        kept.push(c);
    }
    kept
}

/// The parsers take characters from the end of a reversed text.
fn any(text: &mut Vec<char>) -> Ast {
    let mut all = vec![Vec::new()];
    loop {
        while text.last().is_some_and(|c| c.is_whitespace()) {
            text.pop();
        }
        match text.last() {
            None | Some(')') => break,
            Some('|') => {
                text.pop();
                all.push(Vec::new());
            }
            Some('*' | '+' | '?' | '{') => {
                let counts = match text.pop().unwrap() {
                    '*' => (0, 1000),
                    '+' => (1, 1000),
                    '?' => (0, 1),
                    _ => {
                        let end = text.iter().rposition(|c| *c == '}').unwrap();
                        let inside: String = text.split_off(end + 1).into_iter().rev().collect();
                        text.pop();
                        let (least, most) = inside.split_once(',').unwrap_or((&inside, &inside));
                        (least.parse().unwrap(), most.parse().unwrap_or(1000))
                    }
                };
                let parts = all.last_mut().unwrap();
                let part = parts.pop().unwrap();
                parts.push(Ast::Times(Box::new(part), counts.0, counts.1));
            }
            _ => all.last_mut().unwrap().push(one(text)),
        }
    }
    Ast::Any(all.into_iter().map(Ast::All).collect())
}

fn one(text: &mut Vec<char>) -> Ast {
    match text.pop().unwrap() {
        '"' => {
            let mut chars = Vec::new();
            while *text.last().unwrap() != '"' {
                let c = character(text);
                chars.push(Ast::Class(vec![(c, c)], false));
            }
            text.pop();
            Ast::All(chars)
        }
        '[' => {
            let negated = text.last() == Some(&'^');
            if negated {
                text.pop();
            }
            let mut ranges = Vec::new();
            while *text.last().unwrap() != ']' {
                let first = character(text);
                let range = text.last() == Some(&'-') && text[text.len() - 2] != ']';
                let last = if range {
                    text.pop();
                    character(text)
                } else {
                    first
                };
                ranges.push((first, last));
            }
            text.pop();
            Ast::Class(ranges, negated)
        }
        '.' => Ast::Class(vec![('\0', char::MAX)], false),
        '(' => {
            let inner = any(text);
            assert_eq!(text.pop(), Some(')'));
            inner
        }
        first => {
            let mut name = String::from(first);
            while text.last().is_some_and(|c| c.is_alphanumeric() || *c == '-') {
                name.push(text.pop().unwrap());
            }
            Ast::Call(name)
        }
    }
}

fn character(text: &mut Vec<char>) -> char {
    let c = text.pop().unwrap();
    if c != '\\' {
        return c;
    }
    let digits = match text.pop().unwrap() {
        'n' => return '\n',
        't' => return '\t',
        'r' => return '\r',
        'x' => 2,
        'u' => 4,
        'U' => 8,
        c => return c,
    };
    let code: String = (0..digits).map(|_| text.pop().unwrap()).collect();
    char::from_u32(u32::from_str_radix(&code, 16).unwrap()).unwrap()
}

fn compile(player: &Player, grammar: &str) -> CompiledGrammar {
    player.compile(&GrammarSource::Gbnf(grammar.into()))
}

/// Whether the compiled grammar takes a text to its end.
fn takes(player: &Player, grammar: &CompiledGrammar, text: &str) -> bool {
    let ids = player.assets.tokenizer.encode(text, text::EncodeOptions::default()).unwrap();
    let mut matcher = grammar.start();
    for id in ids {
        let (ids, _) = allowed(&mut matcher);
        if !ids.contains(&id) {
            return false;
        }
        matcher.accept(id).unwrap();
    }
    allowed(&mut matcher).1
}

/// A random text of the compiled grammar, if chance finds a short one. Characters that close
/// something are preferred. There is always a next token or an end.
fn walk(player: &Player, grammar: &CompiledGrammar, rng: &mut Rng) -> Option<String> {
    let (mut matcher, mut ids) = (grammar.start(), Vec::new());
    for _ in 0..60 {
        if matcher.is_complete() {
            return Some(player.text(&ids));
        }
        let (all, may_end) = allowed(&mut matcher);
        if may_end && (all.is_empty() || rng.below(3) == 0) {
            return Some(player.text(&ids));
        }
        assert!(!all.is_empty(), "a dead end after {:?}", player.text(&ids));
        let bytes = |id: &&u32| player.assets.tokenizer.token_bytes(**id);
        let closes = |id: &&u32| match bytes(id) {
            [b'{'] => ids.len() % 20 == 19,
            [one] => b")}]\";:\n0".contains(one),
            _ => false,
        };
        let closing: Vec<u32> = all.iter().filter(closes).copied().collect();
        let from = if closing.is_empty() || rng.below(4) == 0 { &all } else { &closing };
        let id = from[pick(rng, from.len())];
        matcher.accept(id).unwrap();
        ids.push(id);
    }
    None
}

/// Checks random walks and random texts of a grammar. Returns how many walks came to an end.
fn check_both_ways(grammar: &str, walks: u64, texts: u64) -> usize {
    let (compiled, model) = (compile(&TINY, grammar), Model::of(grammar));
    let mut walked = 0;
    for seed in 0..walks {
        let text = walk(&TINY, &compiled, &mut Rng::new(seed));
        // The matcher is simple, and slow.
        if let Some(text) = text.filter(|text| text.len() <= MAX_MATCHED) {
            assert!(model.matches(&text), "{text:?} and {grammar}");
            walked += 1;
        }
    }
    let mut found = 0;
    for seed in 0..texts {
        let mut rng = Rng::new(seed);
        let Some(text) = model.text(&Ast::Call("root".into()), 12, &mut rng) else { continue };
        if text.len() <= MAX_MATCHED {
            assert!(model.matches(&text), "the test's own {text:?} and {grammar}");
        }
        assert!(takes(&TINY, &compiled, &text), "{text:?} and {grammar}");
        found += 1;
    }
    assert!(found > 0, "{grammar}");
    walked
}

#[test]
fn answers_match_grammars_as_people_write_them_and_every_text_can_be_one() {
    let walked: usize = WRITTEN.iter().map(|grammar| check_both_ways(grammar, 20, 40)).sum();
    assert!(walked > 60, "{walked}");
}

/// A random part over the letters a and b, and the rules r0 to r3.
fn part(depth: usize, rng: &mut Rng) -> String {
    let pieces = ["\"a\"", "\"b\"", "\"ab\"", "\"ba\"", "[ab]", "\"\"", "r1", "r2", "r3", "[ab]+"];
    if depth == 0 {
        return pieces[pick(rng, pieces.len())].into();
    }
    let mut inner = || part(depth - 1, rng);
    match (inner(), inner(), rng.below(6)) {
        (a, b, 0 | 1) => format!("{a} {b}"),
        (a, b, 2) => format!("({a} | {b})"),
        (a, _, 3) => format!("({a})*"),
        (a, _, 4) => format!("({a}){{1,2}}"),
        (a, _, _) => format!("({a})?"),
    }
}

#[test]
fn random_grammars_keep_their_language() {
    let mut found = 0;
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let rules: Vec<String> = (0..4)
            .map(|at| {
                let name = if at == 0 { "root".into() } else { format!("r{at}") };
                format!("{name} ::= {} | \"c\"\n", part(2, &mut rng))
            })
            .collect();
        let grammar = rules.concat();
        let (compiled, model) = (compile(&TINY, &grammar), Model::of(&grammar));
        for number in 0..63u32 {
            // All texts of up to five letters: a leading one, then a bit for each letter.
            let bits = format!("{:b}", number + 1);
            let text: String =
                bits[1..].chars().map(|bit| if bit == '0' { 'a' } else { 'b' }).collect();
            let expected = model.matches(&text);
            assert_eq!(takes(&TINY, &compiled, &text), expected, "{text:?} and {grammar}");
            found += usize::from(expected);
        }
    }
    assert!(found > 500, "{found}");
}

#[test]
fn faults_are_named_by_line_and_column() {
    let check = |grammar: &str, message: &str| {
        let source = GrammarSource::Gbnf(grammar.into());
        let error = TINY.compiler.compile(&source, Thinking::None).unwrap_err().to_string();
        assert_eq!(error, format!("grammar: {message}"), "{grammar}");
    };
    check("", "line 1, column 1: expected a rule named root, found none");
    check("a ::= \"x\"", "line 1, column 1: expected a rule named root, found none");
    check("root ::= \"é\" missing", "line 1, column 14: the rule missing is not defined");
    check("root ::= \"x\"\n\nb ::= [a", "line 3, column 7: the class of characters has no end");
    check("root ::= \"x\n", "line 1, column 10: the literal has no end");
    check("root ::= (\"x\"", "line 1, column 14: expected ) at the end of a group, found the end");
    check("root ::= \"x\")", "line 1, column 13: expected the name of a rule, found ')'");
    check("root \"x\"", "line 1, column 6: expected ::= after the name of a rule, found '\"'");
    check("root ::= \"\\q\"", "line 1, column 11: \\q is no escape; \\\\ is a backslash");
    check("root ::= \"\\u12\"", "line 1, column 11: expected 4 hexadecimal digits after \\u");
    check("root ::= \"\\uD800\"", "line 1, column 11: U+D800 is not a character");
    check(
        "root ::= [z-a]",
        "line 1, column 11: expected a range in ascending order, found 'z' to 'a'",
    );
    check("root ::= []", "line 1, column 10: the class of characters is empty");
    check(
        "root ::= \"x\"{2",
        "line 1, column 13: expected a repetition such as {3}, {3,} or {3,5}",
    );
    check(
        "root ::= \"x\"{9999}",
        "line 1, column 14: expected at most 2000 repetitions, found 9999",
    );
    check("root ::= \"x\" root", "line 1, column 1: the rule root matches no text that ends");
    check("root ::= \"x\" <[99999]>", "line 1, column 14: the vocabulary has no such token");
    check("root ::= <no-such>", "line 1, column 10: the vocabulary has no such token");
    check(
        "root ::= *",
        "line 1, column 10: expected a rule, a literal, a class of characters or a group, found '*'",
    );
}

#[test]
fn tokens_are_named_by_id_or_text() {
    let id = MARKED.assets.tokenizer.token_to_id("<tool_call>").unwrap();
    for name in ["<tool_call>".to_owned(), format!("<[{id}]>")] {
        let grammar = compile(&MARKED, &format!("root ::= \"a\" {name} !{name} [0-9]"));
        let (ids, _) = MARKED.play(&grammar, &mut Rng::new(1));
        assert_eq!(ids.iter().filter(|other| **other == id).count(), 1, "{ids:?}");
        assert_eq!(ids[1], id);
        assert!(MARKED.text(&ids[3..]).parse::<u8>().is_ok());
    }
}

#[test]
fn hostile_grammars_are_refused_or_cheap() {
    let doubling: String = (0..40).map(|at| format!("r{at} ::= r{0} r{0}\n", at + 1)).collect();
    let chain: String = (0..1900).map(|at| format!("r{at} ::= \"x\"? r{}\n", at + 1)).collect();
    let words: String = (0..3000).map(|at| format!("\"word{at}\" | ")).collect();
    let cycle: String =
        (0..300).map(|at| format!("r{at} ::= [a-z] r{} | \"x\" r0 \"y\"\n", at + 1)).collect();
    for grammar in [
        format!("root ::= r0\n{doubling}r40 ::= \"x\""),
        format!("root ::= r0\n{chain}r1900 ::= \"x\""),
        format!("root ::= {words} \"x\""),
        format!("root ::= ({words} \"x\" root)*"),
        format!("root ::= r0\n{cycle}r300 ::= \"x\""),
        format!("root ::= {}\"x\"{}", "(".repeat(50_000), ")".repeat(50_000)),
        format!("root ::= \"x\"{}", "*".repeat(100_000)),
        format!("root ::= \"{}\" root?", "x".repeat(100_000)),
        format!("root ::= [{}]", "a-c".repeat(30_000)),
        "root ::= root | \"x\" | root root | \"\"".into(),
        "root ::= ((\"\")* | root*)* \"x\"".into(),
        "root ::= (((\"x\"{2000}){2000}){2000} root)?".into(),
        "x".repeat(1 << 20),
    ] {
        let began = std::time::Instant::now();
        let source = GrammarSource::Gbnf(grammar);
        if let Ok(compiled) = TINY.compiler.compile(&source, Thinking::None) {
            let mut matcher = compiled.start();
            let _ = matcher.mask(|_| {});
        }
        assert!(began.elapsed().as_secs() < 120, "{:.100}", format!("{source:?}"));
    }
    for seed in 0..500 {
        let mut rng = Rng::new(seed);
        let pieces = [
            "root ::=", "\n", "a", "\"b\"", "[^c-d]", "(", ")", "|", "*", "a ::=", "{", "}", "[",
            "]", "<[1]>", "é", "\\", "!", "\"", ".", "{3,}", "+", "?", "#",
        ];
        let text: String =
            (0..rng.below(30)).map(|_| pieces[pick(&mut rng, pieces.len())]).collect();
        let _ = TINY.compiler.compile(&GrammarSource::Gbnf(text), Thinking::None);
    }
}

#[test]
fn a_grammar_of_either_notation_is_told_by_its_rules() {
    let gbnf =
        |text: &str| matches!(GrammarSource::of_grammar(text.into()), GrammarSource::Gbnf(_));
    assert!(gbnf("root ::= \"x\"") && gbnf("# a\n  my-rule::= \"x\""));
    assert!(!gbnf("start: \"a ::= b\"") && !gbnf("// a ::= b\nstart: /x/"));
}
