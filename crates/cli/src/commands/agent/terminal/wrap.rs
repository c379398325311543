//! Rows of text: lines are cut between words where they fit no more, and words that are longer than
//! a row between characters as they are seen.
//!
//! Invariant: a row that was cut off stays as it is when text is added to the line.

use ratatui_core::buffer::CellWidth;
use ratatui_core::style::Style;
use ratatui_core::text::Span;

/// Most bytes of a row, whatever its width.
const MAX_ROW_BYTES: usize = 4096;

/// Where the first row of a line ends, and where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowCut {
    /// The end of the row.
    pub end: usize,
    /// The beginning of the next one, after the spaces at which the line is cut.
    pub next: usize,
}

/// The first row of a line of printable text, in `width` cells; `None` if all of it fits.
pub(super) fn first_row(line: &str, width: usize) -> Option<RowCut> {
    let (mut at, mut used) = (0, 0);
    let mut space = None;
    for grapheme in Span::raw(line).styled_graphemes(Style::default()) {
        let symbol = grapheme.symbol;
        let cells = usize::from(symbol.cell_width());
        if symbol == " " {
            // Spaces at the end of a row may stand outside of it.
            space = Some(at + 1);
        } else if at > 0 && (used + cells > width || at + symbol.len() > MAX_ROW_BYTES) {
            return Some(cut(line, at, space));
        }
        if at > MAX_ROW_BYTES {
            return Some(cut(line, at, space));
        }
        at += symbol.len();
        used += cells;
    }
    None
}

/// Cuts after the last space before `at`, or else at `at`.
fn cut(line: &str, at: usize, space: Option<usize>) -> RowCut {
    let end = space.map_or(0, |space| line[..space].trim_end_matches(' ').len());
    match space {
        // Spaces at the beginning are no place for a cut: what is left would be no shorter.
        Some(next) if end > 0 => RowCut { end, next },
        _ => RowCut { end: at, next: at },
    }
}

/// The rows of a line.
pub(super) fn rows(mut line: &str, width: usize) -> Vec<&str> {
    let mut rows = Vec::new();
    while let Some(RowCut { end, next }) = first_row(line, width) {
        rows.push(&line[..end]);
        line = &line[next..];
    }
    rows.push(line);
    rows
}

/// As much of a line as fits in `width` cells, with an ellipsis if that is not all.
pub(super) fn fitted(line: &str, width: usize) -> String {
    if usize::from(line.cell_width()) <= width {
        return line.to_owned();
    }
    let (mut end, mut used) = (0, 0);
    for grapheme in Span::raw(line).styled_graphemes(Style::default()) {
        used += usize::from(grapheme.symbol.cell_width());
        if used + 1 > width {
            break;
        }
        end += grapheme.symbol.len();
    }
    let ellipsis = if width == 0 { "" } else { "…" };
    format!("{}{ellipsis}", &line[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(line: &str, width: usize, expected: &[&str]) {
        assert_eq!(rows(line, width), expected, "{line:?} in {width}");
    }

    #[test]
    fn lines_are_cut_between_words_and_long_words_anywhere() {
        check("", 5, &[""]);
        check("one two three", 7, &["one two", "three"]);
        check("one two  three", 7, &["one two", "three"]);
        check("abcdefgh", 3, &["abc", "def", "gh"]);
        check("a abcdefgh", 3, &["a", "abc", "def", "gh"]);
        check("  indented word", 8, &["  indent", "ed word"]);
        check("漢字漢字", 5, &["漢字", "漢字"]);
        check("漢", 1, &["漢"]);
    }

    #[test]
    fn a_text_is_fitted_with_an_ellipsis() {
        assert_eq!(fitted("abc", 3), "abc");
        assert_eq!(fitted("abcd", 3), "ab…");
        assert_eq!(fitted("漢字", 3), "漢…");
        assert_eq!(fitted("abc", 0), "");
    }

    proptest! {
        #[test]
        fn rows_fit_and_keep_all_but_spaces(line in "[ a-d漢👩\u{301}]{0,80}", width in 2usize..20) {
            let rows = rows(&line, width);
            for row in &rows {
                let cells = usize::from(row.trim_end().cell_width());
                prop_assert!(cells <= width, "{row:?} in {width}");
            }
            prop_assert_eq!(rows.concat().replace(' ', ""), line.replace(' ', ""));
        }

        #[test]
        fn a_row_stays_when_text_is_added(line in "[ a-d漢]{0,40}", more in "[ a-d]{0,40}") {
            if let Some(cut) = first_row(&line, 9) {
                prop_assert_eq!(first_row(&format!("{line}{more}"), 9), Some(cut));
            }
        }
    }
}
