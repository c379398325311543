//! What a chat template takes: found out once, when the template is loaded, by rendering small
//! conversations.
//!
//! Clients may put system messages anywhere, and messages of one role in a row; some templates
//! refuse such conversations, or leave messages out. A conversation is taken if a template renders
//! it with the contents of all messages.

use crate::message::{Message, Tool};
use crate::template_message::{CallForm, template_message};
use serde_json::{Value, json};
use text::{ChatTemplate, TextAssets, ToolFormat};

/// What a template takes. Everything is taken by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MessageRules {
    /// Where system messages may be.
    pub system: SystemPlace,
    /// User messages may follow each other.
    pub users_in_row: bool,
    /// Assistant messages may follow each other.
    pub answers_in_row: bool,
    /// An assistant message may be the first, or the first after the system messages.
    pub answer_first: bool,
    /// A conversation may have no user message.
    pub system_alone: bool,
    /// A conversation with tools may have no user message.
    pub system_alone_with_tools: bool,
    /// A user message may follow the result of a call.
    pub user_after_result: bool,
    /// Calls and their results are rendered.
    pub calls: bool,
    /// One message may have several calls.
    pub calls_together: bool,
    /// Arguments of calls may be text.
    pub text_arguments: bool,
    /// Tools are rendered.
    pub tools: bool,
    /// Tools may be without a description.
    pub undescribed_tools: bool,
    /// Tools may be without parameters, and these without properties.
    pub bare_tools: bool,
    /// Members of tools may be null.
    pub null_members: bool,
}

/// Where a template takes system messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemPlace {
    /// Between any two messages.
    Anywhere,
    /// Before all other messages.
    Start,
    /// Once, before all other messages.
    Once,
    /// Nowhere.
    Nowhere,
}

impl Default for MessageRules {
    fn default() -> Self {
        Self {
            system: SystemPlace::Anywhere,
            users_in_row: true,
            answers_in_row: true,
            answer_first: true,
            system_alone: true,
            system_alone_with_tools: true,
            user_after_result: true,
            calls: true,
            calls_together: true,
            text_arguments: true,
            tools: true,
            undescribed_tools: true,
            bare_tools: true,
            null_members: true,
        }
    }
}

impl MessageRules {
    /// The rules of `template`, for calls in `format`.
    ///
    /// Nothing is known of a template that does not render a single user message.
    pub fn of(
        assets: &TextAssets,
        template: &ChatTemplate,
        format: Option<&'static ToolFormat>,
    ) -> Self {
        let mentioned = template.mentions("tools");
        let bare = Probe { assets, template, format, tools: ProbeTools::Never };
        let tools = mentioned && bare.shows_tool(&tool());
        let tooled = Probe { tools: ProbeTools::Always, ..bare };
        let probe = match tools {
            _ if bare.takes("u") && tools => Probe { tools: ProbeTools::WithCalls, ..bare },
            _ if bare.takes("u") => bare,
            // Some templates are for conversations with tools only.
            true if tooled.takes("u") => tooled,
            _ => return Self { tools: mentioned, ..Self::default() },
        };
        let system_first = probe.takes("su");
        let calls = probe.takes("uct") && probe.takes("uctau");
        Self {
            system: probe.system(system_first),
            users_in_row: probe.takes("uu") && probe.takes("uuau"),
            answers_in_row: probe.takes("uaau"),
            answer_first: probe.takes("au") && (!system_first || probe.takes("sau")),
            system_alone: probe.takes("s"),
            system_alone_with_tools: !tools || tooled.takes("s"),
            user_after_result: !calls || probe.takes("uctu"),
            calls,
            calls_together: !calls || probe.takes("udtr") || !probe.takes("uctct"),
            text_arguments: !calls || probe.takes_text_arguments(),
            tools,
            undescribed_tools: !tools || bare.shows_tool(&without("description")),
            bare_tools: !tools
                || (bare.shows_tool(&without("parameters"))
                    && bare.shows_tool(&with("parameters", json!({"type": "object"})))),
            null_members: !tools || bare.shows_tool(&with("description", Value::Null)),
        }
    }

