//! What is drawn, at several sizes.

use super::*;
use ratatui_core::style::{Color, Modifier};

#[test]
fn an_idle_terminal_is_an_editor_and_numbers() {
    let mut seen = TestTerminal::new(60, 10);
    seen.show(TerminalEvent::Status(status()));
    seen.check(&[
        &"─".repeat(60),
        "> Enter sends, Ctrl-J begins a line, /help",
        "250/1.0k (25%) · 0 cached · 0 computed · 9.5 tok/s",
    ]);
}

#[test]
fn finished_rows_go_above_and_the_last_one_stays_in_view() {
    let mut seen = TestTerminal::new(20, 8);
    seen.show(TerminalEvent::Working(true));
    seen.text("one two three four five");
    let rule = "─".repeat(20);
    let editor = "> Enter steers, Al…";
    let below = [rule.as_str(), editor, "working · 0 cached"];
    let check = |seen: &TestTerminal, above: &[&str]| seen.check(&[above, &below].concat());
    check(&seen, &["one two three four", "five"]);
    seen.text(" six\nseven\n\nei");
    seen.text("ght");
    check(&seen, &["one two three four", "five six", "seven", "", "eight"]);
    seen.show(TerminalEvent::Call { tool: "bash".into(), detail: "ls".into() });
    seen.show(TerminalEvent::Result { ok: true, text: "a\nb".into() });
    check(&seen, &["", "• bash ls", "  a", "  b", ""]);
    let scrolled = ["one two three four", "five six", "seven", "", "eight"];
    assert_eq!(seen.scrolled(), scrolled);
}

#[test]
fn every_row_is_shown_once_and_in_order() {
    let mut seen = TestTerminal::new(30, 6);
    let lines: Vec<String> = (0..500).map(|it| format!("line {it}")).collect();
    seen.text(&lines.join("\n"));
    seen.show(TerminalEvent::Working(false));
    let all = [seen.scrolled(), seen.rows()].concat();
    let shown: Vec<&String> = all.iter().filter(|row| row.starts_with("line")).collect();
    assert_eq!(shown, lines.iter().collect::<Vec<_>>());
}

#[test]
fn the_smallest_terminals_show_the_editor() {
    for (width, rows) in [(20, 5), (10, 3), (8, 2), (5, 5), (3, 1), (1, 1)] {
        let mut seen = TestTerminal::new(width, rows);
        seen.show(TerminalEvent::Working(true));
        seen.text("some text that is longer than that\nand 漢字\n");
        seen.type_text("typed 漢");
        seen.ask("may it?");
        seen.type_text("y");
        if width >= 20 {
            assert!(seen.rows().iter().any(|row| row.starts_with("? y")), "{:?}", seen.rows());
        }
        seen.enter();
        seen.resize(rows.max(2), width.max(2));
        seen.resize(width, rows);
    }
}

#[test]
fn a_terminal_of_twenty_by_five_shows_text_above() {
    let mut seen = TestTerminal::new(20, 5);
    seen.text("one\ntwo\nthree\nfo");
    seen.type_text("x");
    seen.check(&["three", "fo", &"─".repeat(20), "> x", "0 cached"]);
    assert_eq!(seen.scrolled(), ["one", "two"]);
}

#[test]
fn the_editor_grows_and_shrinks_with_its_text() {
    let mut seen = TestTerminal::new(20, 12);
    let rule = "─".repeat(20);
    seen.type_text("one");
    seen.control('j');
    seen.type_text("a line longer than it");
    seen.check(&[&rule, "> one", "  a line longer tha", "  n it", "0 cached"]);
    seen.screen.paste("\n1\n2\n3\n4\n5\n6\n7\n8\n9");
    seen.draw();
    let rows = seen.rows();
    assert!(rows.contains(&"  9".to_owned()) && !rows.contains(&"> one".to_owned()), "{rows:?}");
    seen.control('c');
    seen.check(&[&rule, "> Enter sends, Ctr…", "0 cached"]);
}

