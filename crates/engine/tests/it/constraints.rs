//! Constraints in the engine, by the example of a toy constraint over ids.

use crate::checkpoints::{random, repeating};
use engine::metrics::Stats;
use engine::{
    Allowed, Constraint, Drafter, EngineHandle, EngineOptions, Event, Finished, Generation,
    Grammar, GrammarRef, LoadOptions, Outcome, Request, Runner, SamplingParams, Speculate,
    TokenSet, start,
};
use serde_json::{Value, json};

/// Allows a third of the ids, others at each place and after each token. May end at every fourth
/// place, and must at the last.
#[derive(Clone, Debug)]
pub(crate) struct Toy {
    pub number: usize,
    pub length: usize,
    /// The position at which the mask fails, and the position at which it panics.
    pub broken: Option<usize>,
    pub panics: Option<usize>,
    /// Only ids below this.
    pub below: u32,
    /// The allowed ids repeat after this many positions, independent of the text before.
    pub cycle: Option<usize>,
    /// Whether the choice after an even id is greedy.
    pub steers: bool,
    /// Four of five tokens are the only ones allowed, and drafted if this is so.
    pub forces: Option<bool>,
    pub seen: Vec<u32>,
}

impl Toy {
    pub fn of(number: usize) -> Self {
        let (broken, panics, cycle, steers, forces) = (None, None, None, false, None);
        let seen = Vec::new();
        Self { number, length: 60, broken, panics, below: 131, cycle, steers, forces, seen }
    }

    /// The only id that is allowed at a place, if it is only one.
    fn only(&self, place: usize) -> Option<u32> {
        let is_forced = self.forces.is_some() && !place.is_multiple_of(5) && place < self.length;
        is_forced.then(|| (7 * place + self.number) as u32 % self.below)
    }

    pub fn grammar(self) -> GrammarRef {
        GrammarRef::new(self)
    }

    fn allows(&self, id: u32) -> bool {
        if let Some(only) = self.only(self.seen.len()) {
            return id == only;
        }
        let last = self.seen.last().copied().unwrap_or(0) as usize;
        let turn = match self.cycle {
            Some(cycle) => (id as usize + cycle - self.seen.len() % cycle) % cycle,
            None => (id as usize + 7 * self.seen.len() + last + self.number) % 3,
        };
        turn == 0 && id < self.below && !self.is_complete()
    }
}

impl Grammar for Toy {
    fn start(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }

    fn source(&self) -> Option<Value> {
        Some(json!(self.number))
    }
}

impl Constraint for Toy {
    fn mask(&mut self, allowed: &mut TokenSet) -> Result<Allowed, String> {
        if self.broken == Some(self.seen.len()) {
            return Err(format!("no way after {} tokens", self.seen.len()));
        }
        assert_ne!(self.panics, Some(self.seen.len()));
        assert!(allowed.is_empty());
        (0..200).filter(|id| self.allows(*id)).for_each(|id| allowed.insert(id));
        let may_end = self.seen.len() % 4 == 3 && self.only(self.seen.len()).is_none();
        Ok(Allowed::Listed { may_end })
    }

    fn greedy(&self) -> bool {
        self.steers && self.seen.last().is_some_and(|id| id % 2 == 0)
    }

    fn accept(&mut self, id: u32) -> Result<(), String> {
        if !self.allows(id) {
            return Err(format!("{id} is not allowed"));
        }
        self.seen.push(id);
        Ok(())
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), String> {
        let left = self.seen.len().checked_sub(tokens).ok_or("rolled back too far")?;
        self.seen.truncate(left);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.seen.len() == self.length
    }

    fn forced(&mut self, draft: &mut Vec<u32>) {
        if self.forces == Some(true) {
            draft.extend((self.seen.len()..).map_while(|place| self.only(place)));
        }
    }

    fn allowed_prefix(&mut self, ids: &[u32]) -> usize {
        let mut toy = self.clone();
        ids.iter().take_while(|id| toy.accept(**id).is_ok()).count()
    }
}

/// Excludes nothing. The choice after an id that `greedy` names is greedy.
#[derive(Clone, Debug)]
pub(crate) struct Steered {
    greedy: fn(u32) -> bool,
    seen: Vec<u32>,
}

