//! What is asked: short forms of the service's requests.

use crate::{Answer, Error};
use api::{ChatRequest, Message, Prompt, SamplingOptions, Service, TextRequest, TextStream};
use serde_json::json;

/// A question to the model, with wishes about how it is answered.
///
/// Made of a text (which is a chat of one message), of [`Messages`], of a [`ChatRequest`] or a
/// [`TextRequest`].
///
/// ```
/// use gannet::{Message, Request};
///
/// let talk = [Message::system("Answer in one word."), Message::user("Is water wet?")];
/// let request = Request::chat(talk).temperature(0.0).max_tokens(20).stop("\n");
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Chat(ChatRequest),
    Text(TextRequest),
}

impl Request {
    /// The next message of a conversation, or the answer to one question.
    pub fn chat(messages: impl Into<Messages>) -> Self {
        ChatRequest { messages: messages.into().0, ..ChatRequest::default() }.into()
    }

    /// The continuation of a text, as it is and without a template.
    pub fn complete(prompt: impl Into<String>) -> Self {
        let prompt = Prompt::Text(prompt.into());
        TextRequest {
            prompt,
            add_special: true,
            sampling: SamplingOptions::default(),
            grammar: None,
        }
        .into()
    }

    /// Most tokens to generate.
    pub fn max_tokens(mut self, tokens: usize) -> Self {
        self.sampling_mut().max_tokens = Some(tokens);
        self
    }

    /// How much is left to chance; 0 takes the most likely token.
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.sampling_mut().temperature = Some(temperature);
        self
    }

    /// Keeps the most likely tokens of together at least this probability.
    pub fn top_p(mut self, mass: f32) -> Self {
        self.sampling_mut().top_p = Some(mass);
        self
    }

    /// Keeps so many of the most likely tokens.
    pub fn top_k(mut self, tokens: usize) -> Self {
        self.sampling_mut().top_k = Some(tokens);
        self
    }

    /// The same seed gives the same answer.
    pub fn seed(mut self, seed: u64) -> Self {
        self.sampling_mut().seed = Some(seed);
        self
    }

    /// Ends the answer before this text; may be said several times.
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.sampling_mut().stop.push(text.into());
        self
    }

    /// Everything about sampling at once, in place of what was said before.
    pub fn sampling(mut self, sampling: SamplingOptions) -> Self {
        *self.sampling_mut() = sampling;
        self
    }

    /// Whether the model thinks before it answers, if its template lets it choose. Nothing to a
    /// text that is continued, which has no template.
    pub fn think(mut self, think: bool) -> Self {
        if let Kind::Chat(chat) = &mut self.kind {
            chat.template_kwargs.insert("enable_thinking".to_owned(), json!(think));
        }
        self
    }

    /// Renders, tokenizes and submits.
    pub(crate) fn start(&self, service: &Service) -> Result<TextStream, Error> {
        Ok(match &self.kind {
            Kind::Chat(chat) => service.chat(chat)?,
            Kind::Text(text) => service.complete(text)?,
        })
    }

    fn sampling_mut(&mut self) -> &mut SamplingOptions {
        match &mut self.kind {
            Kind::Chat(chat) => &mut chat.sampling,
            Kind::Text(text) => &mut text.sampling,
        }
    }
}

impl From<ChatRequest> for Request {
    fn from(chat: ChatRequest) -> Self {
        Self { kind: Kind::Chat(chat) }
    }
}

impl From<TextRequest> for Request {
    fn from(text: TextRequest) -> Self {
        Self { kind: Kind::Text(text) }
    }
}

impl<T: Into<Messages>> From<T> for Request {
    fn from(messages: T) -> Self {
        Self::chat(messages)
    }
}

/// What the model said, without what it thought.
impl From<Answer> for Message {
    fn from(answer: Answer) -> Self {
        Self::assistant(answer.text)
    }
}

/// A conversation; a text alone is what the user says.
#[derive(Clone, Debug, PartialEq)]
pub struct Messages(Vec<Message>);

impl From<&str> for Messages {
    fn from(text: &str) -> Self {
        Self(vec![Message::user(text)])
    }
}

impl From<&String> for Messages {
    fn from(text: &String) -> Self {
        Self(vec![Message::user(text)])
    }
}

impl From<String> for Messages {
    fn from(text: String) -> Self {
        Self(vec![Message::user(text)])
    }
}

impl From<Message> for Messages {
    fn from(message: Message) -> Self {
        Self(vec![message])
    }
}

impl From<Vec<Message>> for Messages {
    fn from(messages: Vec<Message>) -> Self {
        Self(messages)
    }
}

impl From<&[Message]> for Messages {
    fn from(messages: &[Message]) -> Self {
        Self(messages.to_vec())
    }
}

impl<const N: usize> From<[Message; N]> for Messages {
    fn from(messages: [Message; N]) -> Self {
        Self(messages.into())
    }
}
