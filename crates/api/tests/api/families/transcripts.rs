//! Transcripts: the prompt of every turn continues the tokens of all turns before.

use crate::families::family::{AUTUMN, FAMILIES, Family, TOOLS_AS_TEXT};
use crate::families::replay::settings;
use crate::families::scripts::{ODD, SHORT, request, result, user};
use crate::families::stage::{Act, Stage};
use crate::families::{autumn, replay};
use api::{AnswerOptions, ChatRequest, Message, SettledAnswer, ToolChoice, Transcript, TurnTokens};
use serde_json::Value;

/// A turn as the engine saw it.
struct Turn {
    prompt: Vec<u32>,
    settled: SettledAnswer,
    rendered_anew: Option<usize>,
}

impl Turn {
    fn kept(&self) -> &TurnTokens {
        self.settled.tokens.as_ref().expect("the answer is all the model's")
    }

    fn tokens(&self) -> Vec<u32> {
        [&self.prompt[..], &self.kept().sampled].concat()
    }
}

/// The turn after whose results the user writes.
const STEERED: usize = 1;
/// The turn that is cut off within its reasoning, where there is some, and the families whose
/// templates drop such a turn, so that the next prompt is rendered anew.
const CUT: usize = 5;
const RENDERED_ANEW: &[&str] = &["openai-gpt-oss-120b"];

fn stages() -> impl Iterator<Item = Stage> {
    [&FAMILIES[..], &AUTUMN, &TOOLS_AS_TEXT].into_iter().flatten().filter_map(Stage::of)
}

/// An answer with these calls, in white space that no template renders where there is some.
fn said(stage: &Stage, request: &ChatRequest, made: &[(&str, &str)]) -> String {
    match is_autumn(stage.family) {
        true => autumn::said(stage, request, made),
        false => replay::said(stage, request, made),
    }
}

fn is_autumn(family: &Family) -> bool {
    AUTUMN.iter().any(|it| it.name == family.name)
}

/// Answers with `act`, of which the reader takes so many events.
fn answered(stage: &Stage, transcript: &mut Transcript, act: Act, events: usize) -> Turn {
    let name = stage.family.name;
    let options = AnswerOptions::default();
    let (answer, played) = stage.play(act, || stage.service.answer(transcript, &options));
    let mut answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
    for _ in 0..events {
        if answer.stream.next_blocking().is_none() {
            break;
        }
    }
    let rendered_anew = answer.rendered_anew;
    drop(answer);
    let prompt = played();
    let settled = transcript.settle().unwrap_or_else(|| panic!("{name}: nothing was answered"));
    Turn { prompt, settled, rendered_anew }
}

/// The messages after an answer: results of its calls, or a question, with texts that occur once.
fn further(settled: &SettledAnswer) -> Vec<Message> {
    let number = settled.tokens.as_ref().unwrap().message;
    let results = settled.message.calls.iter().enumerate().map(|(at, call)| {
        let id = call.id.as_deref().unwrap();
        match at {
            0 => Message::from(result(id, &format!("result {at} of {number}, é"))),
            _ => Message::from(result(id, "skipped: the user wrote")),
        }
    });
    let results: Vec<_> = results.collect();
    let question = || vec![user(&format!("and after {number}?")).into()];
    if results.is_empty() { question() } else { results }
}

/// The text of a prompt after the tokens so far has each of these messages once.
fn check_new(stage: &Stage, (so_far, prompt): (&[u32], &[u32]), messages: &[Message]) {
    let new = stage.text(&prompt[so_far.len()..]);
    for message in messages {
        let text = message.text().unwrap();
        assert_eq!(new.matches(&text).count(), 1, "{}: {text} in {new}", stage.family.name);
    }
}

/// A conversation of calls, an answer, an answer that is cut off and a last one; each prompt but
/// the first continues the tokens before.
fn check(stage: &Stage, first: ChatRequest) {
    let name = stage.family.name;
    let mut transcript = stage.service.begin(first.clone()).unwrap();
    let text = |made: &[(&str, &str)]| Act::Say(said(stage, &first, made));
    let plain = Act::Say(match is_autumn(stage.family) {
        true => autumn::said(stage, &first, &[]),
        false => format!("All  is \n\n well{}", stage.family.end),
    });
    let both: &[_] = &[("g", SHORT), ("f", SHORT)];
    let script = [
        (text(&[("f", ODD)]), usize::MAX),
        (text(&both[..if stage.family.many { 2 } else { 1 }]), usize::MAX),
        (text(&[("f", SHORT)]), usize::MAX),
        (plain, usize::MAX),
        (Act::Say("One two three four five six seven".into()), 3),
        (text(&[("f", ODD)]), 4),
        (text(&[("f", ODD)]), usize::MAX),
    ];
    let (mut before, mut added): (Option<Turn>, Vec<Message>) = (None, Vec::new());
    for (at, (act, events)) in script.into_iter().enumerate() {
        let turn = answered(stage, &mut transcript, act, events);
        if let Some(before) = &before {
            let so_far = before.tokens();
            let is_anew = at == CUT + 1 && RENDERED_ANEW.contains(&name);
            assert_eq!(turn.rendered_anew.is_some(), is_anew, "{name}, turn {at}");
            if !is_anew {
                let shown = || (stage.text(&so_far), stage.text(&turn.prompt));
                assert!(turn.prompt.starts_with(&so_far), "{name}, turn {at}: {:?}", shown());
                check_new(stage, (&so_far, &turn.prompt), &added);
            }
        }
        assert_eq!(transcript.tokens(), turn.tokens(), "{name}, turn {at}");
        added = further(&turn.settled);
        if at == STEERED {
            added.push(user("no, in another way").into());
        }
        transcript.extend(added.clone());
        before = Some(turn);
    }
    // From its turns it is made again.
    let again = ChatRequest { messages: transcript.messages().to_vec(), ..first };
    let mut again = stage.service.resume(again, transcript.turns().collect()).unwrap();
    let act = || Act::Say(format!("Yes{}", stage.family.end));
    let [one, two] = [&mut transcript, &mut again]
        .map(|transcript| answered(stage, transcript, act(), usize::MAX).prompt);
    assert!(one == two, "{name}");
}