impl Steered {
    pub fn grammar(greedy: fn(u32) -> bool) -> GrammarRef {
        GrammarRef::new(Self { greedy, seen: vec![0] })
    }
}

impl Grammar for Steered {
    fn start(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }

    fn excludes(&self) -> bool {
        false
    }
}

impl Constraint for Steered {
    fn mask(&mut self, allowed: &mut TokenSet) -> Result<Allowed, String> {
        // No memory is set aside for a mask that is never used, and no thread is woken for it.
        assert_eq!(allowed.size(), 0);
        assert_ne!(std::thread::current().name(), Some("gannet-masks"));
        Ok(Allowed::All)
    }

    fn greedy(&self) -> bool {
        self.seen.last().is_some_and(|id| (self.greedy)(*id))
    }

    fn accept(&mut self, id: u32) -> Result<(), String> {
        self.seen.push(id);
        Ok(())
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), String> {
        let left = self.seen.len().checked_sub(tokens + 1).ok_or("rolled back too far")?;
        self.seen.truncate(left + 1);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        false
    }
}

fn engine() -> EngineHandle {
    let (checkpoint, _folder) = random("qwen3");
    let runner = Runner::load(&checkpoint, &LoadOptions::default()).unwrap();
    start(runner, EngineOptions::default()).0
}

fn request(toy: Toy) -> Request {
    Request {
        prompt: (0..20).collect(),
        sampling: SamplingParams { temperature: 0.9, seed: Some(5), ..SamplingParams::default() },
        max_tokens: Some(50),
        constraint: Some(toy.grammar()),
        ..Request::default()
    }
}

/// The ids of an answer, and its end or why it failed.
fn collect(mut generation: Generation) -> (Vec<u32>, Result<Finished, String>) {
    let mut ids = Vec::new();
    while let Some(event) = generation.next_blocking() {
        match event {
            Event::Token { id, .. } => ids.push(id),
            Event::Finished(Finished { outcome: Outcome::Failed(why), .. }) => {
                return (ids, Err(why));
            }
            Event::Finished(finished) => return (ids, Ok(finished)),
            _ => {}
        }
    }
    panic!("no end");
}

fn answer(engine: &EngineHandle, request: Request) -> (Vec<u32>, Result<Finished, String>) {
    collect(engine.submit(request).unwrap())
}

fn reason(engine: &EngineHandle, request: Request) -> (Vec<u32>, Outcome) {
    let (ids, finished) = answer(engine, request);
    (ids, finished.unwrap().outcome)
}

/// Panics unless a fresh constraint takes all of `ids`.
fn obeys(mut toy: Toy, ids: &[u32]) {
    ids.iter().for_each(|id| toy.accept(*id).unwrap());
}

#[test]
fn no_token_outside_the_mask_is_chosen_whatever_the_sampling() {
    let engine = engine();
    let bias = vec![(0, 100.0), (1, 100.0), (2, 100.0)];
    let sampled = request(Toy::of(0)).sampling;
    for sampling in [
        SamplingParams::default(),
        SamplingParams { temperature: 5.0, ..sampled.clone() },
        SamplingParams { logit_bias: bias, repeat_penalty: 1.3, ..sampled.clone() },
        SamplingParams { top_k: 3, top_p: 0.9, min_p: 0.01, typical_p: 0.9, ..sampled },
    ] {
        let toy = Toy::of(3);
        let (ids, reason) = reason(&engine, Request { sampling, ..request(toy.clone()) });
        assert_eq!((ids.len(), reason), (50, Outcome::Length));
        obeys(toy, &ids);
    }
}

#[test]
fn a_constraint_that_allows_all_changes_nothing() {
    #[derive(Debug)]
    struct All;
    impl Grammar for All {
        fn start(&self) -> Box<dyn Constraint> {
            Box::new(All)
        }
    }
    impl Constraint for All {
        fn mask(&mut self, allowed: &mut TokenSet) -> Result<Allowed, String> {
            (0..allowed.size() as u32).for_each(|id| allowed.insert(id));
            Ok(Allowed::Listed { may_end: true })
        }
        fn accept(&mut self, _: u32) -> Result<(), String> {
            Ok(())
        }
        fn rollback(&mut self, _: usize) -> Result<(), String> {
            Ok(())
        }
        fn is_complete(&self) -> bool {
            false
        }
    }
    let engine = engine();
    let free = Request { constraint: None, stop_ids: vec![9], ..request(Toy::of(0)) };
    let all = Request { constraint: Some(GrammarRef::new(All)), ..free.clone() };
    assert_eq!(reason(&engine, all), reason(&engine, free));
}

