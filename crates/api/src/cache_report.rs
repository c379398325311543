//! What was found of a prompt in the cache, and why the rest was not.

use crate::prompt_history::{NearestPrompt, Past, SHOWN};
use engine::Request;
use sched::{CacheLookup, Unreached};
use text::Tokenizer;

/// What was found of a prompt in the cache, and why the rest was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheReport {
    /// Tokens that were looked up: all that need not be computed for the answer.
    pub looked_up: usize,
    /// Tokens found.
    pub found: usize,
    /// Of these, tokens that came from disk.
    pub from_disk: usize,
    /// Why most of the others were not found.
    pub cause: CacheCause,
    /// Where the prompt leaves the nearest of the caller's earlier ones, if that is the cause.
    pub difference: Option<Box<PromptDifference>>,
}

/// Why tokens of a prompt were not found in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheCause {
    /// All were found.
    #[default]
    None,
    /// The request does not use the cache.
    Off,
    /// The request needs outputs of its whole prompt.
    Outputs,
    /// The caller has sent no prompt before.
    FirstPrompt,
    /// The caller's earlier prompts used another part of the cache.
    OtherPart,
    /// They follow what the caller has sent before.
    NewTokens,
    /// The prompt differs from all others.
    UnknownPrefix,
    /// An earlier request still holds them.
    StillRunning,
    /// They were evicted.
    Evicted,
    /// Rows of layers with a window are missing.
    NoRows,
    /// A snapshot of states is missing.
    NoState,
}

impl CacheCause {
    /// All causes with their names and what they mean.
    pub const ALL: [(Self, &'static str, &'static str); 11] = [
        (Self::None, "none", "all tokens were found"),
        (Self::Off, "cache-off", "the request has its prompt computed without the cache"),
        (
            Self::Outputs,
            "prompt-outputs",
            "the request needs outputs of its whole prompt, which are not cached",
        ),
        (
            Self::FirstPrompt,
            "first-prompt",
            "the caller has sent no prompt since the model was loaded",
        ),
        (
            Self::OtherPart,
            "other-part",
            "the caller's earlier prompts had another salt or other adapters",
        ),
        (
            Self::NewTokens,
            "new-tokens",
            "the rest follows the caller's nearest earlier prompt and its answer",
        ),
        (Self::UnknownPrefix, "unknown-prefix", "no earlier prompt begins like this one"),
        (
            Self::StillRunning,
            "still-running",
            "an earlier request with the same tokens still runs, and only its full blocks are found",
        ),
        (Self::Evicted, "evicted", "the tokens are no longer in the cache"),
        (
            Self::NoRows,
            "no-rows",
            "rows that layers with a window look at are no longer in the cache",
        ),
        (Self::NoState, "no-state", "there is no snapshot of the states of recurrent layers"),
    ];

    /// The name of the cause.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// What the cause means, in words.
    pub fn meaning(self) -> &'static str {
        Self::ALL[self as usize].2
    }
}

/// Where a prompt leaves an earlier one of the same caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptDifference {
    /// Index of the first token that differs.
    pub token: usize,
    /// The message that it belongs to, where that is known.
    pub place: Option<MessagePlace>,
    /// Text of the tokens before it, which both prompts have.
    pub before: String,
    /// Text of the earlier prompt from there on.
    pub earlier: String,
    /// Text of this prompt from there on.
    pub now: String,
}

/// The part of a conversation to which a token of its prompt belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagePlace {
    /// Index of the message in the conversation as the template has it, where a system prompt is
    /// the first message; `None` before the content of the first.
    pub message: Option<usize>,
    /// Role of the message.
    pub role: Option<String>,
    /// Whether the token is part of the content of the message; otherwise the template wrote it
    /// after that, for instance the tools or the head of the next message.
    pub is_content: bool,
}

