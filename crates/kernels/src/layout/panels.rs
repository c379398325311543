//! How activation rows are cut into panels, the height of a register tile each.

use std::ops::Range;

/// Widths of panels, as far as register tiles are that high.
const WIDTHS: [usize; 8] = [1, 2, 3, 4, 5, 6, 8, 12];

/// First row and width of each panel of `rows` rows, which become narrower: panels of `most`, then
/// a few of nearly equal width. A pass over the weights takes a narrow panel almost as long as a
/// wide one, so that their number counts first, and the widest second.
pub(crate) fn panels(rows: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let width = widest(rows - start, most);
        start += width;
        (width > 0).then_some((start - width, width))
    })
}

/// Width of the first panel of `left` rows.
fn widest(left: usize, most: usize) -> usize {
    let is_width = |width: &usize| WIDTHS.contains(width) && *width <= most;
    if left == 0 || is_width(&left) {
        return left;
    }
    if left > 2 * most {
        return most;
    }
    let mut enough = (left.div_ceil(2)..=most).filter(is_width);
    let first = enough.clone().next().expect("`most` is a width");
    enough.find(|width| is_width(&(left - width))).unwrap_or(first)
}

/// Runs of about `each` of `rows` rows, which have the same panels alone as together. The last one
/// may have almost `most` more.
pub(crate) fn runs(rows: usize, most: usize, each: usize) -> impl Iterator<Item = Range<usize>> {
    let each = (each / most).max(1) * most;
    let mut start = 0;
    std::iter::from_fn(move || {
        let left = rows - start;
        let len = if left < each + most { left } else { each };
        start += len;
        (len > 0).then_some(start - len..start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_cover_all_rows_in_order() {
        for rows in 0..60 {
            for most in [1, 2, 4, 6, 8, 12] {
                let mut next = 0;
                let mut widths = Vec::new();
                for (start, width) in panels(rows, most) {
                    assert!(start == next && WIDTHS.contains(&width) && width <= most);
                    next += width;
                    widths.push(width);
                }
                assert_eq!(next, rows);
                assert!(widths.is_sorted_by(|a, b| a >= b), "{widths:?}");
                let fewest = rows.div_ceil(most);
                assert!((fewest..=fewest + 1).contains(&widths.len()), "{widths:?}");
            }
        }
    }

    #[test]
    fn the_last_panels_are_of_nearly_equal_width() {
        let widths = |rows, most| panels(rows, most).map(|(_, width)| width).collect::<Vec<_>>();
        assert_eq!(widths(7, 6), [4, 3]);
        assert_eq!(widths(9, 6), [5, 4]);
        assert_eq!(widths(13, 6), [6, 4, 3]);
        assert_eq!(widths(5, 4), [3, 2]);
        assert_eq!(widths(9, 12), [5, 4]);
        assert_eq!(widths(15, 12), [12, 3]);
        assert_eq!(widths(32, 12), [12, 12, 8]);
    }

    #[test]
    fn runs_have_the_panels_of_all_rows() {
        for rows in 0..90 {
            for (most, each) in [(1, 3), (4, 1), (6, 20), (8, 8), (12, 1), (12, 30)] {
                let mut parts = Vec::new();
                for run in runs(rows, most, each) {
                    assert!(run.len() < each.max(most) + most, "{run:?}");
                    parts
                        .extend(panels(run.len(), most).map(|(at, width)| (run.start + at, width)));
                }
                assert_eq!(parts, panels(rows, most).collect::<Vec<_>>(), "{rows} of {most}");
            }
        }
    }
}
