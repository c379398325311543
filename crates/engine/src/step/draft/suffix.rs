//! Where a text continues like the end of another: an index of runs of tokens.
//!
//! The index holds, for every run of a few lengths, its places in the text as a chain from the last
//! to the first, as LZ77 compressors do (Deutsch, RFC 1951, section 4): a table of the last place
//! for each hash, and for each place the one before. Hashes decide where to look; tokens decide
//! what is found.

/// Lengths of the runs, the longest first.
const RUNS: [usize; 4] = [24, 12, 6, 3];
/// Tokens before a place that are compared at most.
pub(crate) const MAX_COMPARED: usize = 64;
/// Places of a hash that are looked at.
const PROBES: usize = 8;
/// Places of a run that are compared at their whole length.
const PLACES: usize = 2;
/// Tokens that one call indexes at most, so that a long prompt delays no step by much.
const AT_ONCE: usize = 1 << 13;
/// Spare tokens of the index of a text that others follow.
const SPARE: usize = 64;
/// No place.
const NONE: u32 = u32::MAX;
/// Base of the polynomial hashes, and the factor that spreads them (both odd).
const BASE: u64 = 0x9E37_79B9_7F4A_7C15;
const SPREAD: u64 = 0xD6E8_FEB8_6659_FD93;

/// The runs of a text, by the tokens that they hold. The text is passed to each call: the same one,
/// to which tokens were appended.
#[derive(Clone, Debug, Default)]
pub(super) struct SuffixIndex {
    /// Tokens that are indexed.
    len: usize,
    /// Hashes of the runs that end there.
    hashes: [u64; RUNS.len()],
    /// Ends of the last runs by length and bucket.
    heads: Vec<u32>,
    /// For each token the ends of the runs before, in the same buckets as the runs that it ends.
    previous: Vec<[u32; RUNS.len()]>,
    /// Maximum number of tokens.
    capacity: usize,
    /// Tokens by which it grows, besides a quarter of the text.
    spare: usize,
}

/// A place where a text continues like the end of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SuffixMatch {
    /// Tokens of the text before the place.
    pub end: usize,
    /// Number of tokens before it that are those at the end of the other, up to [`MAX_COMPARED`].
    pub len: usize,
}

/// A text with its index.
#[derive(Clone, Debug)]
pub(super) struct IndexedText {
    pub tokens: Vec<u32>,
    index: SuffixIndex,
}

impl IndexedText {
    pub fn new(tokens: Vec<u32>) -> Self {
        Self { tokens, index: SuffixIndex::new(SPARE) }
    }

    /// As [`SuffixIndex::extend`].
    pub fn extend_index(&mut self) {
        self.index.extend(&self.tokens);
    }

    /// As [`SuffixIndex::find`].
    pub fn find(&self, query: &[u32]) -> Option<SuffixMatch> {
        self.index.find(&self.tokens, query)
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        4 * self.tokens.capacity() + self.index.bytes()
    }
}

impl SuffixIndex {
    /// The index of a text, which grows by at least `spare` tokens at a time.
    pub fn new(spare: usize) -> Self {
        Self { spare, ..Self::default() }
    }

    /// Indexes the next tokens of `text`, as many as take well below a millisecond.
    pub fn extend(&mut self, text: &[u32]) {
        if text.len() > self.capacity {
            self.grow(text.len());
        }
        let end = text.len().min(self.len + AT_ONCE);
        while self.len < end {
            self.push(text);
        }
    }

    /// Takes memory for more than `tokens`, with about a bucket for each run, and begins anew.
    fn grow(&mut self, tokens: usize) {
        let capacity = tokens + tokens / 4 + self.spare;
        *self = Self {
            heads: vec![NONE; capacity.next_power_of_two() * RUNS.len()],
            previous: Vec::with_capacity(capacity),
            capacity,
            ..Self::new(self.spare)
        };
    }

    /// Indexes the runs that end with the next token.
    fn push(&mut self, text: &[u32]) {
        let at = self.len;
        self.len += 1;
        let mut before = [NONE; RUNS.len()];
        for (kind, &run) in RUNS.iter().enumerate() {
            let hash = &mut self.hashes[kind];
            *hash = hash.wrapping_mul(BASE).wrapping_add(value(text[at]));
            if at >= run {
                let out = value(text[at - run]).wrapping_mul(POWERS[kind]);
                *hash = hash.wrapping_sub(out);
            }
            if self.len >= run {
                let bucket = bucket(*hash, kind, self.heads.len());
                before[kind] = std::mem::replace(&mut self.heads[bucket], self.len as u32);
            }
        }
        self.previous.push(before);
    }