/// What is known of a prompt before it is looked up in the cache.
#[derive(Clone, Debug)]
pub(crate) struct PromptPast {
    pub past: Past,
    /// The message to which the first token that differs belongs.
    pub place: Option<MessagePlace>,
    /// Tokens before that one, and from it on.
    around: [Vec<u32>; 2],
}

impl PromptPast {
    /// The `past` of `prompt`.
    pub fn new(past: Past, prompt: &[u32]) -> Self {
        let at = match &past {
            Past::Nearest(nearest) => nearest.shared,
            _ => 0,
        };
        let before = prompt[at.saturating_sub(SHOWN)..at].to_vec();
        let now = prompt[at..].iter().copied().take(SHOWN).collect();
        Self { past, place: None, around: [before, now] }
    }

    /// The nearest earlier prompt.
    fn nearest(&self) -> Option<&NearestPrompt> {
        match &self.past {
            Past::Nearest(nearest) => Some(nearest),
            _ => None,
        }
    }

    /// Tokens that the prompt shares with the caller's nearest earlier one.
    pub fn shared(&self) -> usize {
        self.nearest().map_or(0, |nearest| nearest.shared)
    }

    /// Index of the first token that differs from the nearest earlier prompt.
    pub fn difference(&self) -> Option<usize> {
        let differs = |it: &&NearestPrompt| !it.rest.is_empty() && !self.around[1].is_empty();
        self.nearest().filter(differs).map(|nearest| nearest.shared)
    }

    /// The difference in words.
    fn described(&self, tokenizer: &Tokenizer) -> Option<Box<PromptDifference>> {
        let (token, nearest) = (self.difference()?, self.nearest()?);
        let [before, earlier, now] = [&self.around[0], &nearest.rest, &self.around[1]]
            .map(|tokens| tokenizer.decode(tokens, false));
        Some(Box::new(PromptDifference { token, place: self.place.clone(), before, earlier, now }))
    }
}

/// What decides the report of a request besides the cache.
#[derive(Clone, Debug)]
pub(crate) struct ReportContext {
    /// Why the cache is not used at all.
    unused: Option<CacheCause>,
    pub past: Option<PromptPast>,
}

impl ReportContext {
    /// The context of `request`.
    pub fn new(request: &Request, past: Option<PromptPast>) -> Self {
        let unused = match request {
            Request { cold: true, .. } => Some(CacheCause::Off),
            Request { prompt_logprobs: Some(_), prompt_logprobs_from: 0 | 1, .. } => {
                Some(CacheCause::Outputs)
            }
            _ => None,
        };
        Self { unused, past }
    }

    /// The report of a lookup.
    pub fn report(&self, lookup: &CacheLookup, tokenizer: &Tokenizer) -> CacheReport {
        let CacheLookup { looked_up, found, restored: from_disk, .. } = *lookup;
        let cause = self.cause(lookup);
        let is_unknown = cause == CacheCause::UnknownPrefix;
        let past = self.past.as_ref().filter(|past| is_unknown && past.shared() >= lookup.known());
        let difference = past.and_then(|past| past.described(tokenizer));
        CacheReport { looked_up, found, from_disk, cause, difference }
    }

    /// Why most of the tokens that are missing were not found.
    fn cause(&self, lookup: &CacheLookup) -> CacheCause {
        let Unreached { rows, state } = lookup.unreached;
        let unknown = lookup.looked_up.saturating_sub(lookup.known());
        match self.unused {
            Some(cause) => cause,
            None if lookup.looked_up <= lookup.found => CacheCause::None,
            None if state >= rows && state > unknown => CacheCause::NoState,
            None if rows > unknown => CacheCause::NoRows,
            None if lookup.evicted => CacheCause::Evicted,
            None => self.unknown(lookup),
        }
    }

