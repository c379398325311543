//! The choice of lexemes: parts that are matched by one regular expression each.
//!
//! The matcher takes the longest text of all lexemes that are allowed somewhere, and knows no way
//! back. A grammar over characters keeps its language if no lexeme that is allowed beside another
//! continues a text of the other with a character that may come after it. Lexemes start as large
//! as they can be; one that continues another in this way is divided, down to single characters.

use super::automaton::{CharAutomaton, Edges, Ends};
use super::char_set::CharSet;
use super::graph::{GraphPart, PartGraph, PartId};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Most places of lexemes in a grammar.
const MAX_SITES: usize = 5000;
/// Most places of which all pairs are looked at.
const MAX_PAIRED_SITES: usize = 500;
/// Steps of all comparisons of lexemes.
const MAX_STEPS: usize = 20_000_000;
/// Bytes of all regular expressions.
const MAX_REGEX_BYTES: usize = 1 << 20;
/// Most pairs of positions that follow each other, in all lexemes and between them.
const MAX_EDGES: usize = 1 << 20;
const TOO_LARGE: &str = "the grammar is too large";

/// The lexemes of a grammar.
#[derive(Debug, Default)]
pub(super) struct LexemeTable {
    /// The number of the lexeme of a part.
    pub of_part: HashMap<PartId, usize>,
    /// The lexemes as regular expressions.
    pub regexes: Vec<String>,
    /// Whether a lexeme can be empty, in which case it may be left out.
    pub nullable: Vec<bool>,
    /// The rules that are no part of a lexeme.
    pub rules: Vec<usize>,
    automata: Vec<CharAutomaton>,
    numbers: HashMap<String, usize>,
}

/// A place in a grammar where a lexeme or a token is.
type Site = Option<usize>;

/// Returns lexemes with which the grammar keeps its language.
///
/// # Errors
/// If the grammar is too large or too ambiguous for that.
pub(super) fn lexemes(graph: &PartGraph, root: usize) -> Result<LexemeTable, String> {
    let (divided, table) = (HashSet::new(), LexemeTable::default());
    let mut chooser = LexemeChooser { graph, divided, table, bytes: 0, edges: 0 };
    let mut fuel = MAX_STEPS;
    loop {
        let sites = chooser.sites(root)?;
        let conflicts = sites.conflicts(&chooser.table.automata, &mut fuel)?;
        if conflicts.is_empty() {
            return Ok(chooser.table);
        }
        for (part, lexeme) in &chooser.table.of_part {
            if conflicts.contains(lexeme) {
                chooser.divided.insert(*part);
            }
        }
    }
}

struct LexemeChooser<'a> {
    graph: &'a PartGraph,
    /// Regular parts that are no lexemes.
    divided: HashSet<PartId>,
    table: LexemeTable,
    /// Bytes of regular expressions, and edges of their automata.
    bytes: usize,
    edges: usize,
}

/// The places of lexemes and how they follow each other.
#[derive(Default)]
struct Sites {
    lexemes: Vec<Site>,
    of_part: HashMap<PartId, Ends>,
    first: BTreeSet<u32>,
    edges: Edges,
}