#[test]
fn greedy_choices_are_those_of_temperature_zero_and_move_no_random_number() {
    let engine = engine();
    let sampling = SamplingParams {
        logit_bias: vec![(3, 2.0), (40, 2.0)],
        repeat_penalty: 1.2,
        frequency_penalty: 0.3,
        ..request(Toy::of(0)).sampling
    };
    let free = Request { constraint: None, sampling, stop_ids: vec![9], ..request(Toy::of(0)) };
    let with = |greedy| Request { constraint: Some(Steered::grammar(greedy)), ..free.clone() };
    let cold = SamplingParams { temperature: 0.0, ..free.sampling.clone() };
    let cold = Request { sampling: cold, ..free.clone() };
    assert_eq!(reason(&engine, with(|_| false)), reason(&engine, free.clone()));
    assert_eq!(reason(&engine, with(|_| true)), reason(&engine, cold.clone()));
    // The same tokens with a mask: the best of what it allows.
    let toy = |steers| Some(Toy { steers, ..Toy::of(4) }.grammar());
    let cold = Request { constraint: toy(false), ..cold };
    let first = |request: Request| answer(&engine, Request { max_tokens: Some(1), ..request }).0;
    let begun = Toy { steers: true, seen: vec![0, 0], ..Toy::of(4) };
    let begin = |request: &Request| Request {
        constraint: Some(begun.clone().grammar()),
        ..request.clone()
    };
    assert_eq!(first(begin(&free)), first(begin(&cold)));
    // A greedy choice that the draw would have made as well changes nothing behind it: 0 is
    // certain, except behind itself.
    let sure = |greedy| {
        let sampling = SamplingParams {
            logit_bias: vec![(0, 100.0)],
            presence_penalty: 100.0,
            penalty_window: Some(1),
            ..request(Toy::of(0)).sampling
        };
        Request { sampling, stop_ids: Vec::new(), ..with(greedy) }
    };
    let (ids, outcome) = reason(&engine, sure(|id| id != 0));
    assert_eq!((ids.clone(), outcome), reason(&engine, sure(|_| false)));
    assert!(ids.windows(2).all(|pair| pair.contains(&0)), "{ids:?}");
}

#[test]
fn a_sequence_ends_where_no_token_may_follow() {
    let engine = engine();
    let toy = Toy { length: 7, ..Toy::of(1) };
    // Completion needs no stop ids, and stop ids that are not allowed do not prevent it.
    for (stop_ids, min_tokens) in [(vec![], 0), (vec![], 30)] {
        let request = Request { stop_ids, min_tokens, ..request(toy.clone()) };
        let (ids, reason) = reason(&engine, request);
        assert_eq!((ids.len(), reason), (7, Outcome::Complete));
    }
    // The limit and the end at once: it is whole.
    let exact = Request { max_tokens: Some(7), ..request(toy.clone()) };
    assert_eq!(reason(&engine, exact).1, Outcome::Complete);
    let short = Request { max_tokens: Some(6), ..request(toy) };
    assert_eq!(reason(&engine, short).1, Outcome::Length);
    let empty = request(Toy { length: 0, ..Toy::of(1) });
    assert_eq!(reason(&engine, empty), (vec![], Outcome::Complete));
}

#[test]
fn stop_ids_come_exactly_where_the_constraint_may_end() {
    let engine = engine();
    // Far more likely than anything else, and allowed by the constraint as a token too.
    let sampling = SamplingParams { logit_bias: vec![(9, 1000.0)], ..SamplingParams::default() };
    let base = Request { sampling, stop_ids: vec![9, 1 << 30], ..request(Toy::of(2)) };
    let (ids, why) = reason(&engine, base.clone());
    assert_eq!((ids.len(), why), (3, Outcome::StopId(9)));
    let (ids, why) = reason(&engine, Request { min_tokens: 5, ..base });
    assert_eq!((ids.len(), why), (7, Outcome::StopId(9)));
}

