//! The model of an agent: a conversation whose answers are made one after the other.

use crate::token_count::tokens;
use api::{AnswerOptions, ApiError, Message, Service, SettledAnswer, TextEvent, TextStream};
use api::{ChatRequest, Transcript, TranscriptMark, TurnTokens};
use serde_json::{Map, Value};
use std::fmt::Debug;
use std::io;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Time between two looks whether an answer is cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// How an answer began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerStart {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of earlier turns that are computed anew.
    pub rendered_anew: Option<usize>,
}

/// A conversation with a model.
pub trait AgentModel: Debug {
    /// The messages so far.
    fn messages(&self) -> &[Message];
    /// Adds messages.
    fn extend(&mut self, messages: Vec<Message>);
    /// Begins an answer; `is_cancelled` is asked while this waits.
    ///
    /// # Errors
    /// If the prompt is longer than the context, or the model has ended.
    fn begin(
        &mut self,
        options: &AnswerOptions,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<AnswerStart, ApiError>;
    /// Waits for the next event of the answer; `None` after the last, and where it is cancelled.
    fn next(&mut self, is_cancelled: &dyn Fn() -> bool) -> Option<TextEvent>;
    /// Ends the answer and adds what came of it.
    fn settle(&mut self) -> Option<SettledAnswer>;
    /// The place after the last message.
    fn mark(&self) -> TranscriptMark;
    /// Removes all that was added after `mark`.
    fn rewind(&mut self, mark: TranscriptMark);
    /// Begins anew with these messages.
    ///
    /// # Errors
    /// If the model cannot; then nothing has changed.
    fn restart(&mut self, messages: Vec<Message>) -> Result<(), ApiError>;
    /// Sets the template's variables for all further answers. Gives the tokens that are computed
    /// anew, where the template writes earlier messages in another way then; `None` where the
    /// conversation continues from its tokens. A model whose prompts have none ignores them.
    ///
    /// # Errors
    /// If the model cannot; then nothing has changed.
    fn set_variables(&mut self, _: Map<String, Value>) -> Result<Option<usize>, ApiError> {
        Ok(None)
    }
    /// Tokens of the conversation; what is not computed yet is counted by its bytes.
    fn used(&self) -> usize;
    /// Most tokens of prompt and answer together.
    fn context(&self) -> usize;
}

/// A model in this process.
#[derive(Debug)]
pub struct LocalModel {
    service: Service,
    transcript: Transcript,
    stream: Option<TextStream>,
    runtime: Runtime,
}

impl LocalModel {
    /// A conversation with the model of `service`.
    ///
    /// # Errors
    /// If the system gives no timer.
    pub fn new(service: Service, transcript: Transcript) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(Self { service, transcript, stream: None, runtime })
    }

    /// The transcript of `request` that continues from the tokens of its answers. Where they are
    /// not those of its messages, these are rendered anew, and the error says why.
    ///
    /// # Errors
    /// If the model generates no text.
    pub fn transcript(
        service: &Service,
        request: ChatRequest,
        turns: Vec<TurnTokens>,
    ) -> Result<(Transcript, Option<ApiError>), ApiError> {
        match service.resume(request.clone(), turns) {
            Ok(transcript) => Ok((transcript, None)),
            Err(error) => Ok((service.begin(request)?, Some(error))),
        }
    }
}

impl AgentModel for LocalModel {
    fn messages(&self) -> &[Message] {
        self.transcript.messages()
    }

    fn extend(&mut self, messages: Vec<Message>) {
        self.transcript.extend(messages);
    }

    fn begin(
        &mut self,
        options: &AnswerOptions,
        _: &dyn Fn() -> bool,
    ) -> Result<AnswerStart, ApiError> {
        let answer = self.service.answer(&mut self.transcript, options)?;
        let (prompt_tokens, rendered_anew) = (answer.prompt_tokens, answer.rendered_anew);
        self.stream = Some(answer.stream);
        Ok(AnswerStart { prompt_tokens, rendered_anew })
    }

    fn next(&mut self, is_cancelled: &dyn Fn() -> bool) -> Option<TextEvent> {
        let stream = self.stream.as_mut()?;
        self.runtime.block_on(async {
            loop {
                // The stream loses nothing where its next event is waited for anew.
                match timeout(LOOK, stream.next()).await {
                    Ok(event) => return event,
                    Err(_) if is_cancelled() => return None,
                    Err(_) => {}
                }
            }
        })
    }

    fn settle(&mut self) -> Option<SettledAnswer> {
        // What is still computed of it is not needed.
        self.stream = None;
        self.transcript.settle()
    }

    fn mark(&self) -> TranscriptMark {
        self.transcript.mark()
    }

    fn rewind(&mut self, mark: TranscriptMark) {
        self.stream = None;
        self.transcript.rewind(mark);
    }

    fn restart(&mut self, messages: Vec<Message>) -> Result<(), ApiError> {
        self.stream = None;
        self.transcript = self.service.begin(self.transcript.request_of(messages))?;
        Ok(())
    }

    fn set_variables(&mut self, variables: Map<String, Value>) -> Result<Option<usize>, ApiError> {
        let before = self.transcript.request_of(self.messages().to_vec());
        let after = ChatRequest { template_kwargs: variables, ..before.clone() };
        let anew = self.rendered_anew(&before, &after);
        let turns = match anew {
            Some(_) => Vec::new(),
            None => self.transcript.turns().collect(),
        };
        self.stream = None;
        self.transcript = self.service.resume(after, turns)?;
        Ok(anew)
    }

    fn used(&self) -> usize {
        let last = self.transcript.turns().last();
        let (known, computed) =
            last.map_or((0, 0), |turn| (self.transcript.tokens().len(), turn.message + 1));
        known + tokens(&self.messages()[computed..])
    }

    fn context(&self) -> usize {
        self.service.info().context_length
    }
}

impl LocalModel {
    /// Tokens of the messages of `after` that are not those of `before`, if any are.
    fn rendered_anew(&self, before: &ChatRequest, after: &ChatRequest) -> Option<usize> {
        let tokens = |request: &ChatRequest| {
            let request = ChatRequest { add_generation_prompt: false, ..request.clone() };
            self.service.prepare_chat(&request).map(|prepared| prepared.prompt().to_vec())
        };
        // What cannot be rendered before the next message may be anything.
        let (Ok(before), Ok(after)) = (tokens(before), tokens(after)) else {
            return Some(self.transcript.tokens().len());
        };
        let same = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
        (before != after).then(|| after.len() - same)
    }
}