impl LexemeChooser<'_> {
    /// Finds the lexemes, and how they follow each other.
    fn sites(&mut self, root: usize) -> Result<Sites, String> {
        self.table.of_part.clear();
        self.table.rules = vec![root];
        let mut sites = Sites::default();
        let mut found = HashSet::from([root]);
        let mut at = 0;
        while let Some(&rule) = self.table.rules.get(at) {
            at += 1;
            let mut uses = Vec::new();
            self.find(self.graph.body(rule), &mut sites, &mut uses)?;
            self.table.rules.extend(uses.into_iter().filter(|rule| found.insert(*rule)));
        }
        // Each rule after those that it uses, so that few rounds are needed.
        let mut ends = vec![Ends::default(); self.graph.bodies.len()];
        let inner = |rule: &usize| found.contains(rule);
        let order: Vec<usize> = self.graph.order.iter().copied().filter(inner).collect();
        loop {
            let before = ends.clone();
            for rule in &order {
                ends[*rule] = self.ends(self.graph.body(*rule), &ends, &mut sites);
                if sites.edges.count() > MAX_EDGES {
                    return Err(TOO_LARGE.into());
                }
            }
            if ends == before {
                break;
            }
        }
        sites.first = std::mem::take(&mut ends[root].first);
        Ok(sites)
    }

    /// Adds the lexemes of a part to the table and to `sites`, and the rules that it uses to
    /// `uses`.
    fn find(
        &mut self,
        part: PartId,
        sites: &mut Sites,
        uses: &mut Vec<usize>,
    ) -> Result<(), String> {
        if self.graph.is_empty(part) || sites.of_part.contains_key(&part) {
            return Ok(());
        }
        let lexeme = self.graph.facts[part].regular && !self.divided.contains(&part);
        match &self.graph.parts[part] {
            GraphPart::Rule(rule) if !lexeme => uses.push(*rule),
            GraphPart::Seq(parts) | GraphPart::Alt(parts) if !lexeme => {
                for part in parts {
                    self.find(*part, sites, uses)?;
                }
            }
            GraphPart::Repeat { part, .. } if !lexeme => self.find(*part, sites, uses)?,
            _ => {
                let number = if lexeme { Some(self.lexeme(part)?) } else { None };
                sites.lexemes.push(number);
                let mut ends = sites.edges.position();
                ends.nullable = lexeme && self.graph.facts[part].nullable;
                sites.of_part.insert(part, ends);
                if sites.lexemes.len() > MAX_SITES {
                    return Err(format!("expected at most {MAX_SITES} lexemes, found more"));
                }
            }
        }
        Ok(())
    }

    /// Returns the number of the lexeme that matches a part.
    fn lexeme(&mut self, part: PartId) -> Result<usize, String> {
        let mut inner = part;
        while let GraphPart::Rule(rule) = self.graph.parts[inner] {
            inner = self.graph.body(rule);
        }
        let mut regex = String::new();
        write_regex(self.graph, inner, &mut regex);
        self.bytes += regex.len();
        if self.bytes > MAX_REGEX_BYTES {
            return Err(TOO_LARGE.into());
        }
        let table = &mut self.table;
        let number = *table.numbers.entry(regex.clone()).or_insert(table.regexes.len());
        if number == table.regexes.len() {
            table.regexes.push(regex);
            table.nullable.push(self.graph.facts[inner].nullable);
            let automaton = CharAutomaton::of(self.graph, inner);
            self.edges += automaton.edges.count();
            table.automata.push(automaton);
        }
        table.of_part.insert(part, number);
        if self.edges > MAX_EDGES {
            return Err(TOO_LARGE.into());
        }
        Ok(number)
    }

    /// Returns the ends of a part by those of rules, and adds the edges.
    fn ends(&self, part: PartId, rules: &[Ends], sites: &mut Sites) -> Ends {
        if self.graph.is_empty(part) {
            return Ends::empty();
        }
        if let Some(ends) = sites.of_part.get(&part) {
            return ends.clone();
        }
        match &self.graph.parts[part] {
            GraphPart::Rule(rule) => rules[*rule].clone(),
            GraphPart::Alt(parts) => parts
                .iter()
                .fold(Ends::default(), |all, part| all.or(self.ends(*part, rules, sites))),
            GraphPart::Seq(parts) => parts.iter().fold(Ends::empty(), |all, part| {
                let next = self.ends(*part, rules, sites);
                all.then(next, &mut sites.edges)
            }),
            GraphPart::Repeat { part, least, most } => {
                let mut ends = self.ends(*part, rules, sites);
                if *most != Some(1) {
                    sites.edges.connect(&ends.last, &ends.first);
                }
                ends.nullable |= *least == 0;
                ends
            }
            GraphPart::Chars(_) | GraphPart::Token(_) => unreachable!("these are sites"),
        }
    }
}