    /// The place in `text` before which most tokens are those at the end of `query`, of the latest
    /// places of the longest run that is found. Tokens follow it.
    pub fn find(&self, text: &[u32], query: &[u32]) -> Option<SuffixMatch> {
        if self.heads.is_empty() {
            return None;
        }
        let runs = RUNS.iter().enumerate().filter(|(_, run)| **run <= query.len());
        runs.filter_map(|(kind, &run)| self.find_run(text, query, (kind, run))).next()
    }

    fn find_run(
        &self,
        text: &[u32],
        query: &[u32],
        (kind, run): (usize, usize),
    ) -> Option<SuffixMatch> {
        let wanted = &query[query.len() - run..];
        let hash = wanted
            .iter()
            .fold(0, |hash: u64, token| hash.wrapping_mul(BASE).wrapping_add(value(*token)));
        let mut at = self.heads[bucket(hash, kind, self.heads.len())];
        let (mut best, mut places): (Option<SuffixMatch>, _) = (None, 0);
        for _ in 0..PROBES {
            let Some(end) = Some(at as usize).filter(|_| at != NONE && places < PLACES) else {
                break;
            };
            if end < text.len() && text[..end].ends_with(wanted) {
                places += 1;
                let len = common_end(&text[..end], query);
                if best.is_none_or(|best| best.len < len) {
                    best = Some(SuffixMatch { end, len });
                }
            }
            at = self.previous[end - 1][kind];
        }
        best
    }

    fn bytes(&self) -> usize {
        4 * self.heads.capacity() + size_of::<[u32; RUNS.len()]>() * self.previous.capacity()
    }
}

/// Powers of the base by which the first token of a run has been multiplied when it leaves.
const POWERS: [u64; RUNS.len()] = {
    let mut powers = [1_u64; RUNS.len()];
    let mut kind = 0;
    while kind < RUNS.len() {
        let mut exponent = 0;
        while exponent < RUNS[kind] {
            powers[kind] = powers[kind].wrapping_mul(BASE);
            exponent += 1;
        }
        kind += 1;
    }
    powers
};

/// The coefficient of a token, which is not 0.
fn value(token: u32) -> u64 {
    u64::from(token) + 1
}

/// The bucket of a run of a length among `heads`, of which each length has the same number, a
/// power of two.
fn bucket(hash: u64, kind: usize, heads: usize) -> usize {
    let each = heads / RUNS.len();
    let spread = (hash ^ hash >> 32).wrapping_mul(SPREAD);
    kind * each + (spread >> (64 - each.trailing_zeros())) as usize
}

/// Number of equal tokens at the ends of two texts, up to [`MAX_COMPARED`].
fn common_end(one: &[u32], other: &[u32]) -> usize {
    let pairs = one.iter().rev().zip(other.iter().rev()).take(MAX_COMPARED);
    pairs.take_while(|(one, other)| one == other).count()
}

/// The tokens that follow `end` in `text`.
pub(super) fn following(text: &[u32], end: usize) -> impl Iterator<Item = u32> {
    text.iter().skip(end).copied()
}

