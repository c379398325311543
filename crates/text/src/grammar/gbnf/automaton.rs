//! Position automata: which positions of an expression come first and which follow which.
//!
//! The construction is Glushkov's. Positions are characters in a regular part, and lexemes in a
//! grammar, where the stack of rules is left out: a lexeme that ends a rule is followed by what
//! follows any use of the rule.

use super::char_set::CharSet;
use super::graph::{GraphPart, PartGraph, PartId};
use std::collections::{BTreeSet, HashSet};

/// Copies of a repeated part that are counted; beyond that, any number may follow.
const MAX_COPIES: u32 = 64;

/// The ends of an expression in its automaton.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ends {
    pub nullable: bool,
    pub first: BTreeSet<u32>,
    pub last: BTreeSet<u32>,
}

/// The positions that follow each position, and their number.
#[derive(Debug, Default)]
pub(super) struct Edges {
    pub next: Vec<BTreeSet<u32>>,
    count: usize,
}

impl Edges {
    /// Adds a position and returns the ends of an expression that is this position.
    pub fn position(&mut self) -> Ends {
        self.next.push(BTreeSet::new());
        let at = BTreeSet::from([self.next.len() as u32 - 1]);
        Ends { nullable: false, first: at.clone(), last: at }
    }

    pub fn connect(&mut self, last: &BTreeSet<u32>, first: &BTreeSet<u32>) {
        for from in last {
            let next = &mut self.next[*from as usize];
            let before = next.len();
            next.extend(first);
            self.count += next.len() - before;
        }
    }

    /// Returns the number of pairs of positions that follow each other.
    pub fn count(&self) -> usize {
        self.count
    }
}

impl Ends {
    pub fn empty() -> Self {
        Self { nullable: true, ..Self::default() }
    }

    pub fn then(mut self, other: Self, edges: &mut Edges) -> Self {
        edges.connect(&self.last, &other.first);
        if self.nullable {
            self.first.extend(&other.first);
        }
        match other.nullable {
            true => self.last.extend(&other.last),
            false => self.last = other.last,
        }
        self.nullable &= other.nullable;
        self
    }

    pub fn or(mut self, other: Self) -> Self {
        self.first.extend(&other.first);
        self.last.extend(&other.last);
        self.nullable |= other.nullable;
        self
    }
}

/// The automaton of a regular part over characters.
#[derive(Debug)]
pub(super) struct CharAutomaton {
    pub ends: Ends,
    pub edges: Edges,
    /// The characters of each position.
    pub chars: Vec<CharSet>,
    /// The characters with which a text may begin.
    pub begins: CharSet,
}

impl CharAutomaton {
    /// Returns the automaton of `part`. Of a part that is repeated often, it matches more texts
    /// than the part does.
    pub fn of(graph: &PartGraph, part: PartId) -> Self {
        let (mut edges, mut chars) = (Edges::default(), Vec::new());
        let ends = ends(graph, part, &mut edges, &mut chars);
        let first = ends.first.iter().flat_map(|at| chars[*at as usize].ranges().to_vec());
        let begins = CharSet::new(first.collect());
        Self { ends, edges, chars, begins }
    }

    /// Walks through the texts that `self` and `other` have in common, and their beginnings.
    /// Returns whether they have a whole text in common, and the characters that continue a text
    /// of `self` in `other`. `None` where that takes more than `fuel`, which is used up.
    pub fn compare(&self, other: &Self, fuel: &mut usize) -> Option<(bool, CharSet)> {
        let (mut common, mut continues) = (false, BTreeSet::<u32>::new());
        let mut seen = HashSet::new();
        let mut stack = Vec::new();
        let mut pairs = |first: &BTreeSet<u32>, second: &BTreeSet<u32>, stack: &mut Vec<_>| {
            *fuel = fuel.checked_sub(1 + first.len() * second.len())?;
            for &a in first {
                let meets = |b: &&u32| self.chars[a as usize].meets(&other.chars[**b as usize]);
                stack.extend(
                    second.iter().filter(meets).map(|&b| (a, b)).filter(|it| seen.insert(*it)),
                );
            }
            Some(())
        };
        pairs(&self.ends.first, &other.ends.first, &mut stack)?;
        while let Some((a, b)) = stack.pop() {
            let next = &other.edges.next[b as usize];
            if self.ends.last.contains(&a) {
                common |= other.ends.last.contains(&b);
                continues.extend(next);
            }
            pairs(&self.edges.next[a as usize], next, &mut stack)?;
        }
        let ranges = continues.iter().flat_map(|at| other.chars[*at as usize].ranges().to_vec());
        Some((common, CharSet::new(ranges.collect())))
    }
}

fn ends(graph: &PartGraph, part: PartId, edges: &mut Edges, chars: &mut Vec<CharSet>) -> Ends {
    match &graph.parts[part] {
        GraphPart::Chars(set) => {
            chars.push(set.clone());
            edges.position()
        }
        GraphPart::Token(_) => unreachable!("regular parts have no tokens"),
        GraphPart::Rule(rule) => ends(graph, graph.body(*rule), edges, chars),
        GraphPart::Seq(parts) => parts.iter().fold(Ends::empty(), |all, part| {
            let next = ends(graph, *part, edges, chars);
            all.then(next, edges)
        }),
        GraphPart::Alt(parts) => {
            parts.iter().fold(Ends::default(), |all, part| all.or(ends(graph, *part, edges, chars)))
        }
        GraphPart::Repeat { part, least, most } => {
            let size = graph.facts[*part].size.max(1);
            let copies = most.filter(|most| most.saturating_mul(size) <= MAX_COPIES);
            let mut all = ends(graph, *part, edges, chars);
            match copies {
                None => edges.connect(&all.last.clone(), &all.first),
                Some(copies) => {
                    for at in 1..copies {
                        let mut next = ends(graph, *part, edges, chars);
                        next.nullable |= at >= *least;
                        all = all.then(next, edges);
                    }
                }
            }
            all.nullable |= *least == 0;
            all
        }
    }
}
