//! The drafts of one request.

use super::acceptance::{Acceptance, evidence_of};
use super::memory::DraftMemory;
use super::ngram;
use super::suffix::{IndexedText, SuffixIndex, SuffixMatch, following, repeating};
use crate::observe::drafter::{Drafter, MAX_DRAFTED};
use crate::request::fields::Request;
use crate::request::speculate::Speculate;
use sched::Planned;

/// Spare tokens of the index of a sequence.
const SPARE: usize = 1 << 10;

/// Tokens of a text that differ one after the other before it is no longer followed.
const MAX_MISSES: usize = 4;

/// Part of a new first token of layers or a model in the share of its sequence, and of all.
const NEW_SHARE: f32 = 0.1;
const NEW_SHARE_ALL: f32 = 0.02;

/// Tokens that count as the same where an answer is what the client expects so far.
const EXPECTED: usize = 8;

/// A place in a text that is followed.
#[derive(Clone, Copy, Debug)]
struct TextPlace {
    drafter: Drafter,
    /// The number of the text among those of the drafter.
    text: usize,
    /// Tokens before the place.
    end: usize,
    /// Number of tokens before it that were the same.
    len: usize,
}

/// What the tokens of a request are drafted from.
#[derive(Debug)]
pub(crate) struct DraftSources {
    /// What may draft, with the maximum number of tokens.
    speculate: Speculate,
    /// Whether it has an answer, which the engine chooses.
    generates: bool,
    /// The expected answer; empty if none is known.
    prediction: Vec<u32>,
    /// The part of the caches whose texts the request may follow.
    space: [u8; 16],
}

impl DraftSources {
    /// What `request` is drafted from, with what the engine does for requests that do not say. A
    /// sequence that is `led` has no drafts, nor has a prompt without an answer.
    pub fn of(request: &mut Request, default: Speculate, led: bool) -> Self {
        let (prediction, space) = (std::mem::take(&mut request.prediction), request.space);
        let wanted = request.speculate.unwrap_or(default);
        let wanted = wanted.at_most(request.max_drafted.unwrap_or(MAX_DRAFTED));
        let generates = !led && !request.is_prompt_only();
        let speculate = if generates { wanted } else { Speculate::Off };
        Self { speculate, generates, prediction, space }
    }

    /// Maximum number of tokens per step: what a grammar forces is always drafted.
    pub fn max(&self) -> usize {
        if self.generates { MAX_DRAFTED } else { 0 }
    }
}

/// The drafts of one request.
#[derive(Debug)]
pub(crate) struct RequestDraft {
    speculate: Speculate,
    space: [u8; 16],
    own: SuffixIndex,
    prediction: IndexedText,
    acceptance: Acceptance,
    /// Where the text continues that was followed last, if one was.
    followed: Option<TextPlace>,
    /// Tokens that differed there, one after the other.
    misses: usize,
    /// Tokens drafted for the next step, and one more, with which what is sampled after them is
    /// compared.
    tokens: Vec<u32>,
    /// Number of the first of them that a step may verify.
    max: usize,
    drafter: Drafter,
    /// What the first of them rests on: the number of tokens before it that were the same.
    evidence: usize,
    /// What each rests on, where layers or a model have drafted them.
    evidences: Vec<usize>,
    /// The share of first tokens by layers or a model that came out in this sequence; `None` before
    /// any.
    share: Option<f32>,
    /// Tokens verified so far.
    pub drafted: usize,
    /// Tokens accepted so far.
    pub accepted: usize,
    /// Tokens accepted in the last step.
    pub accepted_now: usize,
}

impl RequestDraft {
    pub fn new(sources: DraftSources) -> Self {
        let DraftSources { speculate, prediction, space, .. } = sources;
        Self {
            speculate,
            space,
            own: SuffixIndex::new(SPARE),
            prediction: IndexedText::new(prediction),
            acceptance: Acceptance::default(),
            followed: None,
            misses: 0,
            tokens: Vec::with_capacity(MAX_DRAFTED + 1),
            max: 0,
            drafter: Drafter::Forced,
            evidence: 0,
            evidences: Vec::with_capacity(MAX_DRAFTED),
            share: None,
            drafted: 0,
            accepted: 0,
            accepted_now: 0,
        }
    }

