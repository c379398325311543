//! What a session consists of, and its form as JSON.

use super::sampling::{SamplingFields, merged};
use crate::conversation::Conversation;
use anyhow::{Context, Result, anyhow, bail};
use api::SamplingOptions;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// Version of the form.
const FORMAT: u32 = 1;
/// Most characters of a title.
const TITLE: usize = 60;

/// The content of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Session {
    format: u32,
    /// The beginning of the first message.
    pub title: String,
    /// Seconds since the Unix epoch.
    pub created: u64,
    /// Seconds since the Unix epoch.
    pub updated: u64,
    /// The model that answered last.
    pub model: SessionModel,
    /// How it computed.
    pub settings: SessionSettings,
    /// Sampling options of the next answers.
    #[serde(with = "SamplingFields")]
    pub sampling: SamplingOptions,
    /// Whether the model reasons before it answers; unset for the template's choice.
    pub think: Option<bool>,
    /// How much it reasons; unset for the template's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    system: Option<String>,
    messages: Vec<Value>,
    /// The seed of each answer.
    seeds: Vec<Option<u64>>,
}

/// A model of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionModel {
    /// Its name.
    pub name: String,
    /// What `--model` named; unset for the built-in model.
    pub source: Option<String>,
}

/// What decides the bits of answers besides the model and the sampling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionSettings {
    /// Compute mode.
    pub mode: String,
    /// Type of the cache; unset for that of the mode.
    pub kv_type: Option<String>,
}

/// The version alone, whatever else there is.
#[derive(Deserialize)]
struct Versioned {
    format: u32,
}

impl Session {
    /// A session that begins now.
    pub fn new() -> Self {
        let now = now();
        Self {
            format: FORMAT,
            title: String::new(),
            created: now,
            updated: now,
            model: SessionModel::default(),
            settings: SessionSettings::default(),
            sampling: SamplingOptions::default(),
            think: None,
            effort: None,
            system: None,
            messages: Vec::new(),
            seeds: Vec::new(),
        }
    }

    /// Reads the text of a session.
    ///
    /// # Errors
    ///
    /// If it is not one, or of a later version; the error names the field.
    pub fn parse(text: &str) -> Result<Self> {
        if let Ok(Versioned { format }) = serde_json::from_str(text)
            && format != FORMAT
        {
            bail!("format: expected {FORMAT}, found {format}: another version wrote it");
        }
        let mut json = serde_json::Deserializer::from_str(text);
        let session: Self = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            match path.as_str() {
                "." => anyhow!(error.into_inner()),
                _ => anyhow!("{path}: {}", error.into_inner()),
            }
        })?;
        json.end()?;
        session.conversation().context("messages")?;
        Ok(session)
    }

    /// The text of a session.
    ///
    /// # Errors
    ///
    /// If the session has a value that JSON does not.
    pub fn text(&self) -> Result<String> {
        Ok(format!("{:#}\n", serde_json::to_value(self)?))
    }

    /// The conversation so far.
    ///
    /// # Errors
    ///
    /// If the messages are not those of a conversation.
    pub fn conversation(&self) -> Result<Conversation> {
        Conversation::of(self.system.clone(), self.messages.clone(), self.seeds.clone())
    }

    /// Takes the state of a conversation over.
    pub fn update(&mut self, conversation: &Conversation) {
        self.updated = now();
        self.system.clone_from(&conversation.system);
        self.messages = conversation.turns().to_vec();
        self.seeds = conversation.seeds().to_vec();
        let first = self.messages.first().map(|message| &message["content"]);
        self.title = title(first.and_then(Value::as_str).unwrap_or_default());
    }

    /// Number of questions with their answers.
    pub fn turns(&self) -> usize {
        self.seeds.len()
    }

    /// The sampling options of the session, where none were given now.
    pub fn sampling_with(&self, given: SamplingOptions) -> SamplingOptions {
        merged(given, &self.sampling)
    }
}

