//! Reasoning between tags, and calls in it.

use crate::output::formats_by_name::*;
use crate::output::{check_form, form};
use text::{OutputForm, Reasoning, ToolFormat};

const CALL: &str = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";

fn open(format: &'static ToolFormat) -> OutputForm {
    OutputForm { reasoning: Reasoning::Open, ..form(format) }
}

#[test]
fn calls_follow_reasoning() {
    check_form(&open(&HERMES), &format!("why\n</think>\n\n{CALL}"), false, "(why)f{};");
    let possible = OutputForm { reasoning: Reasoning::Possible, ..form(&HERMES) };
    check_form(&possible, &format!("<think>w</think>a\n{CALL}"), false, "(w)af{};");
    check_form(&possible, &format!("a {CALL}"), false, "af{};");
}

#[test]
fn calls_quoted_in_reasoning_are_not_executed() {
    check_form(&open(&HERMES), &format!("as {CALL}\n</think>ok"), false, &format!("(as {CALL})ok"));
    let text = format!("as {CALL} shows");
    check_form(&open(&HERMES), &text, true, &format!("({text})"));
    let text = format!("{CALL}</think>");
    check_form(&open(&HERMES), &text, false, &format!("({CALL})"));
    let cut = "as <tool_call>{\"name\": \"f\", \"arguments\": {}";
    check_form(&open(&HERMES), cut, true, &format!("({cut})"));
}

#[test]
fn calls_at_the_end_of_open_reasoning_are_recovered() {
    let text = format!("as {CALL} shows\n{CALL}\n{CALL}\n");
    check_form(&open(&HERMES), &text, false, &format!("({text})f{{}};f{{}};"));
    let single = OutputForm { parallel: false, ..open(&HERMES) };
    check_form(&single, &text, false, &format!("({text})f{{}};"));
    let block = "x\n\n<｜DSML｜tool_calls><｜DSML｜invoke name=\"now\"></｜DSML｜invoke>";
    let whole = format!("{block}</｜DSML｜tool_calls>");
    check_form(&open(&DSML), &whole, false, &format!("({whole})now{{}};"));
    check_form(&open(&DSML), block, false, &format!("({block})"));
}

#[test]
fn mistral_has_tags_of_its_own() {
    let possible = OutputForm { reasoning: Reasoning::Possible, ..form(&MISTRAL) };
    let answer = "[THINK]w[/THINK]a[TOOL_CALLS]now[ARGS]{}";
    check_form(&possible, answer, false, "(w)anow{};");
    check_form(&open(&MISTRAL), "w[/THINK]a", false, "(w)a");
}

#[test]
fn markers_are_those_that_matter() {
    assert!(open(&HERMES).markers().contains(&"<think>"));
    assert!(open(&HERMES).markers().contains(&"</tool_call>"));
    let mut none = form(&MISTRAL);
    none.tools = [].into();
    assert!(none.markers().is_empty());
    none.format = Some(&HARMONY);
    assert!(none.markers().contains(&"<|channel|>"));
}
