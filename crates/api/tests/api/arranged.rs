//! Conversations of all shapes with templates that refuse some: every message is in the prompt, in
//! its place, and the prompt of a turn begins with that of the turn before it.

use crate::support::{Scripted, scripted_with_template};
use api::{ChatRequest, Message, Tool, ToolCall};
use base::Rng;
use serde_json::{Value, json};
use std::collections::HashMap;

/// As Qwen3.5: system messages only at the start, and only one.
const STRICT: &str = "\
{%- if messages[0].role == 'system' -%}[system]{{ messages[0].content }}[end]{%- endif -%}
{%- for m in messages -%}{%- if m.role == 'system' -%}
{%- if not loop.first -%}{{ raise_exception('System message must be at the beginning.') }}{%- endif -%}
{%- else -%}[{{ m.role }}]{{ m.content }}[end]{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt -%}[assistant]{%- endif -%}";

/// As Gemma 3: user and assistant alternate, and the system message is part of the first one.
const ALTERNATE: &str = "\
{%- if messages[0].role == 'system' -%}{%- set first = messages[0].content ~ '\\n\\n' -%}
{%- set rest = messages[1:] -%}{%- else -%}{%- set first = '' -%}{%- set rest = messages -%}{%- endif -%}
{%- for m in rest -%}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception('Conversation roles must alternate') }}{%- endif -%}
[{{ m.role }}]{{ first if loop.first else '' }}{{ m.content }}[end]{%- endfor -%}
{%- if add_generation_prompt -%}[assistant]{%- endif -%}";

/// As Gemma 1: no system messages.
const NO_SYSTEM: &str = "\
{%- if messages[0].role == 'system' -%}{{ raise_exception('System role not supported') }}{%- endif -%}
{%- for m in messages -%}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception('Conversation roles must alternate') }}{%- endif -%}
[{{ m.role }}]{{ m.content }}[end]{%- endfor -%}
{%- if add_generation_prompt -%}[assistant]{%- endif -%}";

/// As gpt-oss: later system messages are left out.
const SILENT: &str = "\
{%- if messages[0].role == 'system' -%}[developer]{{ messages[0].content }}[end]{%- endif -%}
{%- for m in messages if m.role != 'system' -%}[{{ m.role }}]{{ m.content }}[end]{%- endfor -%}
{%- if add_generation_prompt -%}[assistant]{%- endif -%}";

/// As Mistral: a message of the user may not follow a result.
const RESULTS: &str = "\
{%- set ns = namespace(at=0) -%}{%- for m in messages -%}
{%- if not (m.role == 'tool' or m.tool_calls is defined) -%}
{%- if (m.role == 'user') != (ns.at % 2 == 0) -%}{{ raise_exception('alternate') }}{%- endif -%}
{%- set ns.at = ns.at + 1 -%}{%- endif -%}{%- endfor -%}
{%- for t in tools or [] -%}{{ t.function.name }}{%- endfor -%}
{%- for m in messages -%}[{{ m.role }}]{{ m.content }}
{%- for c in m.tool_calls or [] -%}<tool_call>{{ c.function | tojson }}</tool_call>{%- endfor -%}[end]
{%- endfor -%}{%- if add_generation_prompt -%}[assistant]{%- endif -%}";

/// As Llama 3.1, Qwen3.5, gpt-oss and DeepSeek V4: one call at a time, arguments that are objects,
/// tools with descriptions before the first message, and all system messages at the start.
const DEMANDING: &str = "\
{%- for m in messages if m.role == 'system' -%}[system]{{ m.content }}[end]{%- endfor -%}
{%- set rest = messages | rejectattr('role', 'equalto', 'system') | list -%}
{%- if tools and not rest -%}{{ raise_exception('no first message') }}{%- endif -%}
{%- for t in tools or [] -%}{{ t.function.name + ': ' + t.function.description }}{%- endfor -%}
{%- for m in rest -%}[{{ m.role }}]{{ m.content }}{%- if m.tool_calls -%}
{%- if m.tool_calls | length > 1 -%}{{ raise_exception('single tool-calls') }}{%- endif -%}
<call>{{ m.tool_calls[0].function.name }}
{%- for k, v in m.tool_calls[0].function.arguments | items -%};{{ k }}={{ v }}{%- endfor -%}</call>
{%- endif -%}[end]{%- endfor -%}
{%- if add_generation_prompt -%}[assistant]{%- endif -%}";