    /// Whether its text may be followed by later requests.
    pub fn is_remembered(&self) -> bool {
        self.speculate.follows()
    }

    /// The part of the caches whose texts it may follow.
    pub fn space(&self) -> [u8; 16] {
        self.space
    }

    /// Drafts up to `most` tokens after `tokens`, of which the first `prompt` are not generated.
    /// The grammar probably wants the `forced` ones.
    pub fn find(
        &mut self,
        (tokens, prompt): (&[u32], usize),
        forced: &[u32],
        most: usize,
        memory: &mut DraftMemory,
    ) {
        self.tokens.clear();
        let max = self.speculate.max().min(most);
        self.max = max;
        match self.speculate {
            Speculate::Off | Speculate::Mtp(_) | Speculate::Model(_) => {}
            Speculate::Ngram(_) => {
                self.tokens.extend_from_slice(ngram::continuation(tokens, max));
                self.drafter = Drafter::Ngram;
            }
            Speculate::Auto(_) | Speculate::Suffix(_) => {
                self.own.extend(tokens);
                self.prediction.extend_index();
                self.follow_a_text(tokens, prompt, max + 1, memory);
            }
        }
        let forced = &forced[..forced.len().min(most)];
        if !forced.is_empty() && !self.tokens.starts_with(forced) {
            self.tokens.clear();
            self.tokens.extend_from_slice(forced);
            (self.drafter, self.evidence, self.max) = (Drafter::Forced, 0, most);
        }
    }

    /// Drafts what follows at the place that continues like the end of `tokens` for longest.
    fn follow_a_text(
        &mut self,
        tokens: &[u32],
        prompt: usize,
        max: usize,
        memory: &mut DraftMemory,
    ) {
        let found = self.longest(tokens, prompt, memory);
        // Where a text was left for a few tokens, nothing is found until some are alike again.
        let aligned = self.followed.filter(|_| self.misses <= MAX_MISSES);
        let longer = |one: &TextPlace, other: TextPlace| one.len > other.len;
        self.followed = match (found, aligned) {
            (Some(found), Some(aligned)) if longer(&aligned, found) => Some(aligned),
            (Some(found), _) => Some(found),
            (None, aligned) => aligned,
        };
        let Some(TextPlace { drafter, text, end, len }) = self.followed else { return };
        (self.drafter, self.evidence) = (drafter, len);
        match drafter {
            Drafter::Suffix => self.tokens.extend(repeating(tokens, end).take(max)),
            Drafter::Prediction => {
                self.tokens.extend(following(&self.prediction.tokens, end).take(max));
            }
            _ => {
                let text = memory.text(self.space, text);
                self.tokens.extend(following(text, end).take(max));
            }
        }
    }

    /// The place of all texts before which most tokens are those at the end of `tokens`.
    fn longest(
        &self,
        tokens: &[u32],
        prompt: usize,
        memory: &mut DraftMemory,
    ) -> Option<TextPlace> {
        let place = |drafter, text, found: SuffixMatch| {
            let SuffixMatch { end, len } = found;
            TextPlace { drafter, text, end, len }
        };
        let own = self.own.find(tokens, tokens).map(|it| place(Drafter::Suffix, 0, it));
        let answer = &tokens[prompt..];
        let expected = &self.prediction.tokens;
        // An answer that is the prediction so far has too few tokens to be found at first.
        let begins = answer.len() < expected.len() && expected.starts_with(answer);
        let begun = SuffixMatch { end: answer.len(), len: EXPECTED + answer.len() };
        let predicted = if begins { Some(begun) } else { self.prediction.find(tokens) };
        let predicted = predicted.map(|it| place(Drafter::Prediction, 0, it));
        let past = memory.find(self.space, tokens);
        let past = past.map(|(text, it)| place(Drafter::Memory, text, it));
        // The first of equal ones.
        [past, predicted, own].into_iter().flatten().max_by_key(|place| place.len)
    }