/// The tokens that follow `end` in `text` if it continues as after `end`, without an end.
pub(super) fn repeating(text: &[u32], end: usize) -> impl Iterator<Item = u32> {
    text.iter().skip(end).copied().cycle()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use std::io::Write;

    /// Length of the shortest run that is found.
    const MIN_RUN: usize = RUNS[RUNS.len() - 1];

    /// The longest match, by comparing every place.
    fn searched(text: &[u32], query: &[u32]) -> usize {
        let lens = (1..text.len()).map(|end| common_end(&text[..end], query));
        lens.max().unwrap_or(0)
    }

    fn indexed(tokens: &[u32]) -> IndexedText {
        let mut text = IndexedText::new(tokens.to_vec());
        while text.index.len < tokens.len() {
            text.extend_index();
        }
        text
    }

    #[test]
    fn what_is_found_holds_and_a_run_that_occurs_is_found() {
        let mut rng = Rng::new(7);
        let (mut own, mut hits, mut misses) = (IndexedText::new(Vec::new()), 0, 0);
        for _ in 0..5000 {
            // Of few words, or a copy from further up.
            let copy = own.tokens.len() > 200 && rng.below(3) == 0;
            let from = rng.below(own.tokens.len().max(1) as u64) as usize;
            for at in 0..1 + rng.below(40) as usize {
                let word = if copy { own.tokens[from + at] } else { rng.below(9) as u32 };
                own.tokens.push(word);
                own.extend_index();
                let Some(found) = own.find(&own.tokens) else {
                    misses += usize::from(searched(&own.tokens, &own.tokens) >= MIN_RUN);
                    continue;
                };
                hits += 1;
                let common = common_end(&own.tokens[..found.end], &own.tokens);
                assert!(found.end < own.tokens.len() && found.len == common);
                assert!(common >= MIN_RUN);
            }
            if own.tokens.len() > 3000 {
                break;
            }
        }
        // More runs of one hash than are looked at.
        assert!(hits > 1000 && misses < hits / 100, "{hits} {misses}");
    }

    #[test]
    fn the_longest_run_is_followed() {
        let long: Vec<u32> = (0..30).collect();
        let text = [&long[..], &[90, 91], &long[20..], &[80]].concat();
        let query = [&[5], &long[..]].concat();
        let found = indexed(&text).find(&query).unwrap();
        assert_eq!(found, SuffixMatch { end: 30, len: 30 });
        assert!(following(&text, found.end).take(4).eq([90, 91, 20, 21]));
        // The last of equal ones.
        let text = [1, 2, 3, 4, 1, 2, 3, 5, 9, 1, 2, 3];
        assert_eq!(indexed(&text).find(&text).unwrap().end, 7);
        assert_eq!(indexed(&text).find(&[1, 2, 3]).unwrap().len, 3);
        assert_eq!(indexed(&text).find(&[2, 3]), None);
        assert_eq!(indexed(&[]).find(&[1, 2, 3]), None);
    }

    #[test]
    fn a_repetition_has_no_end() {
        let text = [7, 4, 5, 4, 5, 4, 5];
        let found = indexed(&text).find(&text).unwrap();
        assert_eq!(found.end, 5);
        assert!(repeating(&text, found.end).take(5).eq([4, 5, 4, 5, 4]));
        assert!(following(&text, found.end).take(5).eq([4, 5]));
    }

    #[test]
    fn an_index_grows_with_its_text_and_finds_all_of_it_again() {
        let mut rng = Rng::new(3);
        let tokens: Vec<u32> = (0..3 * AT_ONCE).map(|_| rng.below(50_000) as u32).collect();
        let mut text = IndexedText::new(Vec::new());
        for chunk in tokens.chunks(700) {
            text.tokens.extend_from_slice(chunk);
            text.extend_index();
        }
        text.extend_index();
        for at in [30, AT_ONCE, 2 * AT_ONCE + 1] {
            let found = text.find(&tokens[at - 24..at]).unwrap();
            assert_eq!(found, SuffixMatch { end: at, len: 24 });
        }
        assert!(text.bytes() < 200 * tokens.len());
    }

    /// Prints the time of a look-up with the update before it, which docs/performance.md has.
    #[test]
    #[ignore = "a measurement"]
    fn time_of_a_look_up() {
        let mut rng = Rng::new(5);
        // Texts of few words, so that short runs have many places, and copies for long ones.
        let mut tokens: Vec<u32> = (0..1 << 16).map(|_| rng.below(40) as u32).collect();
        tokens.extend_from_within(..);
        let mut text = indexed(&tokens);
        let (mut times, mut found) = (Vec::new(), 0);
        for &copied in &tokens[..4000] {
            text.tokens.push(if rng.below(2) == 0 { copied } else { rng.below(40) as u32 });
            let start = std::time::Instant::now();
            text.extend_index();
            found += usize::from(text.find(&text.tokens).is_some());
            times.push(start.elapsed());
        }
        times.sort();
        let [median, late] = [times[2000], times[3960]];
        let count = tokens.len();
        let times = format!("{count} tokens: {median:?}, 99 % within {late:?}");
        std::io::stdout().write_all(format!("{times}; {found} found\n").as_bytes()).unwrap();
    }
}
