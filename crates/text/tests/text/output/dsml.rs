//! Parsing of DSML: dialects, escapes, nested objects, repair.

use crate::output::formats_by_name::DSML;
use crate::output::{check_form, form};

/// Checks with `|D|` for the marker, and for the short and the plain dialect too.
fn check_cut(answer: &str, truncated: bool, expected: &str) {
    for prefix in ["｜DSML｜", "DSML｜", ""] {
        let in_dialect = |text: &str| text.replace("|D|", prefix);
        check_form(&form(&DSML), &in_dialect(answer), truncated, &in_dialect(expected));
    }
}

fn check(answer: &str, expected: &str) {
    check_cut(answer, false, expected);
}

#[test]
fn parameters_become_json() {
    check(
        "Let me see.\n\n<|D|tool_calls>\n<|D|invoke name=\"f\">\n\
         <|D|parameter name=\"s\" string=\"true\">a \"b\"\n</x></|D|parameter>\n\
         <|D|parameter name=\"n\" string=\"false\">{\"a\": [1, \"x y\"] }</|D|parameter>\n\
         </|D|invoke>\n<|D|invoke name=\"now\">\n</|D|invoke>\n</|D|tool_calls>ignored",
        r#"Let me see.f{"s":"a \"b\"\n</x>","n":{"a":[1,"x y"]}};now{};"#,
    );
    check(
        "<|D|tool_calls><|D|invoke name=\"now\"><|D|parameter name=\"x\" string=\"false\"> \
         </|D|parameter><|D|parameter name=\"y\">1</|D|parameter></|D|invoke></|D|tool_calls>",
        r#"now{"x":null,"y":"1"};"#,
    );
    check("a\n\n<|D|tool_calls>\n</|D|tool_calls>b", "a");
}

#[test]
fn only_the_closing_tag_is_unescaped_in_strings() {
    check(
        "<|D|tool_calls><|D|invoke name=\"f\"><|D|parameter name=\"a&quot;&amp;lt;\" \
         string=\"true\">&amp; &lt;b> && &lt;/|D|parameter> </|D|parameters></|D|parameter>\
         </|D|invoke></|D|tool_calls>",
        r#"f{"a\"&lt;":"&amp; &lt;b> && </|D|parameter> </|D|parameters>"};"#,
    );
}

#[test]
fn closing_tags_may_have_a_bar_too_many() {
    check(
        "<|D|tool_calls><|D|invoke name=\"f\"><|D|parameter name=\"s\" string=\"true\">x\
         </|D|parameter｜></|D|invoke｜ ></|D|tool_calls >",
        r#"f{"s":"x"};"#,
    );
}

#[test]
fn parameters_without_a_type_may_be_objects() {
    let leaf = |name: &str, value: &str| {
        format!("<|D|parameter name=\"{name}\" string=\"false\">{value}</|D|parameter>\n")
    };
    let inner = leaf("a", "1") + &leaf("b", "[]");
    let open = "<|D|tool_calls><|D|invoke name=\"f\">";
    let close = "</|D|invoke></|D|tool_calls>";
    let object = format!("<|D|parameter name=\"o\">\n{inner}");
    let expected = r#"f{"o":{"a":1,"b":[]}"#;
    check(
        &format!("{open}{object}</|D|parameter>{}{close}", leaf("n", "2")),
        r#"f{"o":{"a":1,"b":[]},"n":2};"#,
    );
    check(&format!("{open}{object}{close}"), &format!("{expected}}};"));
    let deep = |n: usize| {
        format!("{open}{}{}{close}", "<|D|parameter name=\"o\">".repeat(n), leaf("a", "1"))
    };
    check(&deep(8), &format!("f{{{}\"a\":1{};", "\"o\":{".repeat(8), "}".repeat(9)));
    let too_deep = deep(9);
    let begun = format!("f{{{}", "\"o\":{".repeat(9));
    check(&too_deep, &format!("{begun}!{too_deep}"));
}

