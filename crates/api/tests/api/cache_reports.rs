//! Reports of what prompts find in the cache, and of why they do not find more.

use crate::support::{Act, Scripted, scripted_template};
use api::{
    ApiError, CacheCause, CachePartition, CacheReport, ChatRequest, Message, PromptDifference,
    RequestOptions, SamplingOptions, Service, TextEvent, TextRequest, TextStream, Tool,
};
use serde_json::json;

/// A template that writes the tools after the first message, and cuts the ends of contents.
const TEMPLATE: &str = "\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') | trim -}}
{%- if loop.first and tools %}{{ '\\n' + (tools | tojson) }}{% endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}";

/// A model whose cache finds what earlier prompts begin with.
fn scripted() -> Scripted {
    scripted_template(TEMPLATE, vec![Act::Cache, Act::Say("It is noon.<|im_end|>")])
}

fn chat(messages: &[(&str, &str)]) -> ChatRequest {
    let message = |(role, text): &(&str, &str)| json!({"role": role, "content": text});
    let messages = messages.iter().map(|it| Message::from(message(it))).collect();
    ChatRequest { messages, ..ChatRequest::default() }
}

/// The report of a request, whose answer is read to the end.
fn report(service: &Service, request: &ChatRequest) -> CacheReport {
    let prepared = service.prepare_chat(request).unwrap();
    // The place of the request before may not be free yet.
    let stream = loop {
        match service.start(&prepared, 0, &RequestOptions::default()) {
            Err(ApiError::QueueFull(_)) => std::thread::yield_now(),
            stream => break stream.unwrap(),
        }
    };
    read(stream)
}

fn read(mut stream: TextStream) -> CacheReport {
    let events: Vec<TextEvent> = std::iter::from_fn(|| stream.next_blocking()).collect();
    match events.into_iter().next() {
        Some(TextEvent::Admitted(report)) => report,
        other => panic!("{other:?} is no report"),
    }
}

/// The difference between the prompts of two requests of one caller.
fn difference(one: &ChatRequest, two: &ChatRequest) -> PromptDifference {
    let service = scripted().service.for_caller("one");
    assert_eq!(report(&service, one).cause, CacheCause::FirstPrompt);
    let CacheReport { cause, difference, .. } = report(&service, two);
    assert_eq!(cause, CacheCause::UnknownPrefix);
    *difference.expect("the prompts differ")
}

/// Two requests differ in this message, which has this role, and where the texts begin like this.
/// `content` is whether that is in the content of the message.
fn check(
    [one, two]: [&ChatRequest; 2],
    (message, role, content): (Option<usize>, Option<&str>, bool),
    [earlier, now]: [&str; 2],
) {
    let found = difference(one, two);
    let place = found.place.as_ref().expect("the template can be looked at");
    let named = (place.message, place.role.as_deref(), place.is_content);
    assert_eq!(named, (message, role, content), "{found:?}");
    assert!(found.earlier.starts_with(earlier) && found.now.starts_with(now), "{found:?}");
}

#[test]
fn a_clock_in_the_system_prompt_is_found() {
    let at = |time| chat(&[("system", &format!("Be kind. It is {time}.")), ("user", "What now?")]);
    let place = (Some(0), Some("system"), true);
    let texts = ["1.<|im_end|>\n<|im_start|>user\n", "2.<|im_end|>\n<|im_start|>user\n"];
    check([&at("12:01"), &at("12:02")], place, texts);
    // Tokens of this vocabulary are bytes.
    let found = difference(&at("12:01"), &at("12:02"));
    assert_eq!(found.before, "kind. It is 12:0");
    assert_eq!([&found.earlier, &found.now].map(|text| text.matches('.').count()), [1, 1]);
}

#[test]
fn differences_are_in_the_message_that_changed() {
    let one = chat(&[("system", "Be kind.\n"), ("user", "a b"), ("assistant", "c"), ("user", "d")]);
    let with = |at: usize, text: &str| {
        let mut other = one.clone();
        other.messages[at] = Message::from(json!({"role": "user", "content": text}));
        other
    };
    check([&one, &with(1, "a x")], (Some(1), Some("user"), true), ["b<", "x<"]);
    check([&one, &with(3, "e")], (Some(3), Some("user"), true), ["d<", "e<"]);
    // The head of a message follows the content of the one before.
    check([&one, &with(2, "c")], (Some(1), Some("user"), false), ["assistant\n", "user\n"]);
    check([&one, &with(0, "Be kind.")], (None, None, false), ["system\n", "user\n"]);
    let mut tools = one.clone();
    tools.tools = vec![Tool::from(json!({"type": "function", "function": {"name": "f"}}))];
    check([&one, &tools], (Some(0), Some("system"), false), ["<|im_end|>", "\n["]);
}

