//! Pages in few elements, before they are parsed.
//!
//! Invariant: tags of the result are those of [`CONTAINERS`], [`ITEMS`], `p` and `br`, without
//! attributes. Containers are well nested, with at most one open item directly inside each, and
//! the parser ends a `p` where the next one begins. So the parser's stack is not deeper than about
//! three times [`MAX_DEPTH`], and what it does for a tag takes a limited time.
//!
//! Source: the tokenizer of the HTML standard, without what only broken pages need.

use crate::fetch::tag::{HtmlTag, HtmlToken, HtmlTokens};

/// Most containers inside one another; tags of deeper ones are left out.
const MAX_DEPTH: usize = 48;

/// Most lists and quotations inside one another, each of which prefixes every line.
const MAX_INDENT: usize = 12;

/// Most tags, and lines of code, of a simplified page.
const MAX_PARTS: usize = 60_000;

/// Most bytes of a link's target that is shown.
const MAX_TARGET_BYTES: usize = 1 << 10;

/// Elements that contain others, and the element that stands for each.
const CONTAINERS: &[(&str, &str)] = &[
    ("a", ""),
    ("address", "div"),
    ("article", "div"),
    ("aside", "div"),
    ("blockquote", "blockquote"),
    ("body", "div"),
    ("caption", "div"),
    ("details", "div"),
    ("div", "div"),
    ("dl", "dl"),
    ("fieldset", "div"),
    ("figcaption", "div"),
    ("figure", "div"),
    ("footer", "div"),
    ("form", "div"),
    ("h1", "h1"),
    ("h2", "h2"),
    ("h3", "h3"),
    ("h4", "h4"),
    ("h5", "h5"),
    ("h6", "h6"),
    ("header", "div"),
    ("main", "div"),
    ("menu", "ul"),
    ("nav", "div"),
    ("ol", "ol"),
    ("pre", "pre"),
    ("section", "div"),
    ("summary", "div"),
    ("table", "div"),
    ("ul", "ul"),
];

/// Elements of lists, which end where the next one begins or their container ends.
const ITEMS: &[&str] = &["dd", "dt", "li"];

/// Elements whose content is no text of the page.
const SKIPPED: &[&str] = &[
    "canvas", "iframe", "noembed", "noframes", "object", "script", "style", "svg", "template",
    "textarea",
];

/// A simplified page.
pub(crate) struct Simplified {
    pub(crate) html: String,
    /// Whether the page has too many elements, so that its end is left out.
    pub(crate) is_cut: bool,
}

/// The page in few elements, of limited depth.
pub(crate) fn simplify(html: &str) -> Simplified {
    let mut tokens = HtmlTokens::new(html);
    let mut page = SimplePage::default();
    while page.parts < MAX_PARTS {
        match tokens.next() {
            Some(HtmlToken::Text(text)) => page.text(text),
            Some(HtmlToken::Start(tag)) if SKIPPED.contains(&tag.name.as_str()) => {
                tokens.skip_to_end(&tag.name);
            }
            Some(HtmlToken::Start(tag)) if tag.name == "title" => {
                page.title(tokens.raw_text("title"))
            }
            Some(HtmlToken::Start(tag)) => page.start(&tag),
            Some(HtmlToken::End(name)) => page.end(&name),
            None => return page.finished(false),
        }
    }
    page.finished(true)
}

/// A container that is open.
struct OpenContainer {
    name: &'static str,
    /// The element that stands for it; empty if none does.
    element: &'static str,
    /// Where a link begins and where it leads.
    link: Option<OpenLink>,
    /// The open item outside.
    item: Option<&'static str>,
}

struct OpenLink {
    start: usize,
    target: String,
}

/// The simplified page so far.
#[derive(Default)]
struct SimplePage {
    html: String,
    open: Vec<OpenContainer>,
    /// The open item of the innermost container.
    item: Option<&'static str>,
    parts: usize,
    has_title: bool,
    /// Cells so far, inside a row of a table.
    cells: Option<usize>,
    is_code: bool,
}

impl SimplePage {
    fn finished(mut self, is_cut: bool) -> Simplified {
        self.close_to(0);
        self.end_item();
        Simplified { html: self.html, is_cut }
    }

    /// Adds text, whose character references stay as they are; of code as many lines as may be.
    fn text(&mut self, text: &str) {
        let text = if self.is_inside("pre") { self.first_lines(text) } else { text };
        for (index, part) in text.split('<').enumerate() {
            self.html.push_str(if index > 0 { "&lt;" } else { "" });
            self.html.push_str(part);
        }
    }