fn asked(setting: &Value) -> ChatRequest {
    let template_kwargs = setting.as_object().unwrap().clone();
    ChatRequest { template_kwargs, ..request(vec![user("q")]) }
}

#[test]
fn a_transcript_only_grows() {
    let mut checked = 0;
    for stage in stages() {
        for setting in settings(&stage) {
            check(&stage, asked(&setting));
        }
        checked += 1;
    }
    if fixtures::find("templates").is_some() {
        assert_eq!(checked, FAMILIES.len() + AUTUMN.len() + TOOLS_AS_TEXT.len());
    }
}

#[test]
fn an_unfinished_call_is_rewound_to_its_first_token() {
    for stage in stages() {
        let name = stage.family.name;
        let first = asked(&serde_json::json!({}));
        let whole = said(&stage, &first, &[("f", ODD)]);
        // Within the first argument.
        let inside = if is_autumn(stage.family) { "xé" } else { "\"s\"" };
        let at = whole.find(inside).unwrap_or_else(|| panic!("{name}: {whole}"));
        let cut = Act::Say(whole[..at + inside.len()].to_owned());
        let mut transcript = stage.service.begin(first).unwrap();
        let turn = answered(&stage, &mut transcript, cut, usize::MAX);
        assert!(turn.settled.message.calls.is_empty(), "{name}");
        let kept = stage.text(&turn.kept().sampled);
        assert!(turn.settled.dropped > 0 && !kept.contains(inside), "{name}: {kept}");
    }
}

#[test]
fn tools_stay_in_a_prompt_whose_answer_calls_none() {
    for stage in stages() {
        let mut transcript = stage.service.begin(asked(&serde_json::json!({}))).unwrap();
        let text = said(&stage, &asked(&serde_json::json!({})), &[("g", SHORT)]);
        let first = answered(&stage, &mut transcript, Act::Say(text), usize::MAX);
        transcript.extend(further(&first.settled));
        let options = AnswerOptions { tool_choice: ToolChoice::None, ..Default::default() };
        let act = Act::Say(format!("Done{}", stage.family.end));
        let (answer, played) = stage.play(act, || stage.service.answer(&mut transcript, &options));
        drop(answer.unwrap());
        assert!(played().starts_with(&first.tokens()), "{}", stage.family.name);
    }
}

#[test]
fn a_rewound_transcript_is_as_if_nothing_had_come() {
    let stage = Stage::of(&FAMILIES[1]).unwrap();
    let first = asked(&serde_json::json!({}));
    let act = || Act::Say(said(&stage, &first, &[("f", ODD)]));
    let mut transcript = stage.service.begin(first.clone()).unwrap();
    let before = answered(&stage, &mut transcript, act(), usize::MAX);
    let (tokens, mark) = (transcript.tokens(), transcript.mark());
    transcript.extend(further(&before.settled));
    answered(&stage, &mut transcript, act(), usize::MAX);
    transcript.rewind(mark);
    assert_eq!((transcript.tokens(), transcript.mark()), (tokens, mark));
    transcript.extend(further(&before.settled));
    let again = answered(&stage, &mut transcript, act(), usize::MAX);
    assert!(again.prompt.starts_with(&before.tokens()));
}

/// As after an answer that was stopped before its first token, and after a summary.
#[test]
fn questions_may_follow_each_other() {
    for stage in stages() {
        let name = stage.family.name;
        let mut transcript = stage.service.begin(asked(&serde_json::json!({}))).unwrap();
        transcript.extend(vec![user("or rather this").into()]);
        let act = || Act::Say(format!("Yes{}", stage.family.end));
        let first = answered(&stage, &mut transcript, act(), usize::MAX);
        check_new(&stage, (&[], &first.prompt), &[user("or rather this").into()]);
        let added: Vec<Message> = ["one é", "two é"].map(|text| user(text).into()).into();
        transcript.extend(added.clone());
        let second = answered(&stage, &mut transcript, act(), usize::MAX);
        let so_far = first.tokens();
        assert!(second.prompt.starts_with(&so_far), "{name}");
        check_new(&stage, (&so_far, &second.prompt), &added);
    }
}