/// The beginning of a text, on one line.
fn title(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    printable(&words.join(" ")).chars().take(TITLE).collect()
}

/// A line of text without characters that control a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).collect()
}

/// A text without characters that control a terminal, besides ends of lines and tabs.
pub(crate) fn printable_lines(text: &str) -> String {
    let is_kept = |it: &char| !it.is_control() || matches!(it, '\n' | '\t');
    text.chars().filter(is_kept).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn session() -> Session {
        let turns = vec![
            json!({"role": "user", "content": "  What is\n\u{1b}[1m the   capital?"}),
            json!({"role": "assistant", "content": "Paris.", "reasoning_content": "Hm."}),
        ];
        let conversation = Conversation::of(Some("Be brief.".into()), turns, vec![Some(u64::MAX)]);
        let mut session = Session::new();
        session.sampling.temperature = Some(0.7);
        session.sampling.logit_bias = vec![(3, 0.1)];
        session.update(&conversation.unwrap());
        session
    }

    #[test]
    fn what_is_written_is_read_again() {
        let session = session();
        assert_eq!(Session::parse(&session.text().unwrap()).unwrap(), session);
        assert_eq!(session.title, "What is [1m the capital?");
        assert_eq!(session.turns(), 1);
        let value: Value = serde_json::from_str(&session.text().unwrap()).unwrap();
        let sampling = json!({"temperature": 0.7_f32, "logit_bias": [[3, 0.1_f32]],
            "random_seed": false, "ignore_eos": false});
        assert_eq!(value["sampling"].to_string(), sampling.to_string());
    }

    #[test]
    fn infinite_biases_are_kept() {
        let mut session = session();
        session.sampling.logit_bias = vec![(3, f32::NEG_INFINITY), (4, -0.5), (5, f32::INFINITY)];
        let text = session.text().unwrap();
        assert_eq!(Session::parse(&text).unwrap(), session);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["sampling"]["logit_bias"], json!([[3, "-inf"], [4, -0.5], [5, "inf"]]));
        session.sampling.logit_bias = vec![(3, f32::NAN)];
        assert!(session.text().unwrap_err().to_string().contains("logit_bias"));
        check_refused(
            |it| it["sampling"]["logit_bias"] = json!([[3, "nan"]]),
            "expected inf or -inf",
        );
    }

    fn check_refused(change: impl Fn(&mut Value), expected: &str) {
        let mut value: Value = serde_json::from_str(&session().text().unwrap()).unwrap();
        change(&mut value);
        let error = format!("{:#}", Session::parse(&value.to_string()).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn what_controls_a_terminal_is_not_printed() {
        let text = "a\u{1b}[2Jb\r\n\tc\u{9b}1md\u{7f}\u{8}é";
        assert_eq!(printable_lines(text), "a[2Jb\n\tc1mdé");
        assert_eq!(printable(text), "a[2Jbc1mdé");
    }

    #[test]
    fn wrong_fields_are_named() {
        check_refused(|it| it["format"] = json!(2), "format: expected 1, found 2");
        check_refused(|it| it["model"]["name"] = json!(7), "model.name: invalid type");
        check_refused(|it| it["seeds"][0] = json!("x"), "seeds[0]: invalid type");
        check_refused(|it| it["sampling"]["heat"] = json!(1), "unknown field `heat`");
        check_refused(|it| it["mood"] = json!(1), "unknown field `mood`");
        check_refused(|it| it["messages"][1]["role"] = json!("dog"), "messages: turn 2");
        check_refused(|it| it["messages"][1] = json!({"role": "assistant"}), "message 1");
        check_refused(|it| it["messages"] = json!([]), "expected 0 seeds, found 1");
        check_refused(|it| *it = json!([1]), "expected struct Session");
        let text = session().text().unwrap();
        for cut in [0, 1, text.len() / 2, text.len() - 3] {
            assert!(Session::parse(&text[..cut]).is_err(), "cut at {cut}");
        }
        assert!(Session::parse(&(text + "{}")).is_err());
    }
}