    /// The lines of `text` that the limit leaves, which count as parts.
    fn first_lines<'a>(&mut self, text: &'a str) -> &'a str {
        let left = MAX_PARTS.saturating_sub(self.parts);
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at);
        let mut end = text.len();
        for (count, at) in ends.enumerate() {
            if count == left {
                end = at;
                break;
            }
            self.parts += 1;
        }
        &text[..end]
    }

    /// Adds the title of the page; drawings have some too.
    fn title(&mut self, text: &str) {
        if !self.has_title && !text.trim().is_empty() {
            self.start(&HtmlTag { name: "p".to_owned(), ..HtmlTag::default() });
            self.text(text.trim());
            self.end("p");
        }
        self.has_title = true;
    }

    fn start(&mut self, tag: &HtmlTag) {
        let is_pre = self.is_inside("pre");
        match tag.name.as_str() {
            "br" if is_pre => self.text("\n"),
            "br" => self.tag("br"),
            "hr" => self.rule(),
            "img" => self.image(tag),
            "code" | "kbd" | "samp" | "tt" if !is_pre && !self.is_code => self.code(true),
            "tr" if !is_pre => self.row(),
            "td" | "th" if !is_pre => self.cell(),
            "p" if self.cells.is_some() => self.text(" "),
            "p" => self.tag("p"),
            name => {
                if let Some(item) = ITEMS.iter().find(|item| **item == name) {
                    self.end_item();
                    self.tag(item);
                    self.item = Some(item);
                }
                if let Some((name, element)) = CONTAINERS.iter().find(|row| row.0 == name) {
                    self.container(name, element, tag);
                }
            }
        }
    }

    fn end(&mut self, name: &str) {
        match name {
            "code" | "kbd" | "samp" | "tt" if self.is_code => self.code(false),
            "tr" => self.cells = None,
            "p" if self.cells.is_some() => {}
            "p" => self.tag("/p"),
            name if self.item == Some(name) => self.end_item(),
            // A body's end is that of the page.
            "body" => {}
            name => {
                if let Some(index) = self.open.iter().rposition(|open| open.name == name) {
                    self.close_to(index);
                }
            }
        }
    }

    fn tag(&mut self, tag: &str) {
        self.html.push('<');
        self.html.push_str(tag);
        self.html.push('>');
        self.parts += 1;
    }

    fn is_inside(&self, name: &str) -> bool {
        self.open.iter().any(|open| open.name == name)
    }

    fn rule(&mut self) {
        self.tag("div");
        self.text("---");
        self.tag("/div");
    }

    fn image(&mut self, tag: &HtmlTag) {
        if let Some(text) = tag.alt.map(str::trim).filter(|text| !text.is_empty()) {
            self.text("[image: ");
            self.text(text);
            self.text("]");
        }
    }

    fn code(&mut self, is_start: bool) {
        self.is_code = is_start;
        self.text("`");
    }

    fn row(&mut self) {
        self.tag("br");
        self.cells = Some(0);
    }

    fn cell(&mut self) {
        let is_first = self.cells.is_none_or(|cells| cells == 0);
        self.text(if is_first { " " } else { " | " });
        self.cells = self.cells.map(|cells| cells + 1);
    }

    fn end_item(&mut self) {
        if let Some(item) = self.item.take() {
            self.tag(&format!("/{item}"));
        }
    }

    fn container(&mut self, name: &'static str, element: &'static str, tag: &HtmlTag) {
        let is_indent = |element: &str| matches!(element, "blockquote" | "dl" | "ol" | "ul");
        let indent = self.open.iter().filter(|open| is_indent(open.element)).count();
        let is_deep = self.open.len() >= MAX_DEPTH || is_indent(element) && indent >= MAX_INDENT;
        if is_deep || name == "pre" && self.is_inside("pre") {
            return;
        }
        if name == "table" {
            self.cells = None;
        }
        // The blocks of a cell are on the line of its row.
        let element = if self.cells.is_some() && element == "div" { "" } else { element };
        match (name, element) {
            ("a", _) => return self.link(name, tag),
            (_, "") => self.text(" "),
            _ => self.tag(element),
        }
        if name == "pre" {
            self.text("```\n");
        }
        self.push(OpenContainer { name, element, link: None, item: None });
    }

    fn link(&mut self, name: &'static str, tag: &HtmlTag) {
        // A link ends where the next one begins, if nothing else is open inside.
        if self.open.last().is_some_and(|open| open.name == name) {
            self.close_to(self.open.len() - 1);
        }
        let target = tag.href.unwrap_or_default();
        let link = is_shown(target).then(|| OpenLink {
            start: self.html.len(),
            target: target.replace(char::is_whitespace, "%20"),
        });
        if link.is_some() && !self.is_inside(name) {
            self.text("[");
            self.push(OpenContainer { name, element: "", link, item: None });
        }
    }

    fn push(&mut self, open: OpenContainer) {
        self.open.push(OpenContainer { item: self.item.take(), ..open });
    }

    /// Closes containers until `count` are open.
    fn close_to(&mut self, count: usize) {
        while self.open.len() > count {
            self.end_item();
            let Some(open) = self.open.pop() else { return };
            self.item = open.item;
            match (open.name, open.link) {
                (_, Some(link)) => self.end_link(&link),
                ("pre", _) => self.text("\n```"),
                ("table", _) => self.cells = None,
                _ => {}
            }
            if !open.element.is_empty() {
                self.tag(&format!("/{}", open.element));
            }
        }
    }

    /// Ends a link; one without a text is left out.
    fn end_link(&mut self, link: &OpenLink) {
        if self.html[link.start..].trim() == "[" {
            self.html.truncate(link.start);
            return;
        }
        self.text("](");
        self.text(&link.target);
        self.text(")");
    }
}

