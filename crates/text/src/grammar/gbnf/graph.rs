//! The rules that a grammar uses, with what is known of each part.
//!
//! Rules that call only themselves, at their end or at their beginning, become repetitions, and
//! what no text can match is left out. Parts that are regular are grouped, so that each group can
//! become one lexeme.

use super::char_set::CharSet;
use super::syntax::{Fault, Gbnf, GbnfRules, TokenName};
use std::collections::HashSet;

/// Most character positions of a regular expression, and its depth.
const MAX_SIZE: u32 = 1000;
const MAX_HEIGHT: u32 = 200;

/// Index of a part.
pub(super) type PartId = usize;

/// A part of a rule.
#[derive(Debug)]
pub(super) enum GraphPart {
    Chars(CharSet),
    /// A token, as Lark has it.
    Token(String),
    Rule(usize),
    Seq(Vec<PartId>),
    Alt(Vec<PartId>),
    Repeat {
        part: PartId,
        least: u32,
        most: Option<u32>,
    },
}

/// What is known of a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartFacts {
    /// Whether the part is a regular expression of moderate size.
    pub regular: bool,
    /// Whether a regular part matches the empty text.
    pub nullable: bool,
    /// Character positions, and depth.
    pub size: u32,
    height: u32,
}

/// The parts of all rules.
#[derive(Debug)]
pub(super) struct PartGraph {
    pub parts: Vec<GraphPart>,
    pub facts: Vec<PartFacts>,
    /// The bodies of rules that the root uses.
    pub bodies: Vec<Option<PartId>>,
    /// The rules that the root uses, each after the rules that it uses itself where that is
    /// possible.
    pub order: Vec<usize>,
}

impl PartGraph {
    /// Builds the graph of `rules`; `token` writes a token as Lark has it.
    ///
    /// # Errors
    /// If the root matches no text that ends, a rule is not supported, or `token` fails.
    pub fn build(
        rules: &GbnfRules,
        token: &dyn Fn(&TokenName, bool) -> Result<String, Fault>,
    ) -> Result<Self, Fault> {
        let used: Vec<HashSet<usize>> = rules.bodies.iter().map(used).collect();
        let order = order(&used, rules.root);
        let productive = productive(rules, &order);
        if !productive[rules.root] {
            let what = "the rule root matches no text that ends".into();
            return Err(Fault { at: rules.places[rules.root], what });
        }
        let bodies = vec![None; rules.bodies.len()];
        let graph = Self { parts: Vec::new(), facts: Vec::new(), bodies, order };
        let mut builder = GraphBuilder { graph, productive, token };
        for rule in builder.graph.order.clone() {
            if builder.productive[rule] {
                let calls_itself = used[rule].contains(&rule);
                let unrolled = calls_itself.then(|| unrolled(&rules.bodies[rule], rule)).flatten();
                let body = builder.add(unrolled.as_ref().unwrap_or(&rules.bodies[rule]))?;
                builder.graph.bodies[rule] = Some(body);
            }
        }
        Ok(builder.graph)
    }

    /// Returns the body of a rule that is used.
    pub fn body(&self, rule: usize) -> PartId {
        self.bodies[rule].expect("rules that match nothing are left out")
    }

    /// Whether the part matches the empty text alone.
    pub fn is_empty(&self, part: PartId) -> bool {
        self.facts[part].regular && self.facts[part].size == 0
    }

    fn push(&mut self, part: GraphPart) -> PartId {
        self.facts.push(self.facts_of(&part));
        self.parts.push(part);
        self.parts.len() - 1
    }

    fn facts_of(&self, part: &GraphPart) -> PartFacts {
        let of = |parts: &[PartId]| parts.iter().map(|part| self.facts[*part]).collect::<Vec<_>>();
        let not = PartFacts { regular: false, nullable: false, size: u32::MAX, height: 0 };
        let (inner, nullable) = match part {
            GraphPart::Chars(_) => {
                return PartFacts { regular: true, nullable: false, size: 1, height: 0 };
            }
            GraphPart::Token(_) => return not,
            GraphPart::Rule(rule) => match self.bodies[*rule] {
                None => return not,
                Some(body) => (of(&[body]), self.facts[body].nullable),
            },
            GraphPart::Seq(parts) => {
                let inner = of(parts);
                let nullable = inner.iter().all(|part| part.nullable);
                (inner, nullable)
            }
            GraphPart::Alt(parts) => {
                let inner = of(parts);
                let nullable = inner.iter().any(|part| part.nullable);
                (inner, nullable)
            }
            GraphPart::Repeat { part, least, .. } => {
                (of(&[*part]), *least == 0 || self.facts[*part].nullable)
            }
        };
        let size = inner.iter().fold(0u32, |sum, part| sum.saturating_add(part.size));
        let height = inner.iter().map(|part| part.height + 1).max().unwrap_or(0);
        let fits = size <= MAX_SIZE && height <= MAX_HEIGHT;
        let regular = fits && inner.iter().all(|part| part.regular);
        PartFacts { regular, nullable, size, height }
    }
}

