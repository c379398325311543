//! How activation rows are cut into panels, the height of a register tile each.

use std::ops::Range;

/// First row and width of each panel of `rows` rows: panels of `most`, then of powers of two that
/// become smaller. Two of the largest power are better than one of `most` and a narrower one.
pub(crate) fn panels(rows: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let left = rows - start;
        if left == 0 {
            return None;
        }
        let power = 1 << left.min(most).ilog2();
        let two = (2 * power..most + power).contains(&left);
        let width = if left >= most && !two { most } else { power };
        start += width;
        Some((start - width, width))
    })
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
        for rows in 0..40 {
            for most in [1, 2, 4, 6, 8, 12] {
                let mut next = 0;
                for (start, width) in panels(rows, most) {
                    assert!(
                        start == next
                            && (width == most || width.is_power_of_two())
                            && width <= most
                    );
                    next += width;
                }
                assert_eq!(next, rows);
                let widths: Vec<usize> = panels(rows, most).map(|(_, width)| width).collect();
                assert!(widths.is_sorted_by(|a, b| a >= b), "{widths:?}");
            }
        }
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
