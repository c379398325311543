//! Tools, calls and results with templates that have no place for them.

use crate::support::{Act, Scripted, ids, scripted_template};
use api::{CallEvent, ChatRequest, Finish, Message, TextEvent, Tool, ToolChoice};
use serde_json::{Value, json};

/// A template without tools, as SmolLM2's, and one without system messages, as Gemma 1's.
const PLAIN: &str = "\
{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";
const ALTERNATE: &str = "\
{%- for m in messages -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('alternate') }}{%- endif -%}
{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

const SAID: &str = "So <tool_call>{\"name\":\"f\",\"arguments\":{\"b\":1,\"a\": 2}}</tool_call>";

fn tools() -> Vec<Tool> {
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    vec![json!({"type": "function", "function": {"name": "f", "parameters": parameters}}).into()]
}

fn request(messages: Vec<Value>) -> ChatRequest {
    let messages = messages.into_iter().map(Message::from).collect();
    ChatRequest { messages, tools: tools(), ..ChatRequest::default() }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn called(id: &str) -> Value {
    json!({"role": "assistant", "content": "So", "tool_calls": [{"id": id, "type": "function",
        "function": {"name": "f", "arguments": {"a": 2, "b": 1}}}]})
}

fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": text})
}

fn render(scripted: &Scripted, request: &ChatRequest) -> String {
    scripted.service.render(request).unwrap()
}

const SIGNATURE: &str = "<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": \
    {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}}}\n</tools>";

#[test]
fn tools_are_described_after_the_system_message() {
    let scripted = scripted_template(PLAIN, Vec::new());
    let system = json!({"role": "system", "content": "Be brief."});
    let text = render(&scripted, &request(vec![system, user("q")]));
    assert!(text.starts_with("<|im_start|>system\nBe brief.\n\n# Tools\n\n"), "{text}");
    assert!(text.contains(SIGNATURE), "{text}");
    assert!(text.ends_with("<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"));
    let none = ChatRequest { tool_choice: ToolChoice::None, ..request(vec![user("q")]) };
    assert!(!render(&scripted, &none).contains("# Tools"));
    // Without a place for system messages, the description begins the user's message.
    let scripted = scripted_template(ALTERNATE, Vec::new());
    let text = render(&scripted, &request(vec![user("q")]));
    assert!(
        text.starts_with("<|im_start|>user\n# Tools\n\n") && text.contains(SIGNATURE),
        "{text}"
    );
    assert!(text.ends_with("\n\nq<|im_end|>\n<|im_start|>assistant\n"), "{text}");
}

#[test]
fn calls_and_results_are_text() {
    let call =
        "So\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 2, \"b\": 1}}\n</tool_call>";
    let messages = vec![user("q"), called("x"), result("x", "r1"), result("y", "r2"), user("and?")];
    let results = "<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2\n</tool_response>";
    for (source, between) in [(PLAIN, "<|im_end|>\n<|im_start|>user\n"), (ALTERNATE, "\n\n")] {
        let text = render(&scripted_template(source, Vec::new()), &request(messages.clone()));
        let expected = format!(
            "<|im_start|>assistant\n{call}<|im_end|>\n<|im_start|>user\n{results}{between}and?\
             <|im_end|>\n<|im_start|>assistant\n"
        );
        assert!(text.ends_with(&expected), "{text}");
    }
}

#[test]
fn answers_are_read_and_continue_from_their_tokens() {
    for source in [PLAIN, ALTERNATE] {
        let scripted = scripted_template(source, vec![Act::Say(SAID)]);
        let ask = |messages: Vec<Value>| {
            let mut stream = scripted.service.chat(&request(messages)).unwrap();
            let (mut id, mut arguments, mut finish) = (String::new(), String::new(), None);
            while let Some(event) = stream.next_blocking() {
                match event {
                    TextEvent::Call(CallEvent::Start { id: it, .. }) => id = it,
                    TextEvent::Call(CallEvent::Arguments { delta, .. }) => arguments += &delta,
                    TextEvent::Done(done) => finish = Some(done.finish),
                    TextEvent::Failed(error) => panic!("{error}"),
                    _ => {}
                }
            }
            assert_eq!((&*arguments, finish), ("{\"b\":1,\"a\": 2}", Some(Finish::ToolCalls)));
            (scripted.report().request.prompt, id)
        };
        let (first, id) = ask(vec![user("q")]);
        let messages = vec![user("q"), called(&id), result(&id, "r")];
        let text = render(&scripted, &request(messages));
        let so_far = [first, ids(SAID)].concat();
        let tail = "<|im_end|>\n<|im_start|>user\n<tool_response>\nr\n</tool_response><|im_end|>\n\
                    <|im_start|>assistant\n";
        assert_eq!(ids(&text), [so_far, ids(tail)].concat());
    }
}
