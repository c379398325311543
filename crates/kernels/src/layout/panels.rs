//! How activation rows are cut into panels, the height of a register tile each.

/// First row and width of each panel of `rows` rows: as many of `most` as there are, then
/// one of each power of two that the rest needs.
pub(crate) fn panels(rows: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let left = rows - start;
        if left == 0 {
            return None;
        }
        let width = if left >= most { most } else { 1 << left.ilog2() };
        start += width;
        Some((start - width, width))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_cover_all_rows_in_order() {
        for rows in 0..40 {
            for most in [1, 2, 4, 6, 8] {
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
            }
        }
    }
}