#[test]
fn where_only_the_end_is_left_it_wins_over_min_tokens() {
    let engine = engine();
    // No ids at all are allowed, and the fourth place may be the end.
    let toy = Toy { seen: vec![0, 0, 0], below: 0, ..Toy::of(0) };
    let request = Request { min_tokens: 20, stop_ids: vec![9], ..request(toy) };
    assert_eq!(reason(&engine, request), (vec![], Outcome::Complete));
}

#[test]
fn a_failed_constraint_ends_its_own_sequence_only() {
    let engine = engine();
    let (want, _) = reason(&engine, request(Toy::of(1)));
    let broken = Toy { broken: Some(5), ..Toy::of(1) };
    let panics = Toy { panics: Some(6), ..Toy::of(1) };
    let nothing = Toy { below: 0, ..Toy::of(1) };
    let toys = [Toy::of(1), broken, panics, nothing, Toy::of(1)];
    let generations = toys.map(|toy| engine.submit(request(toy)).unwrap());
    let [a, b, c, d, e] = generations.map(collect);
    assert_eq!((&a.0, &e.0), (&want, &want));
    assert_eq!((&b.0[..], b.1), (&want[..5], Err("no way after 5 tokens".into())));
    assert_eq!((&c.0[..], c.1), (&want[..6], Err("the constraint broke".into())));
    assert_eq!(d, (vec![], Err("the constraint allows no token of this model".into())));
    assert_eq!(reason(&engine, request(Toy::of(1))).0, want, "the engine goes on");
}

#[test]
fn drafts_that_are_right_count_under_a_constraint_too() {
    let (checkpoint, _folder) = repeating();
    let options = EngineOptions::default();
    let load = LoadOptions { logit_rows: options.logit_rows(), ..LoadOptions::default() };
    let engine = start(Runner::load(&checkpoint, &load).unwrap(), options).0;
    let sampling = SamplingParams {
        logit_bias: (0..12).map(|id| (id, 50.0)).collect(),
        ..SamplingParams::default()
    };
    let toy = Toy { length: 44, cycle: Some(5), ..Toy::of(0) };
    let prompt = (0..12).cycle().take(48).collect();
    let off = Request { prompt, sampling, ..request(toy) };
    let on = Request { speculate: Some(Speculate::Ngram(4)), ..off.clone() };
    let (off, on) = (answer(&engine, off), answer(&engine, on));
    let (off_end, on_end) = (off.1.unwrap(), on.1.unwrap());
    assert_eq!((off.0, &off_end.outcome), (on.0, &on_end.outcome));
    assert_eq!(on_end.outcome, Outcome::Complete);
    let usage = on_end.usage;
    assert!(0 < usage.accepted_tokens && usage.accepted_tokens < usage.drafted_tokens, "{usage:?}");
}

/// Whatever the setting: what a grammar forces is drafted, and sampling has no choice.
#[test]
fn an_only_allowed_token_is_never_rejected() {
    let (checkpoint, _folder) = random("qwen3");
    let options = EngineOptions::default();
    let load = LoadOptions { logit_rows: options.logit_rows(), ..LoadOptions::default() };
    let engine = start(Runner::load(&checkpoint, &load).unwrap(), options).0;
    let mut all = 0;
    for speculate in ["off", "auto", "suffix:2"].map(|text| Some(text.parse().unwrap())) {
        let with = |forces| {
            let toy = Toy { forces: Some(forces), ..Toy::of(2) };
            answer(&engine, Request { speculate, ..request(toy) })
        };
        let before = engine.metrics.snapshot();
        let (drafted, plain) = (with(true), with(false));
        assert_eq!((drafted.0.len(), &drafted.0), (50, &plain.0));
        let forced = |stats: &Stats| stats.drafts[Drafter::Forced as usize];
        let (before, after) = (forced(&before), forced(&engine.metrics.snapshot()));
        let verified = after.drafted - before.drafted;
        assert_eq!(after.accepted - before.accepted, verified, "{speculate:?}");
        all += verified;
    }
    // How many are verified depends on the times of steps; now and then some are.
    assert!(all > 0);
}
