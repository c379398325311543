//! Compaction: the conversation is replaced by a summary, what the program knows of it, and its
//! last messages.
//!
//! Invariant: a compaction that fails or is interrupted changes nothing, and none follows another
//! by itself without an answer between them that had space.

use crate::agent_loop::{Agent, AgentError};
use crate::known_facts::KnownFacts;
use crate::schema_fault::schema_fault;
use crate::token_count::tokens;
use crate::user::{AgentEvent, AgentUser, Compacted};
use api::{AnswerOptions, Message, SamplingOptions, ToolChoice, TranscriptMark};
use serde_json::{Value, json};
use text::GrammarSource;

/// The part of the context, in hundredths, from which on a conversation is compacted by itself.
const NEARLY_FULL: usize = 85;
/// Most tokens of a summary, and the part of the context that it may take.
const MAX_SUMMARY: usize = 4096;
const SUMMARY_PART: usize = 8;
/// Tokens that are kept for the request for a summary, and for the note of a result for which
/// there is no space.
const REQUEST_TOKENS: usize = 64;
const NOTE_TOKENS: usize = 64;
/// The part of the context that the last messages may take.
const TAIL_PART: usize = 10;

/// What the model is asked for.
const REQUEST: &str = "The conversation is about to be replaced by a summary. Write it for the \
    model that continues with the work and will see nothing else of it.";

impl Agent {
    /// Whether so much of the context is used that it is compacted before the next answer.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.model.used() * 100 >= self.model.context() * NEARLY_FULL
    }

    /// Whether a result with this text leaves space for a summary, and for notes in place of the
    /// results of so many other calls.
    pub(crate) fn has_space(&self, text: &str, others: usize) -> bool {
        let added = tokens(&[Message::user(text)]) + others * NOTE_TOKENS;
        self.model.used() + added + self.summary_space() <= self.model.context()
    }

    /// The options of an answer that leaves space for a summary, if there is some.
    pub(crate) fn leaving_space(&self) -> AnswerOptions {
        let mut options = self.options.clone();
        let kept = self.model.used() + self.summary_space();
        let left = self.model.context().saturating_sub(kept);
        if left > 0 {
            let most = options.sampling.max_tokens.unwrap_or(left);
            options.sampling.max_tokens = Some(most.min(left));
        }
        options
    }

    fn summary_tokens(&self) -> usize {
        MAX_SUMMARY.min(self.model.context() / SUMMARY_PART)
    }

    fn summary_space(&self) -> usize {
        self.summary_tokens() + REQUEST_TOKENS
    }

    /// Compacts the conversation where none has failed since there was space, and shows a failure.
    /// Says whether it did.
    pub(crate) fn compact_by_itself(
        &mut self,
        user: &mut dyn AgentUser,
    ) -> Result<bool, AgentError> {
        if !std::mem::take(&mut self.may_compact) {
            return Ok(false);
        }
        let is_compacted = self.compact(None, user)?.is_some();
        if !is_compacted && !user.is_interrupted() {
            user.show(AgentEvent::NotCompacted);
        }
        Ok(is_compacted)
    }

    /// Takes back an answer that has left only the space for a summary, if the conversation may
    /// be compacted, and compacts it. Says whether the answer can be made anew.
    pub(crate) fn make_space(
        &mut self,
        before: TranscriptMark,
        user: &mut dyn AgentUser,
    ) -> Result<bool, AgentError> {
        let begun = self.session.requests().last().map_or(0, |request| request.message);
        if !self.may_compact || !self.limits.is_in_time() || before.0 <= begun {
            return Ok(false);
        }
        self.session.take_back(before.0)?;
        self.model.rewind(before);
        self.compact_by_itself(user)
    }

    /// Replaces the conversation by a summary with the user's words on what matters. `None` if it
    /// did not come about or would free too little; then nothing has changed. Calls without a
    /// result are answered before.
    ///
    /// # Errors
    /// If the tools have ended or the session cannot be written.
    pub fn compact(
        &mut self,
        what_matters: Option<&str>,
        user: &mut dyn AgentUser,
    ) -> Result<Option<Compacted>, AgentError> {
        self.skip_open_calls("interrupted")?;
        let (mark, before) = (self.model.mark(), self.model.used());
        let is_unfinished = self.is_unfinished();
        let summary = self.summary(what_matters, user);
        self.model.rewind(mark);
        let Some(summary) = summary else { return Ok(None) };
        let (jobs, facts) = (self.host.jobs()?.0, self.session.facts());
        let known = known_text(&facts, &jobs);
        let text = format!("{}{}\n{known}", self.opening, summary_text(&summary));
        let Some(messages) = self.shortened(text, before) else { return Ok(None) };
        // A session that cannot be written ends with its messages as they are.
        self.session.compact(&messages, facts, is_unfinished)?;
        self.model.restart(messages)?;
        let compacted = Compacted { before, after: self.model.used() };
        user.show(AgentEvent::Compacted(compacted));
        Ok(Some(compacted))
    }

    /// The model's summary, of which only the request for it is computed.
    fn summary(&mut self, what_matters: Option<&str>, user: &mut dyn AgentUser) -> Option<Value> {
        let matters = what_matters.map_or_else(String::new, |text| format!(" It matters: {text}"));
        self.model.extend(vec![Message::user(format!("{REQUEST}{matters}"))]);
        let sampling = SamplingOptions {
            temperature: Some(0.0),
            max_tokens: Some(self.summary_tokens()),
            ..SamplingOptions::default()
        };
        let options = AnswerOptions {
            sampling,
            tool_choice: ToolChoice::None,
            grammar: Some(GrammarSource::JsonSchema(schema())),
            reasoning_budget: Some(0),
            ..self.options.clone()
        };
        let is_whole = self.sample(options, false, user).ok()?;
        let text = self.model.settle()?.message.text()?;
        let summary = serde_json::from_str(&text).ok().filter(|_| is_whole)?;
        // A server need not hold to the schema.
        schema_fault(&schema(), &summary).is_none().then_some(summary)
    }

    /// The messages of the new conversation, of which `text` is the first after the system text;
    /// `None` if they would free less than a third.
    fn shortened(&self, text: String, before: usize) -> Option<Vec<Message>> {
        let messages = self.model.messages();
        let is_system = |message: &&Message| message.role == "system".into();
        let mut head: Vec<Message> = messages.iter().take_while(is_system).cloned().collect();
        head.push(Message::user(text));
        let tail = tail(&messages[head.len() - 1..], self.model.context() / TAIL_PART);
        let whole = [&head[..], tail].concat();
        let frees = |messages: &[Message]| 3 * tokens(messages) <= 2 * before;
        match (frees(&whole), frees(&head)) {
            (true, _) => Some(whole),
            (false, true) => Some(head),
            (false, false) => None,
        }
    }
}