    /// A tool in the form that a template of these rules takes.
    pub fn tool(&self, tool: &Tool) -> Value {
        let mut tool = tool.json();
        let is_wrapped = tool.get("function").is_some();
        let function = if is_wrapped { &mut tool["function"] } else { &mut tool };
        let Value::Object(members) = function else { return tool };
        if !(self.undescribed_tools && self.bare_tools && self.null_members) {
            members.retain(|_, member| !member.is_null());
        }
        if !self.undescribed_tools {
            members.entry("description").or_insert_with(|| "".into());
        }
        if !self.bare_tools
            && let Value::Object(parameters) =
                members.entry("parameters").or_insert_with(|| json!({"type": "object"}))
        {
            parameters.entry("properties").or_insert_with(|| json!({}));
        }
        tool
    }

    /// Whether every conversation is rendered as it is.
    pub fn takes_all(&self) -> bool {
        *self == Self::default()
    }
}

/// Renders conversations that are made for the purpose.
#[derive(Clone, Copy)]
struct Probe<'a> {
    assets: &'a TextAssets,
    template: &'a ChatTemplate,
    format: Option<&'static ToolFormat>,
    tools: ProbeTools,
}

/// Which conversations of a probe have tools.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProbeTools {
    Never,
    WithCalls,
    Always,
}

/// The names of the tool of probes and of the called ones, which no template has otherwise.
const TOOL: &str = "gannet_probe";
const CALLED: &str = "gannet_called";
const CALLED_TOO: &str = "gannet_second";

impl Probe<'_> {
    fn system(&self, first: bool) -> SystemPlace {
        let later = ["suasu", "us", "usau", "usu", "uasu"];
        match first {
            false => SystemPlace::Nowhere,
            true if !self.takes("ssu") => SystemPlace::Once,
            true if later.iter().all(|roles| self.takes_in_order(roles)) => SystemPlace::Anywhere,
            true => SystemPlace::Start,
        }
    }

    /// Whether the template renders a conversation of these roles with all contents.
    fn takes(&self, roles: &str) -> bool {
        let Some(rendered) = self.conversation(roles) else { return false };
        let shown = |message: &Message| match message.calls.is_empty() {
            true => rendered.contains(&message.text().unwrap_or_default()),
            // Some templates leave arguments out.
            false => message.calls.iter().all(|call| rendered.contains(&call.name)),
        };
        probe_messages(roles).iter().all(shown)
    }

    /// The same with the contents in the order of the messages. Some templates move system
    /// messages to the start, which changes all that is cached of the prompt.
    fn takes_in_order(&self, roles: &str) -> bool {
        let Some(rendered) = self.conversation(roles) else { return false };
        let places = (0..roles.len()).map(|at| rendered.find(&probe_text(at)));
        places.collect::<Option<Vec<usize>>>().is_some_and(|places| places.is_sorted())
    }

    /// Whether the template renders arguments that are text, if it renders others.
    fn takes_text_arguments(&self) -> bool {
        let shows = |roles| Some(self.conversation(roles)?.contains(&probe_text(1)));
        let (objects, texts) = (shows("uct"), shows("uxt"));
        texts.is_some() && texts >= objects
    }

    /// The prompt of a conversation of these roles: system, user, assistant, an assistant's call,
    /// one with arguments that are text, two calls, and the results of the first call and of the
    /// second.
    fn conversation(&self, roles: &str) -> Option<String> {
        let tools = match self.tools {
            ProbeTools::Never => false,
            ProbeTools::WithCalls => roles.contains(['c', 'd', 'x']),
            ProbeTools::Always => true,
        };
        self.rendered(&probe_messages(roles), tools.then(tool).as_ref())
    }

    fn shows_tool(&self, tool: &Value) -> bool {
        let shows = |roles| self.rendered(&probe_messages(roles), Some(tool));
        ["u", "su"].into_iter().filter_map(shows).any(|text| text.contains(TOOL))
    }

    fn rendered(&self, messages: &[Message], tool: Option<&Value>) -> Option<String> {
        let form = CallForm { format: self.format, as_text: false, text_arguments: true };
        let values = messages.iter().map(|message| template_message(message, form));
        let mut input = json!({"messages": values.collect::<Value>()});
        if let Some(tool) = tool {
            input["tools"] = json!([tool]);
        }
        let input = self.template.with_defaults(input, None);
        self.assets.render(self.template, &input, None).ok().map(|prompt| prompt.text)
    }
}

