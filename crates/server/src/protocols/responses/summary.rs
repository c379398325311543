//! Summaries of conversations: the request for one, and what the model wrote.

use crate::generate::answer::Collected;
use crate::http::error::HttpError;
use crate::protocols::responses::history::append;
use api::{ChatRequest, Message, Role, SamplingOptions, Service, ToolChoice};
use axum::http::StatusCode;

/// What the model is asked for after the conversation.
const REQUEST: &str = "\
Summarize the conversation above so that it can be continued without it: goals, facts, decisions, \
results and next steps.";

/// Most tokens of a summary.
const MAX_TOKENS: usize = 2048;
/// Which part of the context a summary may fill at most.
const SHARE: usize = 8;
/// Fewest tokens of a summary: an empty one would lose the conversation.
const MIN_TOKENS: usize = 8;

/// Makes `request` one for a summary of its messages. The answer neither thinks nor calls tools.
pub(crate) fn request_summary(request: &mut ChatRequest, service: &Service) {
    ask(&mut request.messages);
    request.tool_choice = ToolChoice::None;
    request.grammar = None;
    request.template_kwargs.shift_remove("reasoning_effort");
    request.template_kwargs.insert("enable_thinking".into(), false.into());
    request.sampling = sampling(service, request.sampling.max_tokens);
}

/// Asks for the summary at the end of `messages`: within the user's message if there is one, since
/// many templates want the user and the assistant to take turns.
fn ask(messages: &mut Vec<Message>) {
    match messages.last_mut() {
        Some(Message { role: Role::User, content, .. }) => {
            append(content, &format!("\n\n{REQUEST}"));
        }
        _ => messages.push(Message::user(REQUEST)),
    }
}

/// The same conversation gets the same summary, of at most `limit` tokens.
fn sampling(service: &Service, limit: Option<usize>) -> SamplingOptions {
    let most = (service.info().context_length / SHARE).clamp(1, MAX_TOKENS);
    let most = limit.map_or(most, |limit| limit.min(most));
    SamplingOptions {
        temperature: Some(0.0),
        max_tokens: Some(most),
        min_tokens: Some(MIN_TOKENS.min(most)),
        ..SamplingOptions::default()
    }
}

/// The summary that the model wrote: its answer, or else what it thought.
pub(crate) fn summary(written: Collected) -> Result<String, HttpError> {
    let texts = [written.content, written.reasoning];
    let text = texts.iter().map(|text| text.trim()).find(|text| !text.is_empty());
    text.map(str::to_owned).ok_or_else(|| {
        let message = "the model wrote no summary of the conversation";
        HttpError::server(StatusCode::INTERNAL_SERVER_ERROR, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_continues_the_users_message() {
        let mut messages = vec![Message::user("a")];
        ask(&mut messages);
        assert_eq!(messages.len(), 1);
        messages.push(Message::assistant("b"));
        ask(&mut messages);
        assert_eq!((messages.len(), messages[2].role.name()), (3, "user"));
    }

    #[test]
    fn thoughts_are_a_summary_where_nothing_was_said_and_nothing_is_none() {
        let collected = |content: &str, reasoning: &str| Collected {
            content: content.into(),
            reasoning: reasoning.into(),
            ..Collected::default()
        };
        assert_eq!(summary(collected(" a\n", "b")).unwrap(), "a");
        assert_eq!(summary(collected("\n", "b")).unwrap(), "b");
        assert!(summary(collected("", " ")).is_err());
    }
}
