//! Requests of all protocols with templates that refuse what the protocols allow.

use crate::harness::{Server, ok};
use crate::support::{Act, scripted, scripted_template, tokenizer};
use serde_json::{Value, json};
use server::ServerOptions;

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";
const OLLAMA: &str = "/api/chat";

/// System messages only at the start, and only one; no tools.
const STRICT: &str = "\
{%- for m in messages -%}
{%- if m.role == 'system' and not loop.first -%}{{ raise_exception('not first') }}{%- endif -%}
{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

/// User and assistant alternate; no system messages.
const ALTERNATE: &str = "\
{%- for m in messages -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('alternate') }}{%- endif -%}
{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

/// Thinks only where the request says so.
const THINK_OFF: &str = "\
{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking -%}{{ '<think>\\n' }}{%- endif -%}{%- endif -%}";

fn server(template: &str, said: &'static str) -> Server {
    Server::serve(scripted_template(template, vec![Act::Say(said)]), ServerOptions::default())
}

fn body(path: &str, messages: &[Value], extra: &Value) -> Value {
    let name = if path == RESPONSES { "input" } else { "messages" };
    let mut body = json!({"model": "test/model", "stream": false, name: messages});
    if path == MESSAGES {
        body["max_tokens"] = 9.into();
    }
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// The answer to a request, and the prompt of the request, if it has one.
async fn asked(server: Server, path: &str, messages: &[Value], extra: &Value) -> (Value, String) {
    let answer = ok(server.post(path, &body(path, messages, extra)).await).await;
    if path == COUNT {
        return (answer, String::new());
    }
    let (report, _) = server.report().await;
    (answer, tokenizer().decode(&report.request.prompt, false))
}

#[tokio::test(flavor = "multi_thread")]
async fn system_messages_are_taken_anywhere_in_every_protocol() {
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    let (user, system) = (message("user", "hi"), message("system", "be brief"));
    let (developer, answer) = (message("developer", "be brief"), message("assistant", "hello"));
    let marked = "<system>\nbe brief\n</system>";
    let cases = [
        (MESSAGES, vec![user.clone(), system.clone()]),
        (COUNT, vec![user.clone(), system.clone()]),
        (CHAT, vec![system.clone(), system.clone(), user.clone()]),
        (CHAT, vec![system.clone(), user.clone(), answer.clone(), system.clone(), user.clone()]),
        (CHAT, vec![user.clone(), user.clone()]),
        (RESPONSES, vec![user.clone(), developer, user.clone()]),
        (OLLAMA, vec![system.clone(), user.clone(), answer, system, user]),
    ];
    for template in [STRICT, ALTERNATE] {
        for (path, messages) in &cases {
            let later = messages.iter().skip_while(|it| it["role"] == "system");
            let later = later.filter(|it| it["role"] == "system" || it["role"] == "developer");
            let (later, server) = (later.count(), server(template, "ok"));
            let (_, prompt) = asked(server, path, messages, &json!({})).await;
            let found = prompt.matches(marked).count();
            assert_eq!(found, if *path == COUNT { 0 } else { later }, "{path} {prompt}");
        }
    }
}

const SAID: &str = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";

#[tokio::test(flavor = "multi_thread")]
async fn tools_work_in_every_protocol_without_a_place_in_the_template() {
    let user = [json!({"role": "user", "content": "hi"})];
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let function = json!({"name": "f", "parameters": schema});
    let nested = json!([{"type": "function", "function": function}]);
    let flat = json!([{"type": "function", "name": "f", "parameters": schema}]);
    let anthropic = json!([{"name": "f", "input_schema": schema}]);
    for template in [STRICT, ALTERNATE] {
        for (path, tools, place) in [
            (CHAT, &nested, "/choices/0/message/tool_calls/0/function/name"),
            (RESPONSES, &flat, "/output/0/name"),
            (MESSAGES, &anthropic, "/content/0/name"),
            (OLLAMA, &nested, "/message/tool_calls/0/function/name"),
        ] {
            let extra = match path {
                MESSAGES => json!({"tools": tools, "max_tokens": 200}),
                _ => json!({ "tools": tools }),
            };
            let (answer, prompt) = asked(server(template, SAID), path, &user, &extra).await;
            assert_eq!(answer.pointer(place), Some(&json!("f")), "{path} {answer}");
            assert!(prompt.contains("# Tools\n\n") && prompt.contains("<tools>\n{"), "{prompt}");
        }
        let server = server(template, SAID);
        let shown = ok(server.post("/api/show", &json!({"model": "test/model"})).await).await;
        assert!(shown["capabilities"].as_array().unwrap().contains(&json!("tools")), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn efforts_switch_thinking_in_every_protocol() {
    let user = [json!({"role": "user", "content": "hi"})];
    let cases = |effort: &str| {
        [
            (CHAT, json!({"reasoning_effort": effort})),
            (CHAT, json!({"reasoning": {"effort": effort}})),
            (CHAT, json!({"think": effort})),
            (RESPONSES, json!({"reasoning": {"effort": effort}})),
            (OLLAMA, json!({"think": effort})),
        ]
    };
    for effort in ["none", "minimal", "high"] {
        let mut all = cases(effort).to_vec();
        if effort == "high" {
            all.push((MESSAGES, json!({"output_config": {"effort": effort}})));
        }
        for (path, extra) in all {
            let (_, prompt) = asked(server(THINK_OFF, "ok"), path, &user, &extra).await;
            assert_eq!(prompt.ends_with("<think>\n"), effort != "none", "{path} {extra} {prompt}");
        }
    }
    for (on, extra) in [
        (false, json!({"think": false})),
        (false, json!({"thinking": {"type": "disabled"}})),
        (true, json!({"think": true})),
        (false, json!({"think": "high", "enable_thinking": false})),
        (
            false,
            json!({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": false}}),
        ),
    ] {
        for path in [CHAT, RESPONSES] {
            let (_, prompt) = asked(server(THINK_OFF, "ok"), path, &user, &extra).await;
            assert_eq!(prompt.ends_with("<think>\n"), on, "{path} {extra}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_begun_answer_goes_on_with_the_reasoning_it_opened() {
    let user = json!({"role": "user", "content": "hi"});
    let tagged = json!({"role": "assistant", "content": "<think>\nThis is a"});
    let apart = json!({"role": "assistant", "content": "", "reasoning_content": "This is a"});
    for begun in [tagged, apart] {
        let script = vec![Act::Say(" question.\n</think>\n\nParis.")];
        let server = Server::serve(scripted(script), ServerOptions::default());
        let messages = [user.clone(), begun];
        let extra = json!({"continue_final_message": true});
        let (answer, prompt) = asked(server, CHAT, &messages, &extra).await;
        assert!(prompt.ends_with("assistant\n<think>\nThis is a"), "{prompt}");
        let message = &answer["choices"][0]["message"];
        assert_eq!(message["reasoning_content"], " question.", "{answer}");
        assert_eq!(message["content"], "Paris.", "{answer}");
    }
}
