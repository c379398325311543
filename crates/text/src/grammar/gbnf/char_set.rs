//! Sets of characters as ranges of code points.

/// The last code point.
const LAST: u32 = 0x10_FFFF;
/// Code points that are no characters.
const SURROGATES: (u32, u32) = (0xD800, 0xDFFF);

/// A set of characters: sorted, disjoint ranges with both ends, without surrogates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CharSet(Vec<(u32, u32)>);

impl CharSet {
    /// Returns the union of `ranges`, each from its first to its last code point.
    pub fn new(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last)
                }
                _ => joined.push((first, last)),
            }
        }
        let (low, high) = SURROGATES;
        let cut =
            |(first, last): (u32, u32)| [(first, last.min(low - 1)), (first.max(high + 1), last)];
        let mut set: Vec<(u32, u32)> = joined.into_iter().flat_map(cut).collect();
        set.retain(|(first, last)| first <= last);
        set.dedup();
        Self(set)
    }

    pub fn one(c: char) -> Self {
        Self(vec![(c.into(), c.into())])
    }

    pub fn all() -> Self {
        Self::new(vec![(0, LAST)])
    }

    /// Returns the characters that are not in the set.
    pub fn negated(&self) -> Self {
        let (mut ranges, mut next) = (Vec::new(), 0);
        for &(first, last) in &self.0 {
            if next < first {
                ranges.push((next, first - 1));
            }
            next = last + 1;
        }
        if next <= LAST {
            ranges.push((next, LAST));
        }
        Self::new(ranges)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    /// Whether the sets have a character in common.
    pub fn meets(&self, other: &Self) -> bool {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            match (x.1 < y.0, y.1 < x.0) {
                (true, _) => drop(a.next()),
                (_, true) => drop(b.next()),
                _ => return true,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_normal_and_leave_out_surrogates() {
        let set = CharSet::new(vec![(5, 9), (1, 3), (4, 4), (0xD000, 0xE000)]);
        assert_eq!(set.ranges(), [(1, 9), (0xD000, 0xD7FF), (0xE000, 0xE000)]);
        assert_eq!(set.negated().negated(), set);
        assert!(!set.meets(&set.negated()));
        assert!(CharSet::all().negated().is_empty());
        assert!(set.meets(&CharSet::one('\t')) && !set.meets(&CharSet::one('a')));
    }
}
