//! The last prompts of each caller, to say where a new prompt leaves the nearest of them.
//!
//! Invariant: at most [`MAX_PROMPTS`] prompts of a caller and [`MAX_TOKENS`] tokens of all; the
//! caller that was used least recently is forgotten first. Prompts of one caller are never compared
//! with those of another.

use crate::caller_part::CallerPart;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most prompts of a caller.
const MAX_PROMPTS: usize = 16;
/// Most tokens of all prompts: 32 MiB.
const MAX_TOKENS: usize = 8 << 20;
/// Most callers.
const MAX_CALLERS: usize = 1024;
/// Tokens on each side of a difference that are shown.
pub(crate) const SHOWN: usize = 16;

/// The last prompts of each caller of a model, with their answers.
#[derive(Debug, Default)]
pub(crate) struct PromptHistory(Mutex<HistoryState>);

#[derive(Debug, Default)]
struct HistoryState {
    callers: HashMap<CallerPart, CallerPrompts>,
    /// Tokens of all prompts.
    tokens: usize,
    /// Number of prompts added so far.
    added: u64,
}

#[derive(Debug, Default)]
struct CallerPrompts {
    /// The oldest first.
    prompts: VecDeque<PastPrompt>,
    /// The number of the last prompt.
    last: u64,
}

/// A prompt with as much of its answer as is known.
#[derive(Debug)]
struct PastPrompt {
    number: u64,
    tokens: Vec<u32>,
    /// Tokens that were computed, if it does not run any more.
    computed: Option<usize>,
}

/// The earlier prompt of a caller that begins most like a new one; of several, the latest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NearestPrompt {
    /// Tokens that both begin with.
    pub shared: usize,
    /// Its tokens after these, at most [`SHOWN`]; none if the new prompt begins with all of it.
    pub rest: Vec<u32>,
    /// Its tokens that were computed, if it does not run any more.
    pub computed: Option<usize>,
}

/// What the history has for a new prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// The caller has sent no prompt.
    Nothing,
    /// The caller has sent prompts in other parts of the caches only.
    OtherParts,
    /// The nearest prompt.
    Nearest(NearestPrompt),
}

impl PromptHistory {
    /// What is known of the caller's earlier prompts that helps to explain this one.
    pub fn past(&self, of: &CallerPart, prompt: &[u32]) -> Past {
        let state = self.lock();
        let Some(caller) = state.callers.get(of) else {
            let known = state.callers.keys().any(|other| other.caller == of.caller);
            return if known { Past::OtherParts } else { Past::Nothing };
        };
        let with_shared = caller.prompts.iter().map(|past| (shared(&past.tokens, prompt), past));
        let nearest = with_shared.max_by_key(|(shared, past)| (*shared, past.number));
        nearest.map_or(Past::Nothing, |(shared, past)| {
            let rest = past.tokens[shared..].iter().copied().take(SHOWN).collect();
            Past::Nearest(NearestPrompt { shared, rest, computed: past.computed })
        })
    }

