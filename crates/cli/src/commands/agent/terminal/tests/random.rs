//! Random keys, texts and sizes: nothing panics, and the invariants hold.

use super::*;
use proptest::prelude::*;

/// Something that happens to a terminal.
#[derive(Clone, Debug)]
enum Event {
    Key(KeyCode, KeyModifiers),
    Paste(String),
    Shown(TerminalEvent),
    Ask(String),
    Taken(String),
    Resize(u16, u16),
    Redraw,
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-c \n\t/\r漢é\u{301}\u{200d}👩\x1b\u{202e}\u{ff9e}]{0,40}",
        1 => any::<String>(),
        1 => "[a-z ]{100,400}",
    ]
}

fn code() -> impl Strategy<Value = KeyCode> {
    let named = proptest::sample::select(vec![
        KeyCode::Enter,
        KeyCode::Backspace,
        KeyCode::Delete,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Esc,
        KeyCode::F(1),
        KeyCode::Null,
    ]);
    prop_oneof![
        3 => named,
        3 => proptest::char::range(' ', '~').prop_map(KeyCode::Char),
        1 => any::<char>().prop_map(KeyCode::Char),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let modifiers = prop_oneof![
        4 => Just(KeyModifiers::NONE),
        1 => Just(KeyModifiers::CONTROL),
        1 => Just(KeyModifiers::ALT),
        1 => any::<u8>().prop_map(KeyModifiers::from_bits_truncate),
    ];
    prop_oneof![
        8 => (code(), modifiers).prop_map(|(code, modifiers)| Event::Key(code, modifiers)),
        2 => text().prop_map(Event::Paste),
        2 => text().prop_map(|text| Event::Shown(TerminalEvent::Text(text))),
        1 => text().prop_map(|text| Event::Shown(TerminalEvent::Reasoning(text))),
        1 => (any::<bool>(), text()).prop_map(|(ok, text)| Event::Shown(TerminalEvent::Result { ok, text })),
        1 => any::<bool>().prop_map(|it| Event::Shown(TerminalEvent::Working(it))),
        1 => any::<usize>().prop_map(|used| {
            Event::Shown(TerminalEvent::Status(TurnStatus { used, context: 9, ..status() }))
        }),
        1 => text().prop_map(Event::Ask),
        1 => text().prop_map(Event::Taken),
        1 => (1u16..90, 1u16..30).prop_map(|(width, rows)| Event::Resize(width, rows)),
        1 => Just(Event::Redraw),
    ]
}

fn happen(seen: &mut TestTerminal, event: Event) {
    match event {
        Event::Key(code, modifiers) => {
            seen.press(code, modifiers);
        }
        Event::Paste(text) => seen.screen.paste(&text),
        Event::Shown(shown) => seen.screen.show(shown),
        Event::Ask(question) => seen.ask(&question),
        Event::Taken(text) => seen.screen.taken(&text),
        Event::Resize(width, rows) => seen.resize(width, rows),
        Event::Redraw => seen.view.redraw().unwrap(),
    }
    seen.draw();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_panics_and_only_printable_text_is_drawn(
        width in 1u16..60,
        rows in 1u16..20,
        events in proptest::collection::vec(event(), 1..60),
    ) {
        let mut seen = TestTerminal::new(width, rows);
        for event in events {
            happen(&mut seen, event);
            let cursor = seen.view.backend().cursor_position();
            let area = seen.view.backend().buffer().area;
            prop_assert!(area.contains(cursor), "{cursor:?} in {area:?}");
        }
        let text = [seen.rows(), seen.scrolled()].concat().concat();
        prop_assert!(!text.chars().any(|it| it.is_control() || it == '\u{202e}'), "{text:?}");
        prop_assert!(seen.typed().len() <= super::super::editor::MAX_TEXT);
    }
}