    /// Why tokens are not known to the cache.
    fn unknown(&self, lookup: &CacheLookup) -> CacheCause {
        let nearest = match self.past.as_ref().map(|past| &past.past) {
            None => return CacheCause::UnknownPrefix,
            Some(Past::Nothing) => return CacheCause::FirstPrompt,
            Some(Past::OtherParts) => return CacheCause::OtherPart,
            Some(Past::Nearest(nearest)) => nearest,
        };
        let lost = nearest.shared.min(nearest.computed.unwrap_or(usize::MAX)) > lookup.known();
        match nearest.computed {
            None if lost => CacheCause::StillRunning,
            Some(_) if lost => CacheCause::Evicted,
            _ if nearest.rest.is_empty() => CacheCause::NewTokens,
            _ => CacheCause::UnknownPrefix,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(past: Past) -> ReportContext {
        let past = Some(PromptPast::new(past, &[7; 100]));
        ReportContext { unused: None, past }
    }

    fn nearest(shared: usize, rest: &[u32], computed: Option<usize>) -> Past {
        Past::Nearest(NearestPrompt { shared, rest: rest.into(), computed })
    }

    fn found(found: usize) -> CacheLookup {
        CacheLookup { looked_up: 99, found, ..CacheLookup::default() }
    }

    #[test]
    fn names_of_causes_are_in_their_order() {
        for (at, (cause, name, meaning)) in CacheCause::ALL.into_iter().enumerate() {
            assert_eq!((cause as usize, cause.name(), cause.meaning()), (at, name, meaning));
        }
    }

    #[test]
    fn the_cause_is_that_of_most_tokens() {
        let without = |rows, state, found| CacheLookup {
            unreached: Unreached { rows, state },
            ..self::found(found)
        };
        let past = context(Past::Nothing);
        assert_eq!(past.cause(&found(99)), CacheCause::None);
        assert_eq!(past.cause(&without(60, 0, 20)), CacheCause::NoRows);
        assert_eq!(past.cause(&without(20, 60, 10)), CacheCause::NoState);
        assert_eq!(past.cause(&without(10, 20, 0)), CacheCause::FirstPrompt);
        let evicted = CacheLookup { evicted: true, ..found(20) };
        assert_eq!(past.cause(&evicted), CacheCause::Evicted);
    }

    #[test]
    fn earlier_prompts_explain_what_the_cache_does_not_know() {
        let check = |past: Past, tokens: usize, expected: CacheCause| {
            assert_eq!(context(past.clone()).cause(&found(tokens)), expected, "{past:?}");
        };
        check(Past::Nothing, 0, CacheCause::FirstPrompt);
        check(Past::OtherParts, 0, CacheCause::OtherPart);
        check(nearest(40, &[], Some(40)), 40, CacheCause::NewTokens);
        // The last token of an answer is chosen and not computed.
        check(nearest(40, &[], Some(39)), 39, CacheCause::NewTokens);
        check(nearest(40, &[1], Some(70)), 40, CacheCause::UnknownPrefix);
        check(nearest(40, &[1], Some(70)), 32, CacheCause::Evicted);
        check(nearest(40, &[1], Some(20)), 20, CacheCause::UnknownPrefix);
        check(nearest(40, &[1], None), 32, CacheCause::StillRunning);
        let nobody = ReportContext { unused: None, past: None };
        assert_eq!(nobody.cause(&found(3)), CacheCause::UnknownPrefix);
    }

    #[test]
    fn requests_that_do_not_use_the_cache_say_so() {
        let cause = |request| ReportContext::new(&request, None).cause(&CacheLookup::default());
        assert_eq!(cause(Request { cold: true, ..Request::default() }), CacheCause::Off);
        let outputs = Request { prompt_logprobs: Some(0), ..Request::default() };
        assert_eq!(cause(outputs.clone()), CacheCause::Outputs);
        let later = Request { prompt_logprobs_from: 2, ..outputs };
        assert_eq!(cause(later), CacheCause::None);
        assert_eq!(cause(Request::default()), CacheCause::None);
    }
}
