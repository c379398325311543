//! What a chat template takes: found out once, when the template is loaded, by rendering small
//! conversations.
//!
//! Clients may put system messages anywhere, and messages of one role in a row; some templates
//! refuse such conversations, or leave messages out. A conversation is taken if a template renders
//! it with the contents of all messages.

use crate::message::Message;
use crate::template_message::template_message;
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
    /// A user message may follow the result of a call.
    pub user_after_result: bool,
    /// Calls and their results are rendered.
    pub calls: bool,
    /// Tools are rendered.
    pub tools: bool,
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
            user_after_result: true,
            calls: true,
            tools: true,
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
        let shows = |roles| mentioned && bare.shows_tools(roles);
        let tools = shows("u") || shows("su");
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
            user_after_result: !calls || probe.takes("uctu"),
            calls,
            tools,
        }
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

/// The names of the tool of probes and of the one that is called, which no template has otherwise.
const TOOL: &str = "gannet_probe";
const CALLED: &str = "gannet_called";

impl Probe<'_> {
    fn system(&self, first: bool) -> SystemPlace {
        let later = ["suasu", "us", "usau", "usu", "uasu"];
        match first {
            false => SystemPlace::Nowhere,
            true if !self.takes("ssu") => SystemPlace::Once,
            true if later.iter().all(|roles| self.takes(roles)) => SystemPlace::Anywhere,
            true => SystemPlace::Start,
        }
    }

    /// Whether the template renders a conversation of these roles with all contents: system, user,
    /// assistant, an assistant's call, and its result from a tool.
    fn takes(&self, roles: &str) -> bool {
        let text = |at: usize| format!("probe{at}text");
        let messages = roles.chars().enumerate().map(|(at, role)| probe_message(role, text(at)));
        let messages: Vec<Message> = messages.collect();
        let tools = match self.tools {
            ProbeTools::Never => false,
            ProbeTools::WithCalls => roles.contains('c'),
            ProbeTools::Always => true,
        };
        let Some(rendered) = self.rendered(&messages, tools) else { return false };
        let shown = |(at, message): (usize, &Message)| match message.calls.is_empty() {
            true => rendered.contains(&text(at)),
            // Some templates leave arguments out.
            false => rendered.contains(CALLED),
        };
        messages.iter().enumerate().all(shown)
    }

    fn shows_tools(&self, roles: &str) -> bool {
        let message = |(at, role)| probe_message(role, format!("probe{at}text"));
        let messages: Vec<Message> = roles.chars().enumerate().map(message).collect();
        self.rendered(&messages, true).is_some_and(|text| text.contains(TOOL))
    }

    fn rendered(&self, messages: &[Message], tools: bool) -> Option<String> {
        let values = messages.iter().map(|message| template_message(message, self.format, false));
        let mut input = json!({"messages": values.collect::<Value>()});
        if tools {
            let parameters = json!({"type": "object", "required": ["key"],
                "properties": {"key": {"type": "string", "description": "The key"}}});
            let function =
                json!({"name": TOOL, "description": "Finds a key", "parameters": parameters});
            input["tools"] = json!([{"type": "function", "function": function}]);
        }
        let input = self.template.with_defaults(input, None);
        self.assets.render(self.template, &input, None).ok().map(|prompt| prompt.text)
    }
}

fn probe_message(role: char, text: String) -> Message {
    match role {
        's' => Message::system(text),
        'u' => Message::user(text),
        'a' => Message::assistant(text),
        't' => Message {
            call_id: Some("call00001".into()),
            name: Some(CALLED.into()),
            ..Message::new("tool", text)
        },
        _ => {
            let call = json!({"id": "call00001", "type": "function",
                "function": {"name": CALLED, "arguments": {"key": text}}});
            Message { calls: vec![call.into()], ..Message::assistant("") }
        }
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
