//! Chats of DeepSeek V4, whose checkpoints have no template: efforts, and greedy markup of calls.

use crate::support::{Scripted, ids, scripted, scripted_family};
use api::{ChatRequest, Message, SamplingOptions, ToolChoice};
use engine::{Allowed, GrammarRef, TokenSet};
use serde_json::{Value, json};

const FAMILY: &str = "deepseek_v4";

fn chat(kwargs: Value) -> ChatRequest {
    let template_kwargs = kwargs.as_object().expect("they are an object").clone();
    ChatRequest { messages: vec![Message::user("q")], template_kwargs, ..ChatRequest::default() }
}

fn with_tool(request: ChatRequest) -> ChatRequest {
    let parameters = json!({"type": "object", "properties": {"s": {"type": "string"}}});
    ChatRequest { tools: vec![json!({"name": "f", "parameters": parameters}).into()], ..request }
}

#[test]
fn efforts_open_and_close_thinking_and_the_greatest_needs_its_context() {
    let prompt = |context, kwargs| {
        let model = scripted_family(FAMILY, context, Vec::new());
        model.service.render(&chat(kwargs)).expect("it renders")
    };
    let (closed, open) =
        ("<｜User｜>q<｜Assistant｜></think>", "<｜User｜>q<｜Assistant｜><think>");
    let bos = "<|endoftext|>";
    for (kwargs, end) in [
        (json!({}), closed),
        (json!({"enable_thinking": true}), open),
        (json!({"reasoning_effort": "none"}), closed),
        (json!({"reasoning_effort": "minimal"}), open),
        (json!({"reasoning_effort": "xhigh"}), open),
        (json!({"reasoning_effort": "high", "enable_thinking": false}), closed),
    ] {
        assert_eq!(prompt(1 << 20, kwargs.clone()), format!("{bos}{end}"), "{kwargs}");
    }
    let max = || json!({"reasoning_effort": "max"});
    assert_eq!(prompt(393_215, max()), format!("{bos}{open}"));
    let whole = prompt(393_216, max());
    assert!(whole.starts_with(&format!("{bos}Reasoning Effort: Absolute maximum")), "{whole}");
    assert!(whole.ends_with(&format!("left unchecked.\n\n{open}")), "{whole}");
    let model = scripted_family(FAMILY, 4096, Vec::new());
    let error = model.service.render(&chat(json!({"reasoning_effort": "a lot"}))).unwrap_err();
    assert!(error.to_string().contains("expected none, minimal"), "{error}");
}

/// The constraint of the request that the engine gets.
fn constraint(model: &Scripted, request: &ChatRequest) -> Option<GrammarRef> {
    let mut stream = model.service.chat(request).expect("the request is taken");
    while stream.next_blocking().is_some() {}
    model.report().request.constraint
}

/// Whether the token after `text` is greedy.
fn greedy(grammar: &GrammarRef, text: &str) -> bool {
    let mut state = grammar.start();
    ids(text).into_iter().for_each(|id| state.accept(id).expect("nothing is excluded"));
    state.greedy()
}

#[test]
fn the_markup_of_calls_is_greedy_where_there_are_tools() {
    let model = scripted_family(FAMILY, 4096, Vec::new());
    let block = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n";
    let string = "<｜DSML｜parameter name=\"s\" string=\"true\">";
    let free = constraint(&model, &with_tool(chat(json!({})))).expect("there are tools");
    assert!(!free.excludes());
    assert_eq!(free.start().mask(&mut TokenSet::new(0)), Ok(Allowed::All));
    assert!(!greedy(&free, "Let me see."));
    assert!(greedy(&free, block) && greedy(&free, &format!("{block}{string}x</")));
    assert!(!greedy(&free, &format!("{block}{string}x <")));
    // Reasoning may quote a block.
    assert!(!greedy(&free, &format!("<think>{block}")));
    let thinking = with_tool(chat(json!({"reasoning_effort": "high"})));
    let thinking = constraint(&model, &thinking).expect("there are tools");
    assert!(!greedy(&thinking, block) && greedy(&thinking, &format!("{block}</think>{block}")));
}

#[test]
fn greedy_markup_is_for_sampled_answers_with_tools_in_dsml_and_can_be_off() {
    let model = scripted_family(FAMILY, 4096, Vec::new());
    let asked = with_tool(chat(json!({})));
    assert!(constraint(&model, &chat(json!({}))).is_none());
    let none = ChatRequest { tool_choice: ToolChoice::None, ..asked.clone() };
    assert!(constraint(&model, &none).is_none());
    let sampling = SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() };
    assert!(constraint(&model, &ChatRequest { sampling, ..asked.clone() }).is_none());
    // A grammar stays, with greedy markup in it.
    let forced = ChatRequest { tool_choice: ToolChoice::Required, ..asked.clone() };
    let grammar = constraint(&model, &forced).expect("a call is forced");
    assert!(grammar.excludes() && greedy(&grammar, "<｜DSML｜tool_calls>"));
    let mut off = scripted_family(FAMILY, 4096, Vec::new());
    off.service.greedy_structure = false;
    assert!(constraint(&off, &asked).is_none());
    let grammar = constraint(&off, &forced).expect("a call is forced");
    assert!(grammar.excludes() && !greedy(&grammar, "<｜DSML｜tool_calls>"));
    // Another family writes calls in another format, whose markup is free.
    let other = constraint(&scripted(Vec::new()), &asked);
    assert!(other.is_none_or(|other| !greedy(&other, "<tool_call>")));
}