#[test]
fn differences_of_long_conversations_are_found_too() {
    let long = |changed: usize| {
        let text = |at| if at == changed { "changed" } else { "text" };
        let role = |at| if at % 2 == 0 { "user" } else { "assistant" };
        let messages: Vec<_> = (0..101).map(|at| (role(at), text(at))).collect();
        chat(&messages)
    };
    for (at, role) in
        [(0, "user"), (1, "assistant"), (28, "user"), (57, "assistant"), (100, "user")]
    {
        check([&long(200), &long(at)], (Some(at), Some(role), true), ["text<", "changed<"]);
    }
}

#[test]
fn a_conversation_that_goes_on_finds_all_but_its_new_tokens() {
    let service = scripted().service.for_caller("one");
    let turns = [("user", "What now?"), ("assistant", "It is noon."), ("user", "Thanks")];
    assert_eq!(report(&service, &chat(&turns[..1])).cause, CacheCause::FirstPrompt);
    let next = report(&service, &chat(&turns));
    assert_eq!((next.cause, next.difference), (CacheCause::NewTokens, None));
    let same = report(&service, &chat(&turns));
    assert_eq!((same.cause, same.found), (CacheCause::None, same.looked_up));
    // The client sends another answer than the model gave.
    let turns = [turns[0], ("assistant", "It is late."), turns[2]];
    let edited = report(&service, &chat(&turns));
    let difference = edited.difference.expect("the answer differs");
    assert_eq!(difference.place.and_then(|place| place.message), Some(1));
    assert!(difference.earlier.starts_with("noon.<") && difference.now.starts_with("late.<"));
}

#[test]
fn texts_have_a_difference_without_a_message() {
    let service = scripted().service.for_caller("one");
    let ask = |text: &str| {
        let (sampling, grammar) = (SamplingOptions::default(), None);
        let request = TextRequest { prompt: text.into(), add_special: true, sampling, grammar };
        let prepared = service.prepare_text(&request).unwrap();
        read(service.start(&prepared, 0, &RequestOptions::default()).unwrap())
    };
    ask("one two three");
    let difference = ask("one two four").difference.expect("they differ");
    assert_eq!(difference.place, None);
    assert_eq!((&*difference.earlier, &*difference.now), ("threeIt is noon.", "four"));
}

#[test]
fn callers_never_see_texts_of_others() {
    let Scripted { service, reports: _reports } = scripted();
    let ask = |service: &Service, text: &str| report(service, &chat(&[("user", text)]));
    let [one, two] = ["one", "two"].map(|name| service.for_caller(name));
    ask(&one, "the secret of one");
    let first = ask(&two, "the secrets");
    // What is found is shared, what explains it is not.
    assert!(first.found > 0);
    assert_eq!((first.cause, first.difference), (CacheCause::FirstPrompt, None));
    let user = |name: &str| {
        let options = RequestOptions { user: Some(name.into()), ..RequestOptions::default() };
        one.for_options(&options)
    };
    assert_eq!(ask(&user("u"), "the secretary").cause, CacheCause::FirstPrompt);
    assert_eq!(ask(&user("v"), "the secretariat").cause, CacheCause::FirstPrompt);
    assert!(ask(&user("u"), "the secretaire").difference.is_some());
    let salt = RequestOptions { cache_salt: Some("s".into()), ..RequestOptions::default() };
    assert_eq!(ask(&one.for_options(&salt), "the secret").cause, CacheCause::OtherPart);
    let nobody = ask(&service.within(CachePartition::default()), "the secrecy");
    assert_eq!((nobody.cause, nobody.difference), (CacheCause::UnknownPrefix, None));
}

#[test]
fn counted_and_uncached_prompts_say_so() {
    let service = scripted().service.for_caller("one");
    let request = chat(&[("user", "What now?")]);
    service.counting().prepare_chat(&request).unwrap();
    let mut prepared = service.prepare_chat(&request).unwrap();
    assert_eq!(prepared.own_prefix(), Some(0));
    prepared.compute_anew();
    let report = read(service.start(&prepared, 0, &RequestOptions::default()).unwrap());
    assert_eq!((report.cause, report.looked_up), (CacheCause::Off, 0));
    let whole = service.prepare_chat(&request).unwrap();
    assert_eq!(whole.own_prefix(), Some(whole.prompt().len()));
}