const PERMISSIVE: &str = "\
{%- for m in messages -%}[{{ m.role }}]{{ m.content }}[end]{%- endfor -%}
{%- if add_generation_prompt -%}[assistant]{%- endif -%}";

const TEMPLATES: [&str; 7] = [STRICT, ALTERNATE, NO_SYSTEM, SILENT, RESULTS, DEMANDING, PERMISSIVE];

/// A message of a role by its letter: system, user, assistant, an assistant's call, its result, two
/// calls, and the result of the second.
fn message(at: usize, role: char) -> Message {
    let text = format!("text{at}.");
    match role {
        's' => Message::system(text),
        'u' => Message::user(text),
        'a' => Message::assistant(text),
        't' => json!({"role": "tool", "tool_call_id": "call00001", "content": text}).into(),
        'r' => json!({"role": "tool", "tool_call_id": "call00002", "content": text}).into(),
        'd' => Message {
            calls: [
                call("call00001", "f", json!({"a": at})),
                call("call00002", "second_g", json!({})),
            ]
            .into(),
            ..Message::assistant(text)
        },
        _ => json!({"role": "assistant", "content": text, "tool_calls": [
            {"id": "call00001", "type": "function",
             "function": {"name": "f", "arguments": {"a": at}}}]})
        .into(),
    }
}

fn call(id: &str, name: &str, arguments: Value) -> ToolCall {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}).into()
}

fn request(roles: &str) -> ChatRequest {
    let messages = roles.chars().enumerate().map(|(at, role)| message(at, role)).collect();
    ChatRequest { messages, ..ChatRequest::default() }
}

fn rendered(scripted: &Scripted, roles: &str) -> String {
    let text = scripted.service.render(&request(roles));
    text.unwrap_or_else(|error| panic!("{roles}: {error}"))
}

#[track_caller]
fn check(source: &str, roles: &str, expected: &str) {
    assert_eq!(rendered(&scripted_with_template(source), roles), expected, "{roles}");
}

#[test]
fn system_messages_go_where_the_template_takes_them() {
    check(STRICT, "su", "[system]text0.[end][user]text1.[end][assistant]");
    check(STRICT, "ssu", "[system]text0.\n\ntext1.[end][user]text2.[end][assistant]");
    check(
        STRICT,
        "suasu",
        "[system]text0.[end][user]text1.[end][assistant]text2.[end]\
         [user]<system>\ntext3.\n</system>\n\ntext4.[end][assistant]",
    );
    check(STRICT, "us", "[user]text0.[end][user]<system>\ntext1.\n</system>[end][assistant]");
    check(ALTERNATE, "us", "[user]text0.\n\n<system>\ntext1.\n</system>[end][assistant]");
    check(NO_SYSTEM, "ssu", "[user]text0.\n\ntext1.\n\ntext2.[end][assistant]");
    check(NO_SYSTEM, "s", "[user]text0.[end][assistant]");
    check(
        SILENT,
        "usu",
        "[user]text0.[end][user]<system>\ntext1.\n</system>\n\ntext2.[end][assistant]",
    );
}

#[test]
fn messages_in_a_row_are_joined_where_roles_alternate() {
    check(
        ALTERNATE,
        "uuau",
        "[user]text0.\n\ntext1.[end][assistant]text2.[end][user]text3.[end][assistant]",
    );
    check(
        ALTERNATE,
        "uaau",
        "[user]text0.[end][assistant]text1.\n\ntext2.[end][user]text3.[end][assistant]",
    );
    check(ALTERNATE, "au", "[user][end][assistant]text0.[end][user]text1.[end][assistant]");
    check(ALTERNATE, "sau", "[user]text0.[end][assistant]text1.[end][user]text2.[end][assistant]");
    check(STRICT, "uu", "[user]text0.[end][user]text1.[end][assistant]");
}

#[test]
fn results_stay_with_their_calls() {
    let called =
        "[assistant]text1.<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>[end]";
    let user = "[user]text0.[end]";
    check(
        RESULTS,
        "uctu",
        &format!("{user}{called}[tool]text2.[end][assistant][end][user]text3.[end][assistant]"),
    );
    check(
        RESULTS,
        "ucst",
        &format!(
            "{user}{called}[tool]text3.[end][assistant][end][user]<system>\ntext2.\n</system>[end][assistant]"
        ),
    );
}