/// Whether a link's target is of use to a reader.
fn is_shown(target: &str) -> bool {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    let is_script = matches!(scheme.as_deref(), Some("javascript" | "data" | "vbscript"));
    let is_control = target.contains(|char: char| char.is_control());
    let is_long = target.len() > MAX_TARGET_BYTES;
    !(target.is_empty() || target.starts_with('#') || is_script || is_control || is_long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_becomes_few_elements() {
        let check = |html: &str, expected: &str| assert_eq!(simplify(html).html, expected);
        check("<SECTION id=x>a<span>b</span></section>", "<div>ab</div>");
        check("<ul><li>a</ul></ul>b", "<ul><li>a</li></ul>b");
        check("<li>a<dd>b</li>c</dd>", "<li>a</li><dd>bc</dd>");
        check("<li>a<ul><li>b</ul>c<dt>d", "<li>a<ul><li>b</li></ul>c</li><dt>d</dt>");
        check("<div><ul>a</div>b", "<div><ul>a</ul></div>b");
        check("<script>'<p>'</scriptx></script>a<svg><p></svg>", "a");
        check("a<b && c>d<3", "ad&lt;3");
        check("<a href=x>y<a href='javascript:z'>w</a>", "[y](x)w");
        check("<a href='a b'><p>x</a>", "[<p>x](a%20b)");
    }

    #[test]
    fn too_many_elements_are_cut() {
        let many = simplify(&"<br>".repeat(MAX_PARTS + 1));
        assert!(many.is_cut && many.html.len() == "<br>".len() * MAX_PARTS);
        let lines = simplify(&format!("<pre>{}", "\n".repeat(MAX_PARTS + 1)));
        assert!(lines.is_cut && lines.html.lines().count() <= MAX_PARTS + 2);
    }

    fn check_nesting(html: &str) -> Result<(), TestCaseError> {
        let mut open: Vec<String> = Vec::new();
        let is_item = |name: &str| ITEMS.contains(&name);
        for token in HtmlTokens::new(html) {
            match token {
                HtmlToken::Start(HtmlTag { name, href, alt }) => {
                    prop_assert!(href.is_none() && alt.is_none());
                    let is_container = CONTAINERS.iter().any(|row| row.1 == name);
                    let is_flat = matches!(name.as_str(), "p" | "br");
                    prop_assert!(is_container || is_flat || is_item(&name), "{}", name);
                    if !is_flat {
                        open.push(name);
                    }
                    prop_assert!(open.len() <= 2 * MAX_DEPTH + 2);
                }
                HtmlToken::End(name) if name == "p" => {}
                HtmlToken::End(name) => prop_assert_eq!(open.pop(), Some(name), "{}", html),
                HtmlToken::Text(_) => {}
            }
        }
        prop_assert_eq!(open.len(), 0);
        Ok(())
    }

    proptest! {
        #[test]
        fn whatever_the_page_is_elements_are_known_and_well_nested(
            parts in prop::collection::vec((0..PARTS.len(), 0usize..70), 0..60),
        ) {
            let page: String = parts.iter().map(|(at, times)| match PARTS[*at].starts_with("</") {
                true => PARTS[*at].to_owned(),
                false => PARTS[*at].repeat(times / 8 * 8 / 9 + 1),
            }).collect();
            check_nesting(&simplify(&page).html)?;
        }

        #[test]
        fn any_text_is_a_page(page in "[<>/a-z!\"'= &;é\\-]{0,80}") {
            check_nesting(&simplify(&page).html)?;
        }
    }

    const PARTS: &[&str] = &[
        "<div>",
        "</div>",
        "<p>",
        "</p>",
        "<ul>",
        "</ul>",
        "<ol>",
        "</ol>",
        "<li>",
        "</li>",
        "<table>",
        "</table>",
        "<tr>",
        "</tr>",
        "<td>",
        "</td>",
        "<a href=x>",
        "</a>",
        "<pre>",
        "</pre>",
        "<blockquote>",
        "</blockquote>",
        "<dl>",
        "<dt>",
        "<dd>",
        "</dl>",
        "<h1>",
        "</h1>",
        "<code>",
        "</code>",
        "<br>",
        "</br>",
        "<hr>",
        "<img alt='i<p>'>",
        "text ",
        " ",
        "\n",
        "<",
        "&lt;p&gt;",
        "&",
        "<!--",
        "-->",
        "<title>",
        "</title>",
        "<script>",
        "</script>",
        "</body>",
        "<form>",
        "<svg>",
        "</svg>",
        "<html>",
        "<select>",
        "<b>",
        "</b>",
        "<x",
        "'",
        "\0",
    ];
}