/// What the program knows, as text: at the end the user's last request.
fn known_text(facts: &KnownFacts, jobs: &[String]) -> String {
    let jobs: String = jobs.iter().map(|job| format!("job: {job}\n")).collect();
    let request = facts.request.as_ref().map_or_else(String::new, |request| {
        format!("The user's last request, word for word:\n{request}")
    });
    format!("{facts}{jobs}{request}")
}

/// The last messages of at most `most` tokens that begin with an answer, since the results of
/// calls stay with them.
fn tail(messages: &[Message], most: usize) -> &[Message] {
    let mut tail = &messages[messages.len()..];
    for at in (0..messages.len()).rev() {
        if tokens(&messages[at..]) > most {
            break;
        }
        if messages[at].role == "assistant".into() {
            tail = &messages[at..];
        }
    }
    tail
}

/// The schema of a summary.
fn schema() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let texts =
        |about: &str| json!({"type": "array", "items": {"type": "string"}, "description": about});
    json!({
        "type": "object",
        "properties": {
            "goal": text("what the user wants"),
            "constraints": texts("what the user has ruled out or demanded"),
            "decisions": texts("what was decided, with why"),
            "state": text("what is done and what is known"),
            "next_step": text("what to do next"),
        },
        "required": ["goal", "constraints", "decisions", "state", "next_step"],
        "additionalProperties": false,
    })
}

/// A summary as text.
fn summary_text(summary: &Value) -> String {
    let mut text = "Summary of the conversation so far:\n".to_owned();
    for (name, value) in summary.as_object().into_iter().flatten() {
        let name = name.replace('_', " ");
        match value {
            Value::Array(items) => {
                let items = items.iter().filter_map(Value::as_str);
                items.for_each(|item| text += &format!("{name}: {item}\n"));
            }
            value => text += &format!("{name}: {}\n", value.as_str().unwrap_or_default()),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::ToolCall;

    #[test]
    fn the_tail_begins_with_an_answer() {
        let call = ToolCall { id: Some("1".into()), name: "read".into(), ..ToolCall::default() };
        let answer = Message { calls: vec![call], ..Message::assistant("look") };
        let result = Message { call_id: Some("1".into()), ..Message::new("tool", "x".repeat(300)) };
        let messages = [Message::user("u".repeat(3000)), answer, result, Message::assistant("ok")];
        for (most, expected) in [(0, 0), (30, 1), (120, 1), (200, 3), (5000, 3)] {
            assert_eq!(tail(&messages, most).len(), expected, "{most}");
        }
    }

    #[test]
    fn what_is_known_ends_with_the_request() {
        let mut facts = KnownFacts::default();
        assert_eq!(known_text(&facts, &[]), "");
        facts.request = Some("fix it".to_owned());
        let expected = "job: 2 runs: make watch\n\
                        The user's last request, word for word:\nfix it";
        assert_eq!(known_text(&facts, &["2 runs: make watch".to_owned()]), expected);
    }

    #[test]
    fn summaries_are_lines() {
        let summary = json!({"goal": "g", "constraints": ["a", "b"], "next_step": "n"});
        let expected = "Summary of the conversation so far:\ngoal: g\nconstraints: a\n\
                        constraints: b\nnext step: n\n";
        assert_eq!(summary_text(&summary), expected);
    }
}