#[test]
fn calls_stand_alone_where_the_template_takes_one_at_a_time() {
    let (user, first, second) = (
        "[user]text0.[end]",
        "[assistant]text1.<call>f;a=1</call>[end]",
        "[assistant]<call>second_g</call>[end]",
    );
    let answered = |results: [&str; 2]| {
        format!("{user}{first}{}{second}{}[assistant]", results[0], results[1])
    };
    check(DEMANDING, "udtr", &answered(["[tool]text2.[end]", "[tool]text3.[end]"]));
    check(DEMANDING, "udrt", &answered(["[tool]text3.[end]", "[tool]text2.[end]"]));
    check(DEMANDING, "udt", &answered(["[tool]text2.[end]", ""]));
    let without_ids = |template: &str| {
        let mut request = request("udtr");
        request.messages[1].calls.iter_mut().for_each(|call| call.id = None);
        request.messages.iter_mut().for_each(|message| message.call_id = None);
        scripted_with_template(template).service.render(&request).unwrap()
    };
    assert_eq!(without_ids(DEMANDING), answered(["[tool]text2.[end]", "[tool]text3.[end]"]));
    let together = "[assistant]text1.<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>\
                    <tool_call>{\"name\": \"second_g\", \"arguments\": {}}</tool_call>[end]";
    check(
        RESULTS,
        "udtr",
        &format!("{user}{together}[tool]text2.[end][tool]text3.[end][assistant]"),
    );
}

#[test]
fn arguments_that_are_no_object_become_one_where_the_template_wants_it() {
    let with = |source: &str, arguments: &str| {
        let mut request = request("uct");
        request.messages[1].calls[0].arguments = arguments.into();
        scripted_with_template(source).service.render(&request).unwrap()
    };
    for (arguments, expected) in [
        ("{\"city\":\"\\nore", "<call>f;city=\nore</call>"),
        ("{\"a\": 1, \"b\":", "<call>f;a=1</call>"),
        ("{", "<call>f</call>"),
        ("not json", "<call>f;arguments=not json</call>"),
        ("[1]", "<call>f;arguments=[1]</call>"),
        ("{broken", "<call>f;arguments={broken</call>"),
    ] {
        let prompt = with(DEMANDING, arguments);
        assert!(prompt.contains(expected), "{arguments}: {prompt}");
    }
    assert!(with(RESULTS, "not json").contains("\"arguments\": \"not json\""));
}

#[test]
fn tools_without_a_description_get_an_empty_one_where_the_template_wants_it() {
    let with = |source: &str, tool: Value| {
        let request = ChatRequest { tools: vec![Tool::from(tool)], ..request("u") };
        scripted_with_template(source).service.render(&request).unwrap()
    };
    for tool in [
        json!({"type": "function", "function": {"name": "f"}}),
        json!({"type": "function", "function": {"name": "f", "description": null}}),
        json!({"name": "f"}),
    ] {
        let wrapped = tool.get("function").is_some();
        assert!(!wrapped || with(DEMANDING, tool.clone()).starts_with("f: [user]"), "{tool}");
    }
    let shown = "{%- for t in tools or [] -%}{{ t | tojson }}{%- endfor -%}";
    let null = json!({"type": "function", "function": {"name": "f", "description": null}});
    let text = with(&format!("{shown}{PERMISSIVE}"), null);
    assert!(text.contains("\"description\": null"), "{text}");
}

#[test]
fn tools_without_parameters_get_some_where_the_template_wants_them() {
    let source = "{%- for t in tools or [] -%}{{ t.function.name }}({{ \
                  t.function.parameters.properties | items | list | length }}){%- endfor -%}";
    let scripted = scripted_with_template(&format!("{source}{PERMISSIVE}"));
    for function in
        [json!({"name": "f"}), json!({"name": "f", "parameters": {"type": "object"}, "x": null})]
    {
        let tools = vec![json!({"type": "function", "function": function}).into()];
        let text = scripted.service.render(&ChatRequest { tools, ..request("u") }).unwrap();
        assert!(text.starts_with("f(0)[user]"), "{text}");
    }
}