/// The tool of probes.
fn tool() -> Value {
    let parameters = json!({"type": "object", "required": ["key"],
        "properties": {"key": {"type": "string", "description": "The key"}}});
    let function = json!({"name": TOOL, "description": "Finds a key", "parameters": parameters});
    json!({"type": "function", "function": function})
}

/// The tool of probes without the member `name`.
fn without(name: &str) -> Value {
    let mut tool = tool();
    if let Some(function) = tool["function"].as_object_mut() {
        function.shift_remove(name);
    }
    tool
}

/// The tool of probes with another member `name`.
fn with(name: &str, value: Value) -> Value {
    let mut tool = tool();
    tool["function"][name] = value;
    tool
}

fn probe_text(at: usize) -> String {
    format!("probe{at}text")
}

fn probe_messages(roles: &str) -> Vec<Message> {
    roles.chars().enumerate().map(|(at, role)| probe_message(role, probe_text(at))).collect()
}

fn probe_message(role: char, text: String) -> Message {
    let (first, second) = (("call00001", CALLED), ("call00002", CALLED_TOO));
    let result = |(id, name): (&str, &str)| Message {
        call_id: Some(id.into()),
        name: Some(name.into()),
        ..Message::new("tool", text.clone())
    };
    let call = |(id, name), arguments: Value| {
        let function = json!({"name": name, "arguments": arguments});
        json!({"id": id, "type": "function", "function": function}).into()
    };
    let object = || json!({"key": text.clone()});
    let calls = |calls| Message { calls, ..Message::assistant("") };
    match role {
        's' => Message::system(text),
        'u' => Message::user(text),
        'a' => Message::assistant(text),
        't' => result(first),
        'r' => result(second),
        'x' => calls(vec![call(first, format!("{{\"key\": \"{text}").into())]),
        'd' => calls(vec![call(first, object()), call(second, object())]),
        _ => calls(vec![call(first, object())]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

    fn rules(source: &str) -> MessageRules {
        let assets = TextAssets::from_folder(Path::new(DATA)).unwrap();
        let template = ChatTemplate::from_source(source).unwrap();
        let format = ToolFormat::detect(source);
        MessageRules::of(&assets, &template, format)
    }

    const PLAIN: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";

    #[test]
    fn templates_without_rules_take_every_message_as_it_is() {
        let expected = MessageRules { tools: false, calls: false, ..MessageRules::default() };
        assert_eq!(rules(PLAIN), expected);
    }

    #[test]
    fn messages_that_are_left_out_are_not_taken() {
        let first = "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}\
                     {% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}";
        assert_eq!(rules(first).system, SystemPlace::Once);
        let users = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}";
        assert_eq!(rules(users).system, SystemPlace::Nowhere);
        // The tools are mentioned and not rendered.
        let tools = format!("{{# tools #}}{PLAIN}");
        assert!(!rules(&tools).tools);
        let tools =
            format!("{{% for t in tools or [] %}}{{{{ t.function.name }}}}{{% endfor %}}{PLAIN}");
        assert!(rules(&tools).tools);
    }

    #[test]
    fn templates_for_conversations_with_tools_are_probed_with_tools() {
        let source = "{% for t in tools %}{{ t.function.name }}{% endfor %}\
                      {% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}";
        let rules = rules(source);
        assert_eq!((rules.tools, rules.system), (true, SystemPlace::Nowhere));
    }

    #[test]
    fn nothing_is_known_of_templates_that_render_nothing() {
        for source in ["{{ raise_exception('no') }}", "{% for i in range(10) %}x{% endfor %}"] {
            assert_eq!(rules(source), MessageRules { tools: false, ..MessageRules::default() });
        }
    }
}
