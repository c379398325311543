//! The result of the work as a value of a schema, for programs.

use crate::agent_loop::{Agent, AgentError, WorkEnd};
use crate::schema_fault::schema_fault;
use crate::user::AgentUser;
use api::{AnswerOptions, Message, ToolChoice};
use serde_json::Value;
use text::GrammarSource;

/// What the model is asked for.
const REQUEST: &str =
    "Give the result of the work as JSON that fits this schema, and nothing else:";

/// What came of asking for a result.
#[derive(Clone, Debug, PartialEq)]
pub enum FinalResult {
    /// A value that fits the schema, as far as [`schema_fault`] sees.
    Fits(Value),
    /// An answer that does not, with why.
    Wrong(String),
    /// No answer, or the beginning of one.
    Ended(WorkEnd),
}

impl Agent {
    /// Has the model give the result of its work, with which the conversation ends. Its tokens are
    /// sampled under `schema` by a model in this process.
    ///
    /// # Errors
    /// If the model or the session fails.
    pub fn result(
        &mut self,
        schema: &Value,
        user: &mut dyn AgentUser,
    ) -> Result<FinalResult, AgentError> {
        if !self.limits.count_answer() {
            return Ok(FinalResult::Ended(WorkEnd::Limit));
        }
        self.add(vec![Message::user(format!("{REQUEST}\n{schema}"))])?;
        let options = AnswerOptions {
            tool_choice: ToolChoice::None,
            grammar: Some(GrammarSource::JsonSchema(schema.clone())),
            ..self.options.clone()
        };
        let (answer, is_whole) = match self.answer(options, user) {
            Err(AgentError::Model(error)) if error.is_full() => {
                return Ok(FinalResult::Ended(WorkEnd::Full));
            }
            answer => answer?,
        };
        if user.is_interrupted() {
            return Ok(FinalResult::Ended(WorkEnd::Interrupted));
        }
        if !is_whole {
            return Ok(FinalResult::Ended(WorkEnd::Limit));
        }
        let text = answer.and_then(|answer| answer.message.text()).unwrap_or_default();
        let Ok(value) = serde_json::from_str(&text) else {
            return Ok(FinalResult::Wrong("the last answer is no JSON".to_owned()));
        };
        Ok(match schema_fault(schema, &value) {
            Some(fault) => FinalResult::Wrong(fault),
            None => FinalResult::Fits(value),
        })
    }
}