#[test]
fn instructions_alone_are_of_the_user_where_tools_need_a_message() {
    let request = request("s");
    let scripted = scripted_with_template(DEMANDING);
    assert_eq!(scripted.service.render(&request).unwrap(), "[system]text0.[end][assistant]");
    let tools = vec![json!({"type": "function", "function": {"name": "f"}}).into()];
    let prompt = scripted.service.render(&ChatRequest { tools, ..request }).unwrap();
    assert_eq!(prompt, "f: [user]text0.[end][assistant]");
}

#[test]
fn late_system_messages_leave_the_prompt_before_them_as_it_is() {
    check(
        DEMANDING,
        "suasu",
        "[system]text0.[end][user]text1.[end][assistant]text2.[end]\
         [user]<system>\ntext3.\n</system>\n\ntext4.[end][assistant]",
    );
}

#[test]
fn templates_that_take_everything_get_every_message_as_it_is() {
    let expected: String =
        "ssuusaasu".chars().enumerate().fold(String::new(), |text, (at, role)| {
            let role = HashMap::from([('s', "system"), ('u', "user"), ('a', "assistant")])[&role];
            format!("{text}[{role}]text{at}.[end]")
        });
    check(PERMISSIVE, "ssuusaasu", &(expected + "[assistant]"));
}

/// What clients send before an answer, and the answer.
fn turn(rng: &mut Rng, first: bool, called: bool) -> String {
    let openings = ["s", "ss", "u", "su", "uu", "us", "usu", "ssuu", "sau", "au"];
    let later = ["u", "uu", "us", "su", "s", "susu"];
    let results = ["t", "ts", "st", "tu", "tsu"];
    let of = |all: &[&str], rng: &mut Rng| all[rng.below(all.len() as u64) as usize].to_owned();
    match (first, called) {
        (true, _) => of(&openings, rng),
        (false, true) => of(&results, rng),
        (false, false) => of(&later, rng),
    }
}

#[test]
fn prompts_begin_with_the_prompts_of_the_turns_before() {
    for source in TEMPLATES {
        let scripted = scripted_with_template(source);
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let (mut roles, mut before, mut called) = (String::new(), String::new(), false);
            for round in 0..5 {
                roles += &turn(&mut rng, round == 0, called);
                let prompt = rendered(&scripted, &roles);
                assert!(prompt.starts_with(&before), "{source}\n{roles}\n{before}\n{prompt}");
                for at in 0..roles.len() {
                    let text = format!("text{at}.");
                    assert_eq!(
                        prompt.matches(&text).count(),
                        1,
                        "{source}\n{roles}: {text}\n{prompt}"
                    );
                }
                before = prompt;
                called = rng.below(3) == 0;
                roles.push(if called { 'c' } else { 'a' });
            }
        }
    }
}

#[test]
fn published_templates_take_every_conversation() {
    let names = [
        "Qwen-Qwen2.5-7B-Instruct",
        "Qwen-Qwen3-0.6B",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        "deepseek-ai-DeepSeek-V3.1",
        "deepseek-ai-DeepSeek-V4",
        "meta-llama-Llama-3.1-8B-Instruct",
        "mistralai-Mistral-Nemo-Instruct-2407",
        "openai-gpt-oss-120b",
    ];
    for name in names {
        let Some(path) = fixtures::find(&format!("templates/{name}.jinja")) else { continue };
        let scripted = scripted_with_template(&std::fs::read_to_string(path).unwrap());
        for roles in [
            "ssu", "us", "usu", "uu", "uuau", "suasu", "uaau", "sau", "au", "uctu", "ucstsu",
            "udtru",
        ] {
            let prompt = rendered(&scripted, roles);
            assert!(!roles.contains('d') || prompt.contains("second_g"), "{name}: {prompt}");
            for at in 0..roles.len() {
                // Some templates leave the text before a call out.
                let text = format!("text{at}.");
                let call = b"cd".contains(&roles.as_bytes()[at]);
                assert!(call || prompt.contains(&text), "{name} {roles}: {text}\n{prompt}");
            }
        }
        let bare = |roles| {
            let mut request = request(roles);
            request.tools = vec![json!({"type": "function", "function": {"name": "f"}}).into()];
            for call in request.messages.iter_mut().flat_map(|message| &mut message.calls) {
                call.arguments = "{\"city\":\"\\nore".into();
            }
            let prompt = scripted.service.render(&request);
            prompt.unwrap_or_else(|error| panic!("{name} {roles}: {error}"))
        };
        bare("s");
        let prompt = bare("uctu");
        assert!(prompt.contains("ore"), "{name}: {prompt}");
    }
}