impl Sites {
    /// Returns the lexemes that continue a text of another that is allowed beside them with a
    /// character that may come after the other.
    fn conflicts(
        &self,
        automata: &[CharAutomaton],
        fuel: &mut usize,
    ) -> Result<HashSet<usize>, String> {
        let mut compared: HashMap<(usize, usize), (bool, CharSet)> = HashMap::new();
        let after: Vec<CharSet> =
            self.edges.next.iter().map(|next| self.begins(next, automata)).collect();
        let mut conflicts = HashSet::new();
        let mut pairs = Pairs::new(self);
        while let Some((a, b)) = pairs.next() {
            let both = match (self.lexemes[a as usize], self.lexemes[b as usize]) {
                (Some(one), Some(other)) => {
                    let (common, continues) = match compared.entry((one, other)) {
                        Entry::Occupied(known) => known.into_mut(),
                        Entry::Vacant(new) => {
                            let result = automata[one].compare(&automata[other], fuel);
                            new.insert(result.ok_or("the grammar is too ambiguous")?)
                        }
                    };
                    if continues.meets(&after[a as usize]) {
                        conflicts.insert(other);
                    }
                    *common
                }
                (one, other) => one == other,
            };
            if both {
                pairs.allow(&self.edges.next[a as usize], &self.edges.next[b as usize]);
            }
        }
        Ok(conflicts)
    }

    /// Returns the characters with which the lexemes of `sites` begin.
    fn begins(&self, sites: &BTreeSet<u32>, automata: &[CharAutomaton]) -> CharSet {
        let lexemes: BTreeSet<usize> =
            sites.iter().filter_map(|site| self.lexemes[*site as usize]).collect();
        let ranges = lexemes.iter().flat_map(|at| automata[*at].begins.ranges().to_vec());
        CharSet::new(ranges.collect())
    }
}

/// Pairs of sites that are allowed beside each other; all pairs, where there are many sites.
struct Pairs {
    seen: HashSet<(u32, u32)>,
    open: Vec<(u32, u32)>,
    /// The pairs that are left, where all are taken.
    all: Option<Box<dyn Iterator<Item = (u32, u32)>>>,
}

impl Pairs {
    fn new(sites: &Sites) -> Self {
        let mut pairs = Self { seen: HashSet::new(), open: Vec::new(), all: None };
        let count = sites.lexemes.len() as u32;
        if sites.lexemes.len() > MAX_PAIRED_SITES {
            let of = move |a: u32| (0..count).map(move |b| (a, b));
            pairs.all = Some(Box::new((0..count).flat_map(of)));
        } else {
            pairs.allow(&sites.first, &sites.first);
        }
        pairs
    }

    fn next(&mut self) -> Option<(u32, u32)> {
        match &mut self.all {
            Some(all) => all.next(),
            None => self.open.pop(),
        }
    }

    fn allow(&mut self, first: &BTreeSet<u32>, second: &BTreeSet<u32>) {
        if self.all.is_some() {
            return;
        }
        for &a in first {
            let new = second.iter().map(|&b| (a, b)).filter(|pair| self.seen.insert(*pair));
            self.open.extend(new);
        }
    }
}

/// Writes a regular part as a regular expression.
fn write_regex(graph: &PartGraph, part: PartId, out: &mut String) {
    match &graph.parts[part] {
        GraphPart::Chars(set) => write_class(set, out),
        GraphPart::Token(_) => unreachable!("regular parts have no tokens"),
        GraphPart::Rule(rule) => write_regex(graph, graph.body(*rule), out),
        GraphPart::Seq(parts) => parts.iter().for_each(|part| write_regex(graph, *part, out)),
        GraphPart::Alt(parts) => {
            for (at, part) in parts.iter().enumerate() {
                out.push_str(if at == 0 { "(?:" } else { "|" });
                write_regex(graph, *part, out);
            }
            out.push(')');
        }
        GraphPart::Repeat { part, least, most } => {
            out.push_str("(?:");
            write_regex(graph, *part, out);
            out.push(')');
            out.push_str(&counts(*least, *most));
        }
    }
}

/// Returns how often something is repeated.
pub(super) fn counts(least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => "*".into(),
        (1, None) => "+".into(),
        (0, Some(1)) => "?".into(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

fn write_class(set: &CharSet, out: &mut String) {
    if let [(c, last)] = set.ranges()
        && c == last
        && let Some(c) = char::from_u32(*c).filter(char::is_ascii_alphanumeric)
    {
        return out.push(c);
    }
    out.push('[');
    for (first, last) in set.ranges() {
        out.push_str(&format!("\\x{{{first:X}}}"));
        if first != last {
            out.push_str(&format!("-\\x{{{last:X}}}"));
        }
    }
    out.push(']');
}