struct GraphBuilder<'a> {
    graph: PartGraph,
    productive: Vec<bool>,
    token: &'a dyn Fn(&TokenName, bool) -> Result<String, Fault>,
}

impl GraphBuilder<'_> {
    fn add(&mut self, part: &Gbnf) -> Result<PartId, Fault> {
        Ok(match part {
            Gbnf::Chars(set) => self.graph.push(GraphPart::Chars(set.clone())),
            Gbnf::Rule(rule) => self.graph.push(GraphPart::Rule(*rule)),
            Gbnf::Token { name, negated } => {
                let token = (self.token)(name, *negated)?;
                self.graph.push(GraphPart::Token(token))
            }
            Gbnf::Seq(parts) => {
                let parts: Result<Vec<_>, _> = parts.iter().map(|part| self.add(part)).collect();
                self.seq(parts?)
            }
            Gbnf::Alt(parts) => {
                let matched = parts.iter().filter(|part| produces(part, &self.productive));
                let parts: Vec<&Gbnf> = matched.collect();
                let parts: Result<Vec<_>, _> =
                    parts.into_iter().map(|part| self.add(part)).collect();
                self.alt(parts?)
            }
            Gbnf::Repeat { most: Some(0), .. } => self.seq(Vec::new()),
            Gbnf::Repeat { part, .. } if !produces(part, &self.productive) => self.seq(Vec::new()),
            Gbnf::Repeat { part, least, most } => {
                let part = self.add(part)?;
                self.repeat(part, *least, *most)
            }
        })
    }

    /// Adds a sequence, in which neighbours that are regular are one part.
    fn seq(&mut self, mut parts: Vec<PartId>) -> PartId {
        parts.retain(|part| !self.graph.is_empty(*part));
        if parts.len() == 1 {
            return parts[0];
        }
        let whole = GraphPart::Seq(parts.clone());
        if self.graph.facts_of(&whole).regular {
            return self.graph.push(whole);
        }
        let (mut grouped, mut run, mut size) = (Vec::new(), Vec::new(), 0u32);
        for part in parts {
            let facts = self.graph.facts[part];
            size = size.saturating_add(facts.size);
            if !facts.regular || size > MAX_SIZE || facts.height >= MAX_HEIGHT {
                self.flush(&mut run, &mut grouped, GraphPart::Seq);
                size = facts.size;
            }
            match facts.regular {
                true => run.push(part),
                false => grouped.push(part),
            }
        }
        self.flush(&mut run, &mut grouped, GraphPart::Seq);
        match grouped.len() {
            1 => grouped[0],
            _ => self.graph.push(GraphPart::Seq(grouped)),
        }
    }

    /// Moves a group to the others: as one part if it has several.
    fn flush(
        &mut self,
        group: &mut Vec<PartId>,
        others: &mut Vec<PartId>,
        whole: fn(Vec<PartId>) -> GraphPart,
    ) {
        match group.len() {
            0 => {}
            1 => others.append(group),
            _ => others.push(self.graph.push(whole(std::mem::take(group)))),
        }
    }

    /// Adds a choice: its regular parts are one part, and its characters one class.
    fn alt(&mut self, mut parts: Vec<PartId>) -> PartId {
        let (mut ranges, mut chars) = (Vec::new(), 0);
        parts.retain(|part| {
            let GraphPart::Chars(set) = &self.graph.parts[*part] else { return true };
            ranges.extend_from_slice(set.ranges());
            chars += 1;
            false
        });
        if chars > 0 {
            parts.push(self.graph.push(GraphPart::Chars(CharSet::new(ranges))));
        }
        let (regular, mut other): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| self.graph.facts[*part].regular);
        let (mut group, mut size) = (Vec::new(), 0);
        for part in regular {
            let facts = self.graph.facts[part];
            size += facts.size;
            if size > MAX_SIZE || facts.height >= MAX_HEIGHT {
                self.flush(&mut group, &mut other, GraphPart::Alt);
                size = facts.size;
            }
            group.push(part);
        }
        self.flush(&mut group, &mut other, GraphPart::Alt);
        if other.len() == 1 { other[0] } else { self.graph.push(GraphPart::Alt(other)) }
    }

    /// Adds a repetition. `(r | x)*` with a regular `r` becomes `r* (x r*)*`, in which runs of `r`
    /// are one part that `r` does not follow.
    fn repeat(&mut self, part: PartId, least: u32, most: Option<u32>) -> PartId {
        let split = match &self.graph.parts[part] {
            GraphPart::Alt(parts) if most.is_none() && least <= 1 => {
                let (regular, other): (Vec<_>, Vec<_>) =
                    parts.iter().partition(|part| self.graph.facts[**part].regular);
                (regular.len() == 1 && !other.is_empty()).then(|| (regular[0], other))
            }
            _ => None,
        };
        let Some((regular, other)) = split else {
            return self.graph.push(GraphPart::Repeat { part, least, most });
        };
        let many = |graph: &mut PartGraph, part, least| {
            graph.push(GraphPart::Repeat { part, least, most: None })
        };
        let run = many(&mut self.graph, regular, 1);
        let optional = self.graph.push(GraphPart::Repeat { part: run, least: 0, most: Some(1) });
        let other = self.alt(other);
        let turn = self.graph.push(GraphPart::Seq(vec![other, optional]));
        if least == 0 {
            let turns = many(&mut self.graph, turn, 0);
            return self.graph.push(GraphPart::Seq(vec![optional, turns]));
        }
        let turns = many(&mut self.graph, turn, 1);
        let with = self.graph.push(GraphPart::Seq(vec![optional, turns]));
        self.graph.push(GraphPart::Alt(vec![run, with]))
    }
}