    /// Whether layers may draft, as nothing else has.
    pub fn wants_layers(&self) -> bool {
        self.speculate.uses_layers() && self.tokens.is_empty() && self.max > 0
    }

    /// Whether a second model may draft, as nothing else has.
    pub fn wants_model(&self) -> bool {
        self.speculate.uses_model() && self.tokens.is_empty() && self.max > 0
    }

    /// Adds a token that `drafter` has computed with this probability.
    pub fn add(&mut self, drafter: Drafter, token: u32, probability: f32) {
        if self.tokens.is_empty() {
            self.drafter = drafter;
            self.evidences.clear();
            self.followed = None;
        }
        self.tokens.push(token);
        self.evidences.push(evidence_of(probability));
    }

    /// Whether a further token may be added.
    pub fn may_add(&self) -> bool {
        self.tokens.len() < self.max
    }

    /// The probability that an added token comes out, before it is drafted; `all` is the share
    /// in all sequences.
    pub fn expected(&self, all: f32) -> f32 {
        self.share.unwrap_or(all)
    }

    /// What the token at this place rests on.
    fn evidence_at(&self, at: usize) -> usize {
        let has_own = self.drafter.has_probabilities();
        if has_own { self.evidences[at] } else { self.evidence + at }
    }

    /// The drafted tokens that a step may verify.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens[..self.max.min(self.tokens.len())]
    }

    /// Keeps the first `len` drafted tokens, if there are more to verify.
    pub fn truncate(&mut self, len: usize) {
        if len < self.tokens().len() {
            self.tokens.truncate(len);
        }
    }

    /// Whether all drafted tokens are verified, whatever that costs.
    pub fn is_fixed(&self) -> bool {
        self.drafter == Drafter::Ngram
    }

    /// The drafter of the tokens.
    pub fn drafter(&self) -> Drafter {
        self.drafter
    }

    /// For each drafted token the probability that it comes out with all before it; `all` is the
    /// acceptance in all sequences.
    pub fn chances(&self, all: &Acceptance) -> impl Iterator<Item = f32> {
        let mut together = 1.0;
        (0..self.tokens().len()).map(move |at| {
            together *= self.acceptance.chance(all, self.drafter, self.evidence_at(at));
            together
        })
    }

    /// The tokens that `planned` verifies.
    pub fn planned(&self, planned: &Planned) -> &[u32] {
        &self.tokens[..planned.drafts]
    }

    /// Counts the tokens verified in a step, and those of them accepted.
    pub fn count(&mut self, drafted: usize, accepted: usize) {
        self.drafted += drafted;
        self.accepted += accepted;
        self.accepted_now = accepted;
    }

    /// Compares the draft with the tokens `sampled` in its step, verified ones and the one after,
    /// and forgets it.
    pub fn learn(&mut self, sampled: &[u32], all: &mut Acceptance) {
        let pairs = || self.tokens.iter().zip(sampled);
        let compared = pairs().count();
        let right = pairs().take_while(|(drafted, sampled)| drafted == sampled).count();
        for at in 0..compared.min(right + 1) {
            self.acceptance.add(all, self.drafter, self.evidence_at(at), at < right);
        }
        if self.drafter.has_probabilities() && compared > 0 {
            let came = f32::from(u8::from(right > 0));
            let share = self.share.unwrap_or(all.share);
            self.share = Some(share + NEW_SHARE * (came - share));
            all.share += NEW_SHARE_ALL * (came - all.share);
            all.came |= right > 0;
        }
        self.align(sampled.len(), (compared, right));
        self.tokens.clear();
    }

    /// Sets where the text that was followed continues after `sampled` tokens: `compared` ones, of
    /// which the first were `right`. After a wrong one, the text may have another token in its
    /// place.
    fn align(&mut self, sampled: usize, (compared, right): (usize, usize)) {
        let Some(place) = self.followed.as_mut().filter(|it| it.drafter == self.drafter) else {
            self.followed = None;
            return;
        };
        if right == compared && compared < sampled {
            // The draft ended before the step did.
            self.followed = None;
        } else if right == compared {
            (place.end, place.len) = (place.end + right, place.len + right);
            self.misses = if right > 0 { 0 } else { self.misses };
        } else {
            (place.end, place.len) = (place.end + right + 1, 0);
            self.misses = if right > 0 { 1 } else { self.misses + 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(speculate: Speculate, prediction: Vec<u32>) -> RequestDraft {
        let (generates, space) = (true, [0; 16]);
        RequestDraft::new(DraftSources { speculate, generates, prediction, space })
    }

    /// Writes `answer` after `prompt`, verifying two drafts a step; returns how many were right.
    fn write(prompt: &[u32], answer: &[u32], expected: &[u32]) -> (usize, usize) {
        let mut draft = draft(Speculate::default(), expected.to_vec());
        let (mut all, mut memory) = (Acceptance::default(), DraftMemory::new(0));
        let (mut tokens, mut drafted, mut accepted) = (prompt.to_vec(), 0, 0);
        let mut written = 0;
        while written < answer.len() {
            draft.find((&tokens, prompt.len()), &[], MAX_DRAFTED, &mut memory);
            let verified = draft.tokens().iter().take(2);
            let right = verified.clone().zip(&answer[written..]).take_while(|(a, b)| a == b);
            let right = right.count().min(answer.len() - written - 1);
            (drafted, accepted) = (drafted + verified.count(), accepted + right);
            let sampled = &answer[written..=written + right];
            draft.learn(sampled, &mut all);
            tokens.extend_from_slice(sampled);
            written += sampled.len();
        }
        (drafted, accepted)
    }

    #[test]
    fn a_text_is_followed_over_tokens_that_were_replaced() {
        let old: Vec<u32> = (0..200).map(|at| at * 7919 % 50_021).collect();
        let mut new = old.clone();
        for at in [50, 51, 100, 150] {
            new[at] = 60_000 + at as u32;
        }
        // In the prompt and as a prediction. A draft is wrong at each of the four, and a few before
        // the first three tokens are found.
        for (prompt, expected) in [(&old[..], &[][..]), (&[7, 8], &old)] {
            let (drafted, accepted) = write(prompt, &new, expected);
            assert!(drafted - accepted <= 10, "{accepted} of {drafted}");
            assert!(accepted >= 120, "{accepted} of {drafted}");
        }
        let (_, accepted) = write(&old, &old, &[]);
        assert!(accepted >= 130);
    }

    #[test]
    fn another_text_is_not_followed_for_long() {
        let old: Vec<u32> = (0..100).map(|at| at * 7919 % 50_021).collect();
        let new: Vec<u32> = (0..100).map(|at| 60_000 + at).collect();
        let text = [&old[..30], &new].concat();
        let (drafted, accepted) = write(&old, &text, &[]);
        assert!(drafted - accepted <= 2 * (MAX_MISSES + 1), "{accepted} of {drafted}");
    }

    #[test]
    fn what_is_forced_comes_first() {
        let mut draft = draft(Speculate::Auto(3), vec![5, 6, 7, 8, 9]);
        let mut memory = DraftMemory::new(0);
        let mut find = |forced: &[u32], most| {
            draft.find((&[1, 5, 6], 1), forced, most, &mut memory);
            (draft.drafter(), draft.tokens().to_vec())
        };
        assert_eq!(find(&[], 16), (Drafter::Prediction, vec![7, 8, 9]));
        assert_eq!(find(&[7, 8], 16), (Drafter::Prediction, vec![7, 8, 9]));
        assert_eq!(find(&[1, 2, 3, 4], 16), (Drafter::Forced, vec![1, 2, 3, 4]));
        assert_eq!(find(&[1, 2, 3, 4], 2), (Drafter::Forced, vec![1, 2]));
        assert!(find(&[], 0).1.is_empty());
    }
}
