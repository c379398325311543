//! Requests: short forms of those of the service.

use crate::answer::Answer;
use crate::error::Error;
use crate::setters::setters;
use api::{
    ChatRequest, Message, ReceiptKey, RequestOptions, SamplingOptions, Service, TextRequest,
    TextStream,
};
use serde_json::json;

/// A request with its sampling options.
///
/// A request is made from a text (a chat of one message), from [`Messages`], from a [`ChatRequest`]
/// or from a [`TextRequest`].
///
/// ```
/// use gannet::{Message, Request};
///
/// let talk = [Message::system("Answer in one word."), Message::user("Is water wet?")];
/// let request = Request::chat(talk).temperature(0.0).max_tokens(20).stop("\n");
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    kind: RequestKind,
    receipt: bool,
    receipt_key: Option<ReceiptKey>,
}

#[derive(Clone, Debug)]
enum RequestKind {
    Chat(Box<ChatRequest>),
    Text(Box<TextRequest>),
}

impl Request {
    /// Requests the next message of a conversation, or the answer to one question.
    pub fn chat(messages: impl Into<Messages>) -> Self {
        ChatRequest { messages: messages.into().0, ..ChatRequest::default() }.into()
    }

    /// Requests the continuation of a text, without a chat template.
    pub fn complete(prompt: impl Into<String>) -> Self {
        TextRequest::new(prompt.into()).into()
    }

    setters! {
        /// Sets the largest number of tokens to generate.
        max_tokens(tokens: usize): |it| it.sampling_mut().max_tokens = Some(tokens);
        /// Sets the sampling temperature; 0 takes the most likely token.
        temperature(temperature: f32): |it| it.sampling_mut().temperature = Some(temperature);
        /// Samples from the most likely tokens of at least this probability in total.
        top_p(mass: f32): |it| it.sampling_mut().top_p = Some(mass);
        /// Samples from this number of most likely tokens.
        top_k(tokens: usize): |it| it.sampling_mut().top_k = Some(tokens);
        /// Sets the seed; the same seed gives the same answer.
        seed(seed: u64): |it| it.sampling_mut().seed = Some(seed);
        /// Adds a stop string, before which the answer ends.
        stop(text: impl Into<String>): |it| it.sampling_mut().stop.push(text.into());
        /// Sets whether the answer has a receipt, with which it can be computed again and compared
        /// to the bit. The first one takes as long as reading the weights.
        receipt(receipt: bool): |it| it.receipt = receipt;
        /// Sets the key that signs the receipt.
        receipt_key(key: ReceiptKey): |it| it.receipt_key = Some(key);
    }

    /// Sets all sampling options, and replaces those set before.
    pub fn sampling(mut self, sampling: SamplingOptions) -> Self {
        *self.sampling_mut() = sampling;
        self
    }

    /// Sets whether the model reasons before it answers, if its chat template has the choice. No
    /// effect on the continuation of a text, which has no template.
    pub fn think(mut self, think: bool) -> Self {
        if let RequestKind::Chat(chat) = &mut self.kind {
            chat.template_kwargs.insert("enable_thinking".to_owned(), json!(think));
        }
        self
    }

    /// Renders, tokenizes and submits.
    pub(crate) fn start(&self, service: &Service) -> Result<TextStream, Error> {
        let prepared = match &self.kind {
            RequestKind::Chat(chat) => service.prepare_chat(chat)?,
            RequestKind::Text(text) => service.prepare_text(text)?,
        };
        let (receipt, receipt_key) = (self.receipt, self.receipt_key.clone());
        let options = RequestOptions { receipt, receipt_key, ..RequestOptions::default() };
        Ok(service.start(&prepared, 0, &options)?)
    }

    fn sampling_mut(&mut self) -> &mut SamplingOptions {
        match &mut self.kind {
            RequestKind::Chat(chat) => &mut chat.sampling,
            RequestKind::Text(text) => &mut text.sampling,
        }
    }
}

impl From<RequestKind> for Request {
    fn from(kind: RequestKind) -> Self {
        Self { kind, receipt: false, receipt_key: None }
    }
}

impl From<ChatRequest> for Request {
    fn from(chat: ChatRequest) -> Self {
        RequestKind::Chat(Box::new(chat)).into()
    }
}

impl From<TextRequest> for Request {
    fn from(text: TextRequest) -> Self {
        RequestKind::Text(Box::new(text)).into()
    }
}

impl<T: Into<Messages>> From<T> for Request {
    fn from(messages: T) -> Self {
        Self::chat(messages)
    }
}

/// The content of the answer, without reasoning.
impl From<Answer> for Message {
    fn from(answer: Answer) -> Self {
        Self::assistant(answer.text)
    }
}

/// A conversation; a text alone is a message of the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Messages(Vec<Message>);

macro_rules! into_messages {
    ($($type:ty: |$from:ident| $messages:expr;)*) => {$(
        impl From<$type> for Messages {
            fn from($from: $type) -> Self {
                Self($messages)
            }
        }
    )*};
}

into_messages! {
    &str: |text| vec![Message::user(text)];
    &String: |text| vec![Message::user(text)];
    String: |text| vec![Message::user(text)];
    Message: |message| vec![message];
    Vec<Message>: |messages| messages;
    &[Message]: |messages| messages.to_vec();
}

impl<const N: usize> From<[Message; N]> for Messages {
    fn from(messages: [Message; N]) -> Self {
        Self(messages.into())
    }
}