#[test]
fn an_invocation_may_stand_without_its_block() {
    for prefix in ["｜DSML｜", "DSML｜"] {
        let text = "hm <|D|invoke name=\"now\"></|D|invoke></|D|tool_calls>".replace("|D|", prefix);
        check_form(&form(&DSML), &text, false, "hmnow{};");
    }
    let text = "write <invoke name=\"now\"></invoke>";
    check_form(&form(&DSML), text, false, text);
}

#[test]
fn broken_blocks_are_text() {
    for text in [
        "<|D|tool_callsx>",
        " <|D|tool_calls>\nstray</|D|tool_calls>",
        "<|D|tool_calls><|D|invoke>",
        "<|D|tool_calls><|D|invoke name=\"g\"></|D|invoke></|D|tool_calls>",
    ] {
        check(text, text);
    }
    let open = "<|D|tool_calls><|D|invoke name=\"f\">";
    let parameter = "<|D|parameter name=\"s\" string=\"false\">{\"a\"</|D|parameter>";
    check(&format!("{open}{parameter}"), &format!("f{{\"s\":{{\"a\"!{open}{parameter}"));
    check(&format!("{open} x"), &format!("f{{!{open} x"));
    // What is left of a broken block is not executed.
    let rest = "<|D|invoke name=\"now\"></|D|invoke></|D|tool_calls>";
    check(&format!("<|D|tool_calls>x{rest}"), &format!("<|D|tool_calls>x{rest}"));
}

#[test]
fn only_whole_parameters_are_repaired() {
    let open = "<|D|tool_calls><|D|invoke name=\"f\">";
    let whole = "<|D|parameter name=\"s\" string=\"true\">x</|D|parameter>";
    check_cut(&format!("{open}{whole}\n"), true, r#"f{"s":"x"};"#);
    check_cut(&format!("{open}{whole}</|D|invoke>"), true, r#"f{"s":"x"};"#);
    check_cut(&format!("{open}{whole}</|D|invoke></|D|tool_cal"), true, r#"f{"s":"x"};"#);
    // A required parameter is missing.
    check_cut(open, true, "f{");
    check_cut(open, false, "f{};");
    for cut in ["<|D|parameter name=\"s\" string=\"true\">x", "<|D|para", "<|D|parameter name=\"s"]
    {
        let events = crate::output::read(
            &form(&DSML),
            &[&format!("{open}{cut}").replace("|D|", "｜DSML｜")],
            true,
        );
        assert!(crate::output::line(&events).starts_with("f{"), "{cut}");
        let (broken, end) = (text::OutputEvent::CallBroken, text::OutputEvent::CallEnd);
        assert!(!events.contains(&broken) && !events.contains(&end), "{cut}");
    }
}

#[test]
fn every_cut_of_a_block_gives_calls_and_no_text() {
    let block = "<|D|tool_calls>\n<|D|invoke name=\"f\">\n<|D|parameter name=\"s\" string=\"true\">x\
                 </|D|parameter>\n</|D|invoke>\n<|D|invoke name=\"now\">\n</|D|invoke>\n</|D|tool_calls>";
    let block = block.replace("|D|", "｜DSML｜");
    let first = block.find("</｜DSML｜invoke>").unwrap() + "</｜DSML｜invoke>".len();
    for at in (0..block.len()).filter(|&at| block.is_char_boundary(at)) {
        let events = crate::output::read(&form(&DSML), &[&block[..at]], true);
        let calls = events.iter().filter(|e| **e == text::OutputEvent::CallEnd).count();
        assert!(calls >= usize::from(at >= first), "{at}: {events:?}");
        let is_text = |event: &&text::OutputEvent| matches!(event, text::OutputEvent::Content(_));
        assert_eq!(events.iter().find(is_text), None, "{at}: {events:?}");
    }
}
