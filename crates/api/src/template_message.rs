//! Messages as templates take them.

use crate::ids::nine_characters;
use crate::message::Message;
use crate::tool_prompt::with_calls;
use serde_json::{Map, Value};
use text::ToolFormat;
use text::tool_formats::{deepseek::DEEPSEEK_V3, harmony::HARMONY, mistral::MISTRAL};

/// How a template takes calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallForm {
    /// The format in which the model writes calls.
    pub format: Option<&'static ToolFormat>,
    /// Calls are text in this format.
    pub as_text: bool,
    /// Arguments may be text.
    pub text_arguments: bool,
}

/// A message in the form that a template expects. Clients omit the text of a message with calls or
/// send an empty one; some templates fail on an omitted text, and others render a separate turn for
/// an empty one.
pub(crate) fn template_message(message: &Message, form: CallForm) -> Value {
    let format = form.format;
    let written = format.filter(|_| form.as_text && !message.calls.is_empty());
    let is_call = !message.calls.is_empty() && written.is_none();
    let text = message.text();
    let mut content = match written {
        Some(format) => Some(with_calls(&text.unwrap_or_default(), &message.calls, format)),
        None => text.filter(|text| !is_call || !text.is_empty()),
    };
    let mut members = Map::new();
    members.insert("role".into(), message.role.name().into());
    members.insert("content".into(), Value::Null);
    match &message.reasoning {
        // Harmony's templates take one text before a call, in `thinking`.
        Some(thought) if is_call && format == Some(&HARMONY) => {
            let texts = [Some(thought.clone()), content.take()].into_iter().flatten();
            let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
            members.insert("thinking".into(), texts.join("\n").into());
        }
        Some(thought) => {
            members.insert("reasoning_content".into(), thought.as_str().into());
        }
        None => {}
    }
    if is_call && format != Some(&DEEPSEEK_V3) {
        content.get_or_insert_default();
    }
    members.insert("content".into(), content.into());
    // Mistral's templates accept only ids of nine characters.
    let id = |id: &Option<String>| match format {
        Some(format) if format == &MISTRAL => id.as_deref().map(nine_characters),
        _ => id.clone(),
    };
    if is_call {
        let calls = message.calls.iter().map(|call| call.json(id(&call.id), form.text_arguments));
        members.insert("tool_calls".into(), calls.collect());
    }
    let named = [("tool_call_id", id(&message.call_id)), ("name", message.name.clone())];
    members.extend(named.into_iter().filter_map(|(name, text)| Some((name.into(), text?.into()))));
    members.extend(message.extra.clone());
    members.into()
}
