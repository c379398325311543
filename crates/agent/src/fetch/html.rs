//! HTML as text.
//!
//! Invariant: time and memory grow with the page's length only, whatever the page is. The package
//! `html2text` gets simplified pages: their depth, elements and lines are limited, and they have no
//! attributes and no tables, which otherwise take quadratic time.

use crate::fetch::simplify::{Simplified, simplify};

/// Columns of the text: more than a page has, so that no line is broken.
const COLUMNS: usize = 16 << 20;

/// The text of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageText {
    pub(crate) text: String,
    /// Whether the page has too many elements, so that the text is not the whole.
    pub(crate) is_cut: bool,
}

impl PageText {
    /// The text of `html`: headings, lists, links and code as in Markdown, and the cells of a row
    /// of a table on one line.
    pub(crate) fn of(html: &str) -> Self {
        let Simplified { html, is_cut } = simplify(html);
        let config = html2text::config::plain_no_decorate().allow_width_overflow();
        match config.string_from_read(html.as_bytes(), COLUMNS) {
            Ok(text) => Self { text: tidy(&text), is_cut },
            // Without tables and with so many columns there is no known case.
            Err(error) => Self { text: format!("[no text: {error}]\n"), is_cut: true },
        }
    }
}

/// `text` without spaces at ends of lines, and with at most one empty line in a row.
fn tidy(text: &str) -> String {
    let mut tidied = String::with_capacity(text.len());
    let mut empty_lines = 0;
    for line in text.lines().map(str::trim_end) {
        empty_lines = if line.is_empty() { empty_lines + 1 } else { 0 };
        if empty_lines < 2 && !(line.is_empty() && tidied.is_empty()) {
            tidied.push_str(line);
            tidied.push('\n');
        }
    }
    tidied
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(html: &str, expected: &str) {
        assert_eq!(PageText::of(html), PageText { text: expected.to_owned(), is_cut: false });
    }

    #[test]
    fn a_page_is_text_as_in_markdown() {
        check(
            "<html><head><title>A &amp; B</title><style>p{}</style></head><body><h2>Head</h2>\
             <p>One <b>two</b>\n three<p>Four <a href='/x?a=1&amp;b=2'>link</a>, <a href='#f'>f</a>\
             <a href=/y><img src=z></a>.<ul><li>a<li>b <code>c&lt;d</code><ul><li>n</ul></ul>\
             <ol><li>x</li><li>y</li></ol>z<hr><img alt='A cat'><br>last",
            "A & B\n\n## Head\n\nOne two three\n\nFour [link](/x?a=1&b=2), f.\n* a\n\
             * b `c<d`\n  * n\n1. x\n2. y\n\nz\n---\n[image: A cat]\nlast\n",
        );
        check(
            "<pre><code>if <i>a</i> &lt; 1 {\n    b\n}</code></pre><blockquote>q</blockquote>",
            "```\nif a < 1 {\n    b\n}\n```\n\n> q\n",
        );
        check("<dl><dt>term<dd>meaning</dl>", "term\n  meaning\n");
        check("a < b <3 <!-- <p> --> &eacute;&#x1F600;&#0;", "a < b <3 é😀\u{fffd}\n");
        check("", "");
    }

    #[test]
    fn the_cells_of_a_row_are_on_one_line() {
        check(
            "<table><thead><tr><th>A</th><th>B</th></tr></thead><tbody><tr><td><p>1</p></td>\
             <td>2 <a href=u>v</a></td></tr><tr><td>3<td><div>4</div></table><p>end",
            "A | B\n1 | 2 [v](u)\n3 | 4\n\nend\n",
        );
    }

    #[test]
    fn hostile_pages_end_soon_and_in_little_text() {
        const BYTES: usize = 600_000;
        const MAX_TEXT_BYTES: usize = 4 << 20;
        let fill = |part: &str| part.repeat(BYTES / part.len());
        // Each of these takes minutes or a deep stack in a parser without limits.
        for part in ["<div>", "<a", "<ol><li>x", "<table><tr><td>", "<p><b><a href=x>", "<li><dd>x"]
        {
            let page = PageText::of(&fill(part));
            assert!(page.text.len() < MAX_TEXT_BYTES, "{part}: {}", page.text.len());
        }
        let long = "y".repeat(2 << 20);
        for attribute in [format!("a='{long}'"), fill("y "), fill("y=")] {
            check(&format!("<p {attribute}>x</p>"), "x\n");
        }
        let quoted = format!("{}<pre>{}", "<blockquote>".repeat(1000), fill("a\n"));
        let page = PageText::of(&quoted);
        assert!(page.is_cut && page.text.len() < MAX_TEXT_BYTES, "{}", page.text.len());
    }

    proptest! {
        #[test]
        fn any_elements_are_a_page(
            parts in prop::collection::vec((prop::sample::select(ELEMENTS), any::<bool>()), 0..60),
        ) {
            let tag = |(name, is_end): &(&str, bool)| match is_end {
                true => format!("</{name}>"),
                false => format!("<{name} href=x>"),
            };
            let page: String = parts.iter().map(|part| tag(part) + "\n x\0&lt;").collect();
            prop_assert!(!PageText::of(&page).is_cut);
        }

        #[test]
        fn any_text_is_a_page(page in "[<>/a-z!\"'= &;#é\\-]{0,80}") {
            prop_assert!(!PageText::of(&page).is_cut);
        }
    }

    const ELEMENTS: &[&str] = &[
        "a",
        "blockquote",
        "br",
        "code",
        "dd",
        "div",
        "dl",
        "dt",
        "h1",
        "hr",
        "html",
        "li",
        "ol",
        "p",
        "pre",
        "table",
        "td",
        "tr",
        "ul",
    ];
}
