//! What keys do.

use super::*;

#[test]
fn enter_sends_when_idle_and_steers_at_work() {
    let mut seen = TestTerminal::new(40, 10);
    assert_eq!(seen.enter(), None);
    seen.type_text("  hello ");
    assert_eq!(seen.enter(), queue(message("hello")));
    assert_eq!(seen.typed(), "");
    seen.show(TerminalEvent::Working(true));
    seen.type_text("this way");
    assert_eq!(seen.enter(), steer("this way"));
    seen.type_text("and then");
    assert_eq!(seen.alt_enter(), queue(message("and then")));
    seen.show(TerminalEvent::Working(false));
    seen.type_text("//slash");
    assert_eq!(seen.alt_enter(), queue(message("/slash")));
}

#[test]
fn commands_wait_for_the_end_of_the_turn() {
    let mut seen = TestTerminal::new(60, 10);
    let compact = Typed::Command { name: "compact".into(), argument: "the tests".into() };
    seen.show(TerminalEvent::Working(true));
    seen.type_text("/compact the tests");
    assert_eq!(seen.enter(), queue(compact));
    seen.type_text("/dance");
    assert_eq!(seen.enter(), None);
    assert_eq!(seen.typed(), "/dance");
    assert!(seen.rows().contains(&"/dance: no such command; /help lists them".to_owned()));
}

#[test]
fn help_is_shown_at_once() {
    let mut seen = TestTerminal::new(80, 20);
    seen.show(TerminalEvent::Working(true));
    seen.type_text("/help");
    assert_eq!(seen.enter(), None);
    let rows = seen.rows();
    assert!(rows.contains(&"/compact [TEXT]  shorten the conversation".to_owned()), "{rows:?}");
}

#[test]
fn tab_completes_commands() {
    let mut seen = TestTerminal::new(40, 10);
    seen.type_text("/c");
    seen.press(KeyCode::Tab, KeyModifiers::NONE);
    assert_eq!(seen.typed(), "/co");
    seen.type_text("n");
    seen.press(KeyCode::Tab, KeyModifiers::NONE);
    assert_eq!(seen.typed(), "/confirm ");
}

#[test]
fn ctrl_c_at_work_interrupts_every_time() {
    let mut seen = TestTerminal::new(60, 10);
    seen.show(TerminalEvent::Working(true));
    seen.type_text("kept");
    assert_eq!(seen.control('c'), Some(Effect::Interrupt));
    assert!(seen.rows().contains(&"it stops; Ctrl-C again ends the program".to_owned()));
    assert_eq!(seen.control('c'), Some(Effect::Interrupt));
    assert_eq!(seen.typed(), "kept");
}

#[test]
fn ctrl_c_when_idle_clears_and_twice_in_an_empty_editor_ends() {
    let mut seen = TestTerminal::new(60, 10);
    seen.type_text("draft");
    assert_eq!(seen.control('c'), None);
    assert_eq!(seen.typed(), "");
    assert_eq!(seen.control('c'), None);
    seen.type_text("x");
    seen.press(KeyCode::Backspace, KeyModifiers::NONE);
    assert_eq!(seen.control('c'), None, "another key came between");
    assert_eq!(seen.control('c'), queue(Typed::End));
}

#[test]
fn ctrl_d_ends_in_an_empty_editor_only() {
    let mut seen = TestTerminal::new(60, 10);
    seen.type_text("ab");
    seen.press(KeyCode::Home, KeyModifiers::NONE);
    assert_eq!(seen.control('d'), None);
    assert_eq!(seen.typed(), "b");
    assert_eq!(seen.control('d'), None);
    assert_eq!(seen.control('d'), queue(Typed::End));
}

#[test]
fn other_control_keys_have_effects() {
    let mut seen = TestTerminal::new(60, 10);
    assert_eq!(seen.control('z'), Some(Effect::Suspend));
    assert_eq!(seen.control('l'), Some(Effect::Redraw));
}

#[test]
fn a_question_is_answered_by_a_key_or_a_text_that_is_sent() {
    let check = |typed: &str, expected: Chosen| {
        let mut seen = TestTerminal::new(60, 12);
        seen.ask("may bash run?");
        assert_eq!(seen.enter(), None, "nothing is no answer");
        seen.type_text(typed);
        assert_eq!(seen.enter(), answer(expected), "{typed}");
    };
    check("y", Chosen::Key('y'));
    check(" Yes ", Chosen::Key('y'));
    check("session", Chosen::Key('s'));
    check("n", Chosen::Key('n'));
    check("no, use make", Chosen::Text("no, use make".into()));
    check("yes please", Chosen::Text("yes please".into()));
    check("/help", Chosen::Text("/help".into()));
}

#[test]
fn what_was_being_written_is_kept_from_a_question() {
    let mut seen = TestTerminal::new(60, 12);
    seen.show(TerminalEvent::Working(true));
    seen.type_text("y");
    seen.ask("may bash run?");
    assert_eq!(seen.enter(), None, "what was typed before is no answer");
    seen.type_text("n");
    assert_eq!(seen.enter(), answer(Chosen::Key('n')));
    assert_eq!(seen.typed(), "y");
}

#[test]
fn a_question_ends_with_ctrl_c_and_ctrl_d() {
    let mut seen = TestTerminal::new(60, 12);
    seen.ask("may bash run?");
    seen.type_text("y");
    assert_eq!(seen.control('c'), answer(Chosen::Nothing));
    seen.ask("may bash run?");
    assert_eq!(seen.control('d'), answer(Chosen::Nothing));
    seen.show(TerminalEvent::Working(true));
    seen.ask("may bash run?");
    assert_eq!(seen.control('c'), Some(Effect::Interrupt));
    assert!(seen.screen.asked.is_none());
}

#[test]
fn a_paste_of_several_lines_sends_nothing() {
    let mut seen = TestTerminal::new(60, 12);
    seen.screen.paste("one\r\ntwo\rthree\n");
    seen.draw();
    assert_eq!(seen.typed(), "one\ntwo\nthree\n");
    assert_eq!(seen.enter(), queue(message("one\ntwo\nthree")));
    seen.screen.paste(&"x".repeat(1 << 20));
    seen.draw();
    assert!(seen.rows().contains(&"the text is too long and was cut".to_owned()));
}

#[test]
fn messages_go_into_the_history() {
    let mut seen = TestTerminal::with_history(60, 12, &["from the file"]);
    seen.type_text("sent");
    seen.enter();
    seen.press(KeyCode::Up, KeyModifiers::NONE);
    assert_eq!(seen.typed(), "sent");
    seen.press(KeyCode::Up, KeyModifiers::NONE);
    assert_eq!(seen.typed(), "from the file");
    seen.control('n');
    seen.control('n');
    assert_eq!(seen.typed(), "");
}

#[test]
fn waiting_messages_are_bounded() {
    let mut seen = TestTerminal::new(60, 12);
    seen.show(TerminalEvent::Working(true));
    let mut sent = 0;
    for _ in 0..100 {
        seen.screen.paste("more");
        sent += usize::from(seen.screen.key(KeyEvent::from(KeyCode::Enter)).is_some());
        seen.screen.message.clear();
    }
    assert_eq!(sent, 32);
    assert_eq!(seen.screen.waiting.len(), 32);
}
