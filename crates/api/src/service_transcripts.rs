//! Answers of transcripts.

use crate::answer_record::AnswerRecord;
use crate::error::ApiError;
use crate::request::ChatRequest;
use crate::service::Service;
use crate::transcript::{AnswerOptions, Transcript, TranscriptAnswer, TurnTokens};
use serde_json::Value;
use sha2::{Digest, Sha256};

impl Service {
    /// Begins a transcript with the settings, tools and messages of `request`; nothing is computed.
    ///
    /// # Errors
    /// If the model generates no text.
    pub fn begin(&self, request: ChatRequest) -> Result<Transcript, ApiError> {
        self.check_task()?;
        Ok(Transcript::new(request))
    }

    /// Continues the transcript of `request` from the tokens of its answers, which are of the same
    /// model, template and tools: [`conversation_digest`](Self::conversation_digest) says so.
    ///
    /// # Errors
    /// If the model generates no text, or a turn has no message or tokens that are no words.
    pub fn resume(
        &self,
        request: ChatRequest,
        turns: Vec<TurnTokens>,
    ) -> Result<Transcript, ApiError> {
        self.check_task()?;
        let words = self.info().vocab_size;
        let is_answer = |turn: &TurnTokens| {
            request.messages.get(turn.message).is_some_and(|it| it.role == "assistant".into())
        };
        let ascending = turns.windows(2).all(|pair| pair[0].message < pair[1].message);
        let known = |turn: &TurnTokens| {
            turn.prompt.iter().chain(&turn.sampled).all(|id| (*id as usize) < words)
        };
        if !ascending || !turns.iter().all(|turn| is_answer(turn) && known(turn)) {
            let message = "the tokens of the conversation are not those of its answers";
            return Err(ApiError::invalid("messages", message));
        }
        Ok(Transcript::with_turns(request, turns))
    }

    /// Begins the next answer of `transcript`, which holds what comes of it. An answer before is
    /// settled.
    ///
    /// # Errors
    /// Those of [`prepare_chat`](Self::prepare_chat) and [`start`](Self::start).
    pub fn answer(
        &self,
        transcript: &mut Transcript,
        options: &AnswerOptions,
    ) -> Result<TranscriptAnswer, ApiError> {
        transcript.settle();
        let AnswerOptions { sampling, tool_choice, grammar, reasoning_budget, request: terms } =
            options;
        let request = ChatRequest {
            sampling: sampling.over(&transcript.request.sampling),
            tool_choice: tool_choice.clone(),
            tools_stay: true,
            grammar: grammar.clone(),
            reasoning_budget: reasoning_budget.or(transcript.request.reasoning_budget),
            ..transcript.request.clone()
        };
        let last = transcript.last();
        let (prepared, origin) = self.prepare_turn(&request, last)?;
        let earlier = last.map(|turn| turn.tokens().len());
        let rendered_anew = earlier.filter(|_| origin.parent.is_none());
        let prompt = prepared.prompt()[origin.shared..].to_vec();
        let record = transcript.open(AnswerRecord::new(origin, prompt));
        let stream = self.start(&prepared, 0, terms)?.recorded(record);
        let (prompt_tokens, warnings) = (prepared.prompt().len(), prepared.warnings().to_vec());
        Ok(TranscriptAnswer { stream, prompt_tokens, rendered_anew, warnings })
    }

    /// Digest of what decides the tokens of a conversation besides its messages: the model, its
    /// vocabulary and template, the tools and the template's variables.
    pub fn conversation_digest(&self, request: &ChatRequest) -> [u8; 16] {
        let mut hash = Sha256::new_with_prefix(self.digest());
        for tool in &request.tools {
            hash.update(tool.json().to_string());
        }
        hash.update(Value::Object(request.template_kwargs.clone()).to_string());
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash.finalize()[..16]);
        digest
    }
}
