//! Prompt lookup (Saxena, 2023): what followed the last few tokens at their previous occurrence.

/// Lengths of the runs of tokens that are looked up.
const MAX_RUN: usize = 4;
const MIN_RUN: usize = 2;

/// Up to `max` tokens that followed the latest earlier occurrence of the longest run at the end.
pub(super) fn continuation(tokens: &[u32], max: usize) -> &[u32] {
    for len in (MIN_RUN..=MAX_RUN).rev() {
        let Some(start) = tokens.len().checked_sub(len) else { continue };
        let run = &tokens[start..];
        let before = &tokens[..tokens.len() - 1];
        if let Some(at) = before.windows(len).rposition(|window| window == run) {
            let next = at + len;
            return &tokens[next..tokens.len().min(next + max)];
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tokens: &[u32], max: usize, expected: &[u32]) {
        assert_eq!(continuation(tokens, max), expected, "{tokens:?}");
    }

    #[test]
    fn what_followed_last_time_is_drafted() {
        check(&[1, 2, 3, 4, 9, 1, 2], 3, &[3, 4, 9]);
        check(&[1, 2, 3, 4, 9, 1, 2], 1, &[3]);
        check(&[1, 2, 5, 1, 2, 6, 1, 2], 2, &[6, 1]);
        // The longer run decides.
        check(&[7, 1, 2, 5, 1, 2, 6, 7, 1, 2], 1, &[5]);
        // A repetition is likely to continue.
        check(&[4, 4, 4, 4], 2, &[4]);
    }

    #[test]
    fn without_a_repetition_nothing_is_drafted() {
        check(&[], 4, &[]);
        check(&[1], 4, &[]);
        check(&[1, 2, 3], 4, &[]);
        check(&[1, 2, 3, 2], 4, &[]);
    }
}