    /// Adds a prompt that is about to be computed, in place of earlier ones that it begins with.
    pub fn add(self: &Arc<Self>, of: CallerPart, prompt: Vec<u32>) -> RunningPrompt {
        let number = self.lock().add(of, prompt);
        RunningPrompt { history: Arc::clone(self), of, number, answer: Vec::new(), computed: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, HistoryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Number of tokens that both begin with.
fn shared(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl HistoryState {
    fn add(&mut self, of: CallerPart, tokens: Vec<u32>) -> u64 {
        self.added += 1;
        let number = self.added;
        self.tokens += tokens.len();
        let caller = self.callers.entry(of).or_default();
        caller.last = number;
        let continued =
            |past: &PastPrompt| past.computed.is_some() && tokens.starts_with(&past.tokens);
        let oldest = (caller.prompts.len() >= MAX_PROMPTS).then_some(0);
        let replaced = caller.prompts.iter().position(continued).or(oldest);
        if let Some(past) = replaced.and_then(|at| caller.prompts.remove(at)) {
            self.tokens -= past.tokens.len();
        }
        caller.prompts.push_back(PastPrompt { number, tokens, computed: None });
        self.trim();
        number
    }

    /// Adds the answer of a prompt, if that is still there.
    fn end(&mut self, of: &CallerPart, number: u64, answer: &[u32], computed: usize) {
        let caller = self.callers.get_mut(of);
        let past = caller.and_then(|it| it.prompts.iter_mut().find(|past| past.number == number));
        let Some(past) = past else { return };
        past.tokens.reserve_exact(answer.len());
        past.tokens.extend_from_slice(answer);
        past.computed = Some(computed);
        self.tokens += answer.len();
        self.trim();
    }

    /// Forgets prompts until the limits are kept.
    fn trim(&mut self) {
        while self.tokens > MAX_TOKENS || self.callers.len() > MAX_CALLERS {
            let oldest = self.callers.iter_mut().min_by_key(|(_, caller)| caller.last);
            let Some((&of, caller)) = oldest else { return };
            if let Some(past) = caller.prompts.pop_front() {
                self.tokens -= past.tokens.len();
            }
            if caller.prompts.is_empty() || self.callers.len() > MAX_CALLERS {
                self.forget(&of);
            }
        }
    }

    fn forget(&mut self, of: &CallerPart) {
        let caller = self.callers.remove(of).unwrap_or_default();
        self.tokens -= caller.prompts.iter().map(|past| past.tokens.len()).sum::<usize>();
    }
}

/// A prompt of the history that is being computed. Its answer is added when this is dropped.
#[derive(Debug)]
pub(crate) struct RunningPrompt {
    history: Arc<PromptHistory>,
    of: CallerPart,
    number: u64,
    answer: Vec<u32>,
    /// Tokens that were computed so far.
    pub computed: usize,
}

impl RunningPrompt {
    /// Adds a token of the answer to a prompt of `prompt` tokens. All before it are computed.
    pub fn answered(&mut self, id: u32, prompt: usize) {
        self.computed = prompt + self.answer.len();
        self.answer.push(id);
    }
}

impl Drop for RunningPrompt {
    fn drop(&mut self) {
        let Self { history, of, number, answer, computed } = self;
        history.lock().end(of, *number, answer, *computed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller_part::{CallerDigest, PartDigest};

    fn part(name: &str) -> CallerPart {
        let part = PartDigest::of([0; 16], None);
        CallerPart { caller: CallerDigest::of(name), part }
    }

    fn check(history: &PromptHistory, caller: &str, prompt: &[u32], expected: Past) {
        assert_eq!(history.past(&part(caller), prompt), expected, "{caller} {prompt:?}");
    }

    fn nearest(shared: usize, rest: &[u32], computed: Option<usize>) -> Past {
        Past::Nearest(NearestPrompt { shared, rest: rest.into(), computed })
    }

    #[test]
    fn the_nearest_prompt_is_the_callers_own() {
        let history = Arc::new(PromptHistory::default());
        check(&history, "a", &[1, 2], Past::Nothing);
        drop(history.add(part("a"), vec![1, 2, 3]));
        drop(history.add(part("a"), vec![1, 9]));
        drop(history.add(part("b"), vec![1, 2, 4, 4]));
        check(&history, "a", &[1, 2, 4, 4], nearest(2, &[3], Some(0)));
        check(&history, "b", &[1, 2, 4, 4], nearest(4, &[], Some(0)));
        // Of equally near ones the latest.
        check(&history, "a", &[1, 5], nearest(1, &[9], Some(0)));
        check(&history, "c", &[1, 2], Past::Nothing);
        let other = PartDigest::of([1; 16], None);
        let salted = CallerPart { part: other, ..part("a") };
        assert_eq!(history.past(&salted, &[1, 2]), Past::OtherParts);
    }

    #[test]
    fn answers_follow_their_prompts() {
        let history = Arc::new(PromptHistory::default());
        let mut running = history.add(part("a"), vec![1, 2]);
        check(&history, "a", &[1, 2, 3], nearest(2, &[], None));
        [7, 8, 9].into_iter().for_each(|id| running.answered(id, 2));
        drop(running);
        // The last token was chosen and not computed.
        check(&history, "a", &[1, 2, 7, 8, 5], nearest(4, &[9], Some(4)));
        // A prompt replaces the one that it continues.
        drop(history.add(part("a"), vec![1, 2, 7, 8, 9, 6]));
        assert_eq!(history.lock().callers[&part("a")].prompts.len(), 1);
        assert_eq!(history.lock().tokens, 6);
    }

    #[test]
    fn the_history_is_bounded() {
        let history = Arc::new(PromptHistory::default());
        for at in 0..40 {
            drop(history.add(part("a"), vec![at; 10]));
        }
        assert_eq!(history.lock().tokens, 10 * MAX_PROMPTS);
        for at in 0..2 * MAX_CALLERS {
            drop(history.add(part(&at.to_string()), vec![1; 3]));
        }
        assert_eq!(history.lock().callers.len(), MAX_CALLERS);
        assert_eq!(history.lock().tokens, 3 * MAX_CALLERS);
        let mut running = history.add(part("long"), vec![1; MAX_TOKENS]);
        assert_eq!(history.lock().tokens, MAX_TOKENS);
        running.answered(1, MAX_TOKENS);
        drop(running);
        let state = history.lock();
        assert_eq!((state.tokens, state.callers.len()), (0, 0));
    }
}