#[test]
fn wide_characters_take_two_cells() {
    let mut seen = TestTerminal::new(9, 6);
    seen.text("漢字漢字漢字\n");
    let rows = seen.rows();
    // A buffer has a blank below each of them.
    assert_eq!(rows[..2], ["漢 字 漢 字", "漢 字"]);
}

#[test]
fn waiting_messages_are_shown_until_they_are_taken() {
    let mut seen = TestTerminal::new(30, 12);
    seen.show(TerminalEvent::Working(true));
    seen.type_text("now");
    seen.enter();
    for text in ["a", "b"] {
        seen.type_text(text);
        seen.alt_enter();
    }
    let rows = seen.rows();
    assert_eq!(rows[2..4], ["next: now", "later (and 1 more): a"]);
    seen.screen.taken("now");
    seen.draw();
    let rows = seen.rows();
    assert_eq!(rows[0], "> now");
    assert_eq!(rows[3..5], ["later: a", "later: b"]);
}

#[test]
fn commands_that_may_be_meant_are_shown() {
    let mut seen = TestTerminal::new(40, 10);
    seen.type_text("/co");
    assert_eq!(seen.rows()[1..3], ["/compact /confirm", "> /co"]);
}

#[test]
fn a_resize_keeps_the_text_above_and_draws_the_screen_once() {
    let mut seen = TestTerminal::new(40, 10);
    seen.text("above\n");
    seen.type_text("typed");
    for (width, rows) in [(20, 10), (60, 20), (60, 6), (25, 9)] {
        seen.resize(width, rows);
        let shown = seen.rows();
        assert!(shown.contains(&"above".to_owned()), "{shown:?}");
        assert_eq!(shown.iter().filter(|row| *row == "> typed").count(), 1, "{shown:?}");
    }
}

#[test]
fn the_screen_is_removed_and_the_text_stays() {
    let mut seen = TestTerminal::new(20, 8);
    seen.text("the text\n");
    seen.view.remove().unwrap();
    seen.check(&["the text"]);
    assert_eq!(seen.view.backend().cursor_position().y, 1);
    assert!(seen.view.backend().cursor_visible());
}

#[test]
fn escape_sequences_are_shown_as_text_everywhere() {
    let evil = "\x1b[2J\x1b]0;t\x07\u{202e}\u{9b}1m\r";
    let mut seen = TestTerminal::new(70, 20);
    seen.show(TerminalEvent::Status(TurnStatus { sandbox: evil.into(), ..status() }));
    seen.text(evil);
    seen.show(TerminalEvent::Reasoning(evil.into()));
    seen.show(TerminalEvent::Note(evil.into()));
    seen.screen.paste(evil);
    seen.screen.ask(evil, vec![AnswerChoice { key: '\x1b', name: evil.into() }]);
    seen.screen.taken(evil);
    seen.draw();
    let all = [seen.scrolled(), seen.rows()].concat().concat();
    assert!(all.contains("\\x1b[2J"), "{all}");
    assert!(!all.chars().any(|it| it.is_control() || it == '\u{202e}'), "{all:?}");
}

#[test]
fn colours_are_of_the_sixteen_and_only_with_the_theme() {
    let check = |theme, has_colours: bool, has_attributes: bool| {
        let mut seen = TestTerminal::new(40, 12);
        seen.screen.theme = theme;
        seen.show(TerminalEvent::Call { tool: "bash".into(), detail: "ls".into() });
        seen.show(TerminalEvent::Result { ok: false, text: "no".into() });
        seen.ask("may it?");
        let cells = &seen.view.backend().buffer().content;
        assert_eq!(cells.iter().any(|cell| cell.fg != Color::Reset), has_colours);
        assert_eq!(cells.iter().any(|cell| cell.modifier != Modifier::empty()), has_attributes);
        let is_plain = |colour| !matches!(colour, Color::Rgb(..) | Color::Indexed(_));
        assert!(cells.iter().all(|cell| is_plain(cell.fg) && cell.bg == Color::Reset));
    };
    check(Theme::Colours, true, true);
    check(Theme::Attributes, false, true);
    check(Theme::Plain, false, false);
}
