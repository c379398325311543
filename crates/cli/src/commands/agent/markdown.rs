//! A conversation as Markdown.

use super::call_text::call_text;
use api::Message;

/// The conversation of these messages, without the system text.
pub(crate) fn markdown(title: &str, messages: &[Message]) -> String {
    let mut text = format!("# {title}\n");
    for message in messages {
        let content = message.text().unwrap_or_default();
        match message.role.name() {
            "system" => {}
            "tool" => text += &format!("\n{}\n", fenced(&content)),
            "assistant" => add_answer(&mut text, message, &content),
            _ => text += &format!("\n## User\n\n{}\n", content.trim()),
        }
    }
    text
}

fn add_answer(text: &mut String, message: &Message, content: &str) {
    *text += "\n## Agent\n";
    let reasoning = message.reasoning.as_deref().unwrap_or_default().trim();
    if !reasoning.is_empty() {
        let lines = reasoning.lines().map(|line| format!("> {line}").trim_end().to_owned() + "\n");
        *text += &format!("\n{}", lines.collect::<String>());
    }
    if !content.trim().is_empty() {
        *text += &format!("\n{}\n", content.trim());
    }
    for call in &message.calls {
        *text += &format!("\nCall of `{}`:\n\n{}\n", call.name, fenced(&call_text(call)));
    }
}

/// A text between fences that are longer than any in it.
fn fenced(text: &str) -> String {
    let ticks = text.split(|it| it != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(ticks.max(2) + 1);
    format!("{fence}\n{}\n{fence}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::ToolCall;
    use serde_json::json;

    #[test]
    fn a_conversation_is_markdown() {
        let call = ToolCall {
            name: "bash".into(),
            arguments: json!({"command": "cat a.md"}),
            ..ToolCall::default()
        };
        let answer = Message {
            reasoning: Some("I look.\n\nFirst.".into()),
            calls: vec![call],
            ..Message::assistant("So:")
        };
        let messages = [
            Message::system("rules"),
            Message::user("What is in a.md?"),
            answer,
            Message::new("tool", "```\ncode\n```\n"),
            Message::assistant("Code."),
        ];
        let expected = "# session a\n\n## User\n\nWhat is in a.md?\n\n## Agent\n\n> I look.\n>\n\
            > First.\n\nSo:\n\nCall of `bash`:\n\n```\ncat a.md\n```\n\n````\n```\ncode\n```\n````\n\
            \n## Agent\n\nCode.\n";
        assert_eq!(markdown("session a", &messages), expected);
    }
}
