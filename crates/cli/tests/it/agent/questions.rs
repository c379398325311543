//! Questions as lines: what waits, what answers it, and what needs none.

use super::scene::{AgentEnd, AgentScene, RunningAgent, bash, is_confined};
use super::server::ServerAnswer;
use serde_json::{Value, json};

const OUTSIDE: &[&str] = &["go", "--sandbox", "off", "--confirm", "outside"];

/// A scene in which the model runs these commands, one in each answer.
fn scene(commands: &[&str]) -> AgentScene {
    let call = |(number, command): (usize, &&str)| {
        ServerAnswer::calls(&[(&number.to_string(), "bash", bash(command))])
    };
    let calls = commands.iter().enumerate().map(call);
    AgentScene::new(calls.chain([ServerAnswer::text("done")]).collect())
}

/// Answers a question with a line; gives the end.
fn answered(scene: &AgentScene, line: &str) -> AgentEnd {
    let mut agent = scene.start(OUTSIDE);
    agent.event("question");
    agent.say(line);
    agent.end()
}

fn outcomes(end: &AgentEnd) -> Vec<bool> {
    end.all("result").iter().filter_map(|it| it["ok"].as_bool()).collect()
}

#[test]
fn questions_are_never_answered_by_time() {
    let scene = scene(&["echo x >>log"]);
    let mut agent = scene.start(OUTSIDE);
    let question = agent.event("question");
    assert_eq!(question["arguments"]["command"], "echo x >>log");
    assert_eq!((&question["id"], &question["rule"]), (&json!("0"), &Value::Null));
    assert!(agent.waits());
    assert_eq!((scene.text("work/log"), scene.server.chats().len()), ("absent".into(), 1));
    agent.say(r#"{"answer":"once"}"#);
    let end = agent.end();
    assert_eq!((end.code, outcomes(&end)), (Some(0), vec![true]), "{end:?}");
    assert_eq!(scene.text("work/log"), "x\n");
    if !is_confined("questions_are_never_answered_by_time: guarded files") {
        return;
    }
    let scene = self::scene(&["echo x >.envrc", "echo y >.envrc; sleep 1000 &"]);
    let mut agent = scene.start(&["go", "--confirm", "outside"]);
    for _ in 0..2 {
        let question = agent.event("question");
        assert_eq!((&question["path"], &question["undone"]), (&json!(".envrc"), &json!(true)));
        assert!(agent.waits());
        assert_eq!(scene.text("work/.envrc"), "absent");
        agent.say(r#"{"answer":"no"}"#);
    }
    let end = agent.end();
    assert_eq!((end.code, scene.text("work/.envrc")), (Some(3), "absent".into()), "{end:?}");
}

#[test]
fn a_question_ends_with_the_time_of_the_work_and_its_answer_is_no() {
    let scene = scene(&["echo x >>log"]);
    let mut agent = scene.start(&[OUTSIDE, &["--timeout", "1"]].concat());
    agent.event("question");
    // Its input stays open.
    assert_eq!(agent.event("end")["end"], "limit");
    let end = agent.end();
    assert_eq!((end.code, outcomes(&end)), (Some(4), vec![false]), "{end:?}");
    assert_eq!((scene.text("work/log"), scene.server.chats().len()), ("absent".into(), 1));
}

#[test]
fn a_page_waits_for_an_answer_too() {
    if !is_confined("a_page_waits_for_an_answer_too") {
        return;
    }
    let url = "http://host.invalid/a?b=c";
    let fetch = ServerAnswer::calls(&[("1", "fetch", json!({"url": url}))]);
    let scene = AgentScene::new(vec![fetch, ServerAnswer::text("done")]);
    let mut agent = scene.start(&["go", "--confirm", "outside"]);
    let question = agent.event("question");
    assert_eq!(
        (&question["arguments"]["url"], &question["rule"]),
        (&json!(url), &json!("fetch: host.invalid"))
    );
    assert!(agent.waits());
    let end = agent.end();
    assert_eq!((end.code, end.all("call").len()), (Some(3), 0), "{end:?}");
}

#[test]
fn the_end_of_the_input_is_a_no() {
    let scene = scene(&["echo x >>log", "echo y >>log"]);
    let end = scene.run(OUTSIDE);
    assert_eq!((end.code, outcomes(&end)), (Some(3), vec![false, false]), "{end:?}");
    assert_eq!(scene.server.results(), ["the call was refused: there was no answer"; 2]);
    assert_eq!(scene.text("work/log"), "absent");
}

#[test]
fn only_an_answer_that_says_yes_is_one() {
    for line in [
        "yes",
        "",
        "\"once\"",
        "{}",
        r#"{"answer":"Once"}"#,
        r#"{"answer":"once","more":1}"#,
        r#"{"answer":"once"} {"answer":"once"}"#,
        "\u{1b}\u{0}",
        r#"{"answer":"no","reason":"not\n\u001b[2Jtoday"}"#,
        r#"["once"]"#,
    ] {
        let scene = scene(&["echo x >>log"]);
        let end = answered(&scene, line);
        assert_eq!((end.code, outcomes(&end)), (Some(3), vec![false]), "{line}: {end:?}");
        let results = scene.server.results();
        assert!(results[0].starts_with("the call was refused"), "{line}: {results:?}");
        assert_eq!(scene.text("work/log"), "absent", "{line}");
        if line.contains("reason") {
            assert_eq!(results, ["the call was refused: not\n\u{1b}[2Jtoday"]);
        }
    }
}

#[test]
fn an_answer_is_one_of_its_question() {
    let scene = scene(&["echo x >>log", "echo y | cat >>log", "echo z >>log"]);
    let mut agent = scene.start(OUTSIDE);
    assert_eq!(agent.event("question")["number"], 1);
    agent.say(r#"{"answer":"once","question":2}"#);
    assert!(agent.waits());
    agent.say(r#"{"answer":"no","question":1}"#);
    // Of a compound command there is no rule that would be for the session.
    assert_eq!(agent.event("question")["number"], 2);
    agent.say(r#"{"answer":"session","question":2}"#);
    assert_eq!(agent.event("question")["number"], 3);
    agent.say(r#"{"answer":"once","question":3}"#);
    let end = agent.end();
    assert_eq!((end.code, outcomes(&end)), (Some(3), vec![false, false, true]), "{end:?}");
    assert_eq!(scene.text("work/log"), "z\n");
}

#[test]
fn the_rest_of_a_line_that_is_too_long_is_no_answer() {
    let scene = scene(&["echo x >>log", "echo y >>log"]);
    let end = answered(&scene, &format!("{}{{\"answer\":\"once\"}}", " ".repeat(1 << 20)));
    assert_eq!((end.code, outcomes(&end)), (Some(3), vec![false, false]), "{end:?}");
    assert_eq!(scene.text("work/log"), "absent");
}

#[test]
fn a_rule_for_the_session_asks_no_more_but_for_other_commands() {
    let commands = ["touch a", "touch  a", "touch a; echo x >>log", "touch a ../b"];
    let scene = scene(&commands);
    let mut agent = scene.start(OUTSIDE);
    assert_eq!(agent.event("question")["rule"], "bash exactly: touch a");
    agent.say(r#"{"answer":"session"}"#);
    // The rule of an answer is for its command alone.
    for (other, rule) in commands[2..].iter().zip([None, Some("bash exactly: touch a ../b")]) {
        let question = agent.event("question");
        assert_eq!(question["arguments"]["command"], *other);
        assert_eq!(question["rule"], json!(rule));
        agent.say(r#"{"answer":"once"}"#);
    }
    let end = agent.end();
    assert_eq!((end.code, end.all("question").len()), (Some(0), 3), "{end:?}");
    // The rule ends with its process.
    let end = scene.run(&[OUTSIDE, &["--continue", "--max-turns", "1"]].concat());
    assert_eq!(end.code, Some(1), "the script has ended: {end:?}");
}

#[test]
fn without_a_user_the_default_is_to_refuse() {
    let scene = scene(&["echo x >>log"]);
    let mut command = scene.command();
    command.args(["--sandbox", "off", "--json", "go"]);
    let mut agent = RunningAgent::start(command);
    // It does not wait for an answer that nobody was asked for.
    agent.say(r#"{"answer":"once"}"#);
    agent.event("end");
    let end = agent.end();
    assert_eq!((end.code, outcomes(&end)), (Some(3), vec![false]), "{end:?}");
    assert_eq!(end.all("question")[0]["answer"], "no");
    assert_eq!(scene.text("work/log"), "absent");
    assert_eq!(scene.server.results(), ["the call was refused: no user can be asked"]);
}

#[test]
fn rules_of_the_command_line_allow_simple_commands() {
    let commands =
        ["touch a", "touch ab", " touch  a\tc", "touch a && touch d", "touch a >e", "touch -- f"];
    let scene = scene(&commands);
    let args = ["go", "--sandbox", "off", "--allow", "bash: touch a", "--allow", "fetch: a.b"];
    let end = scene.run(&args);
    assert_eq!(outcomes(&end), [true, false, true, false, false, false], "{end:?}");
    assert_eq!(end.code, Some(3));
    for (name, expected) in
        [("a", ""), ("c", ""), ("ab", "absent"), ("d", "absent"), ("e", "absent")]
    {
        assert_eq!(scene.text(&format!("work/{name}")), expected, "{name}");
    }
}

#[test]
fn changes_of_guarded_files_are_made_where_the_user_says_so() {
    if !is_confined("changes_of_guarded_files_are_made_where_the_user_says_so") {
        return;
    }
    for (line, code, expected) in [
        (r#"{"answer":"once"}"#, 0, "x\n"),
        (r#"{"answer":"no"}"#, 3, "absent"),
        ("x", 3, "absent"),
    ] {
        let scene = scene(&["echo x >.envrc"]);
        let mut agent = scene.start(&["go", "--confirm", "outside"]);
        let question = agent.event("question");
        assert_eq!((&question["path"], &question["kind"]), (&json!(".envrc"), &json!("created")));
        assert!(question["difference"].as_str().unwrap().contains("+x"), "{question}");
        assert!(agent.waits());
        assert_eq!(scene.text("work/.envrc"), "absent");
        agent.say(line);
        let end = agent.end();
        assert_eq!((end.code, scene.text("work/.envrc")), (Some(code), expected.into()), "{line}");
    }
}

#[test]
fn writes_are_asked_where_that_is_said() {
    if !is_confined("writes_are_asked_where_that_is_said") {
        return;
    }
    let write = json!({"path": "f", "content": "x\n"});
    let list = json!({"path": ".", "depth": null});
    let calls = [("1", "list", list), ("2", "write", write), ("3", "bash", bash("touch g"))];
    let scene = AgentScene::new(vec![ServerAnswer::calls(&calls), ServerAnswer::text("done")]);
    let mut agent = scene.start(&["go", "--confirm", "writes"]);
    let question = agent.event("question");
    assert_eq!(question["tool"], "write");
    assert!(question["difference"].as_str().unwrap().contains("\n+x\n"), "{question}");
    agent.say(r#"{"answer":"no"}"#);
    assert_eq!(agent.event("question")["tool"], "bash");
    agent.say(r#"{"answer":"once"}"#);
    let end = agent.end();
    assert_eq!((end.code, outcomes(&end)), (Some(3), vec![true, false, true]), "{end:?}");
    assert_eq!((scene.text("work/f").as_str(), scene.text("work/g").as_str()), ("absent", ""));
}