/// Returns the rules that a part uses.
fn used(part: &Gbnf) -> HashSet<usize> {
    let mut rules = HashSet::new();
    visit(part, &mut |rule| {
        rules.insert(rule);
    });
    rules
}

fn visit(part: &Gbnf, rule: &mut dyn FnMut(usize)) {
    match part {
        Gbnf::Chars(_) | Gbnf::Token { .. } => {}
        Gbnf::Rule(of) => rule(*of),
        Gbnf::Seq(parts) | Gbnf::Alt(parts) => parts.iter().for_each(|part| visit(part, rule)),
        Gbnf::Repeat { part, .. } => visit(part, rule),
    }
}

/// Returns the rules that `root` uses, each after the rules that it uses, cycles apart.
fn order(used: &[HashSet<usize>], root: usize) -> Vec<usize> {
    let mut order = Vec::new();
    let mut seen = vec![false; used.len()];
    let mut stack = vec![(root, false)];
    while let Some((rule, done)) = stack.pop() {
        if done {
            order.push(rule);
        } else if !std::mem::replace(&mut seen[rule], true) {
            stack.push((rule, true));
            let mut next: Vec<usize> = used[rule].iter().copied().collect();
            next.sort_unstable();
            stack.extend(next.into_iter().map(|rule| (rule, false)));
        }
    }
    order
}

/// Returns for each rule whether it matches any text.
fn productive(rules: &GbnfRules, order: &[usize]) -> Vec<bool> {
    let mut productive = vec![false; rules.bodies.len()];
    loop {
        let before = productive.clone();
        for &rule in order {
            productive[rule] = productive[rule] || produces(&rules.bodies[rule], &productive);
        }
        if productive == before {
            return productive;
        }
    }
}

fn produces(part: &Gbnf, productive: &[bool]) -> bool {
    match part {
        Gbnf::Chars(_) | Gbnf::Token { .. } => true,
        Gbnf::Rule(rule) => productive[*rule],
        Gbnf::Seq(parts) => parts.iter().all(|part| produces(part, productive)),
        Gbnf::Alt(parts) => parts.iter().any(|part| produces(part, productive)),
        Gbnf::Repeat { part, least, .. } => *least == 0 || produces(part, productive),
    }
}

/// Returns `x* y` for a rule `x rule | y`, and `y x*` for `rule x | y`; `None` if the rule calls
/// itself elsewhere.
fn unrolled(body: &Gbnf, rule: usize) -> Option<Gbnf> {
    let itself = Gbnf::Rule(rule);
    let calls = |part: &Gbnf| used(part).contains(&rule);
    let all = ends(body, &calls);
    let (recursive, other): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|parts| parts.iter().any(calls));
    let seqs = |parts: Vec<Vec<Gbnf>>| Gbnf::Alt(parts.into_iter().map(Gbnf::Seq).collect());
    let many = |part| Gbnf::Repeat { part: Box::new(part), least: 0, most: None };
    let without = |at_end: bool| {
        let rest = |parts: &Vec<Gbnf>| {
            let (call, rest) = if at_end { parts.split_last()? } else { parts.split_first()? };
            (*call == itself && !rest.iter().any(calls)).then(|| rest.to_vec())
        };
        recursive.iter().map(rest).collect::<Option<Vec<_>>>()
    };
    if let Some(before) = without(true) {
        return Some(Gbnf::Seq(vec![many(seqs(before)), seqs(other)]));
    }
    without(false).map(|after| Gbnf::Seq(vec![seqs(other), many(seqs(after))]))
}

/// Returns the sequences that a part stands for, where choices at the end of a sequence that call
/// a rule are separate.
fn ends(part: &Gbnf, calls: &impl Fn(&Gbnf) -> bool) -> Vec<Vec<Gbnf>> {
    match part {
        part if !calls(part) => vec![vec![part.clone()]],
        Gbnf::Alt(parts) => parts.iter().flat_map(|part| ends(part, calls)).collect(),
        Gbnf::Repeat { part, least: 0, most: Some(1) } => {
            let mut all = ends(part, calls);
            all.push(Vec::new());
            all
        }
        Gbnf::Seq(parts) => match parts.split_last() {
            None => vec![Vec::new()],
            Some((last, before)) => {
                let ends = ends(last, calls);
                ends.into_iter().map(|end| [before, &end].concat()).collect()
            }
        },
        other => vec![vec![other.clone()]],
    }
}
