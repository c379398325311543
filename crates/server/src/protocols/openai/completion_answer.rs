//! The answer of `POST /v1/completions`, whole and as chunks.

use crate::generate::answer::{Answer, Collected};
use crate::generate::logprobs;
use crate::generate::options::Telemetry;
use crate::generate::timings::{ChoiceProgress, PromptProgress, Timings};
use crate::http::error::HttpError;
use crate::http::sse::Frame;
use crate::protocols::openai::answer::{self, Extras, Heading};
use crate::protocols::warnings::Warnings;
use api::{Done, TextEvent, TokenText, Usage};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

const OBJECT: &str = "text_completion";

/// A continuation, or a step of one.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CompletionChoice)]
pub(crate) struct TextChoice {
    text: String,
    index: usize,
    logprobs: Option<TextLogprobs>,
    /// `stop` or `length`.
    finish_reason: Option<&'static str>,
    /// The ids of the tokens, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

/// Writes text completions.
#[derive(Debug)]
pub(crate) struct CompletionAnswer {
    heading: Heading,
    choices: Vec<Choice>,
    style: TextStyle,
    /// What the request asked for and does not get, until it was said.
    warnings: Warnings,
}

/// What the client asks to receive.
#[derive(Clone, Debug)]
pub(crate) struct TextStyle {
    /// Empty lists for log probabilities, if there are to be any.
    pub logprobs: Option<TextLogprobs>,
    /// The ids of the tokens.
    pub token_ids: bool,
    /// A last chunk with the usage.
    pub stream_usage: bool,
    /// What the chunks report of the computation.
    pub telemetry: Telemetry,
    /// How many choices follow each other for one prompt.
    pub per_prompt: usize,
}

/// A prompt that its answers begin with.
#[derive(Clone, Debug)]
pub(crate) struct Echo {
    pub text: String,
    /// The ids and bytes of its first tokens, of which no event tells: those without log
    /// probabilities.
    pub unread: Vec<(u32, Vec<u8>)>,
}

/// Where one choice stands.
#[derive(Clone, Debug)]
struct Choice {
    /// The prompt, until it was sent.
    echo: Option<Echo>,
    /// The prompt's tokens with log probabilities, until they were sent.
    prompt: Vec<TokenText>,
    /// Characters of the choice that came before the next token.
    offset: usize,
    progress: ChoiceProgress,
    done: Option<Done>,
}

impl CompletionAnswer {
    /// For choices that begin with these texts, or with nothing.
    pub fn new(
        heading: Heading,
        echoes: Vec<Option<Echo>>,
        style: TextStyle,
        warnings: Warnings,
    ) -> Self {
        let choices = echoes.into_iter().map(|echo| {
            let offset = echo.as_ref().map_or(0, |echo| echo.text.chars().count());
            let (prompt, progress) = (Vec::new(), ChoiceProgress::default());
            Choice { echo, prompt, offset, progress, done: None }
        });
        Self { heading, choices: choices.collect(), style, warnings }
    }

    /// A chunk. A stream that ends with the usage has the member in all chunks.
    fn frame(&mut self, choice: TextChoice, extras: Extras<'_>) -> Frame {
        let warnings = std::mem::take(&mut self.warnings);
        let Choice { progress, done, .. } = &self.choices[choice.index];
        let so_far = self.style.telemetry.usage.then(|| progress.usage_by(done.as_ref()));
        let usage = self.style.stream_usage.then_some(so_far.as_ref());
        let extras = Extras { usage, warnings: Some(&warnings), ..extras };
        Frame::Data(self.heading.json(OBJECT, vec![choice], extras))
    }

    /// The times so far, where chunks tell them.
    fn timings(&self, index: usize) -> Option<Timings> {
        self.style.telemetry.timings.then(|| self.choices[index].progress.timings())
    }

    /// The last chunk of a choice, with the times where no chunk with the usage follows.
    fn end(&mut self, index: usize, done: Done) -> Frame {
        let choice = self.choice(index, "", &[], Some(done.finish.reason()));
        let told = !self.style.stream_usage || self.style.telemetry.timings;
        let timings = told.then(|| Timings::of(&done));
        self.choices[index].done = Some(done);
        self.frame(choice, Extras { timings, ..Extras::default() })
    }

    /// A chunk about the prompt.
    fn progress(&mut self, index: usize, progress: PromptProgress) -> Frame {
        let (text, logprobs, finish_reason, token_ids) = (String::new(), None, None, None);
        let choice = TextChoice { text, index, logprobs, finish_reason, token_ids };
        let timings = self.timings(index);
        self.frame(choice, Extras { timings, progress: Some(progress), ..Extras::default() })
    }

    /// The times of all choices that have ended.
    fn all_timings<'a>(&self, ended: impl Iterator<Item = Option<&'a Done>>) -> Timings {
        let first = |at: usize| at.is_multiple_of(self.style.per_prompt);
        Timings::of_all(ended.enumerate().filter_map(|(at, done)| Some((first(at), done?))))
    }

    fn choice(
        &mut self,
        index: usize,
        text: &str,
        tokens: &[TokenText],
        finish_reason: Option<&'static str>,
    ) -> TextChoice {
        let choice = &mut self.choices[index];
        let (echo, prompt) = (choice.echo.take(), std::mem::take(&mut choice.prompt));
        let logprobs = self.style.logprobs.clone().map(|mut lists| {
            if let Some(echo) = &echo {
                lists.add_prompt(&echo.unread, &prompt, &echo.text);
            }
            choice.offset = lists.add(tokens, choice.offset);
            lists
        });
        let text = echo.map(|echo| echo.text).unwrap_or_default() + text;
        let ids = || tokens.iter().map(|token| token.id).collect();
        let token_ids = self.style.token_ids.then(ids);
        TextChoice { text, index, logprobs, finish_reason, token_ids }
    }
}

impl Answer for CompletionAnswer {
    fn frames(&mut self, index: usize, event: TextEvent) -> Vec<Frame> {
        match event {
            TextEvent::Content(delta) | TextEvent::Reasoning(delta) => {
                self.choices[index].progress.add(&delta);
                let timings = self.timings(index);
                let choice = self.choice(index, &delta.text, &delta.tokens, None);
                vec![self.frame(choice, Extras { timings, ..Extras::default() })]
            }
            TextEvent::Done(done) => vec![self.end(index, done)],
            TextEvent::Prompt { tokens, .. } => {
                self.choices[index].prompt.extend(tokens);
                Vec::new()
            }
            TextEvent::Prefill { cached, done, total } => {
                let progress = self.choices[index].progress.prefill(cached, done, total);
                let told = self.style.telemetry.progress;
                told.then(|| self.progress(index, progress)).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn close(&mut self, usage: &Usage) -> Vec<Frame> {
        let ended = self.choices.iter().map(|choice| choice.done.as_ref());
        let timings = Some(self.all_timings(ended));
        let extras = Extras { usage: Some(Some(usage)), timings, ..Extras::default() };
        let last = || self.heading.json(OBJECT, Vec::<TextChoice>::new(), extras);
        answer::close(self.style.stream_usage.then(last))
    }

    fn refused(error: &HttpError) -> Vec<Frame> {
        answer::refused(error)
    }

    fn whole(&mut self, choices: Vec<Collected>, usage: &Usage) -> Value {
        let timings = Some(self.all_timings(choices.iter().map(|choice| choice.done.as_ref())));
        let choice = |(index, mut one): (usize, Collected)| {
            self.choices[index].prompt = std::mem::take(&mut one.prompt);
            self.choice(index, &one.content, &one.tokens, one.finish_reason())
        };
        let choices = choices.into_iter().enumerate().map(choice).collect();
        let (usage, warnings) = (Some(Some(usage)), Some(&self.warnings));
        let extras = Extras { usage, timings, warnings, ..Extras::default() };
        self.heading.json(OBJECT, choices, extras)
    }
}

/// The parallel lists of a text choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct TextLogprobs {
    /// Whether tokens have their ids for names.
    #[serde(skip)]
    names_are_ids: bool,
    tokens: Vec<String>,
    /// Those of the first tokens of a prompt are `null`.
    token_logprobs: Vec<Option<f64>>,
    top_logprobs: Vec<Option<BTreeMap<String, f64>>>,
    /// Characters of the text before each token.
    text_offset: Vec<usize>,
}

impl TextLogprobs {
    /// Empty lists, whose tokens are named by their texts or by their ids.
    pub fn named(names_are_ids: bool) -> Self {
        Self { names_are_ids, ..Self::default() }
    }

    fn name(&self, id: u32, text: &str) -> String {
        if self.names_are_ids { format!("token_id:{id}") } else { text.to_owned() }
    }

    /// Adds `tokens`, the first of which begins `offset` characters into the text; gives the
    /// offset after them.
    fn add(&mut self, tokens: &[TokenText], mut offset: usize) -> usize {
        for token in tokens {
            self.push(self.name(token.id, &token.text), Some(token), offset);
            offset += characters(&token.bytes);
        }
        offset
    }

    /// Adds the tokens of a prompt whose text is `text`: the `unread` ones, at least the first, of
    /// which it is not known how likely they were, and `rest`.
    fn add_prompt(&mut self, unread: &[(u32, Vec<u8>)], rest: &[TokenText], text: &str) {
        let mut place = TextCursor { text: text.as_bytes(), at: 0, characters: 0 };
        for (id, bytes) in unread {
            let name = self.name(*id, &String::from_utf8_lossy(bytes));
            self.push(name, None, place.pass(bytes));
        }
        for token in rest {
            self.push(self.name(token.id, &token.text), Some(token), place.pass(&token.bytes));
        }
    }

    fn push(&mut self, name: String, token: Option<&TokenText>, offset: usize) {
        self.tokens.push(name);
        self.token_logprobs.push(token.map(|token| logprobs::finite(token.logprob)));
        self.top_logprobs.push(token.map(|token| self.by_name(token)));
        self.text_offset.push(offset);
    }

    /// The alternatives and the chosen token, by name; of tokens with one text the likelier stays.
    fn by_name(&self, token: &TokenText) -> BTreeMap<String, f64> {
        let mut all = BTreeMap::new();
        for top in &token.top {
            let name = self.name(top.id, &top.text);
            all.entry(name).or_insert(logprobs::finite(top.logprob));
        }
        let name = self.name(token.id, &token.text);
        all.entry(name).or_insert(logprobs::finite(token.logprob));
        all
    }
}

/// A place in a text.
#[derive(Debug)]
struct TextCursor<'a> {
    text: &'a [u8],
    at: usize,
    characters: usize,
}

impl TextCursor<'_> {
    /// Goes behind the next token; gives the characters before it. Tokens that the text does not
    /// show, such as the one that texts of a model begin with, have no width, nor has the space
    /// that some tokenizers put before a text.
    fn pass(&mut self, token: &[u8]) -> usize {
        let before = self.characters;
        let bare = if self.at == 0 { token.strip_prefix(b" ") } else { None };
        let rest = &self.text[self.at..];
        let shown = [Some(token), bare].into_iter().flatten().find(|it| rest.starts_with(it));
        if let Some(shown) = shown {
            self.at += shown.len();
            self.characters += characters(shown);
        }
        before
    }
}

/// Characters that begin in `bytes`, so that the parts of a split one count once.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::TopToken;
    use serde_json::json;

    fn token(text: &str, bytes: &[u8], top: &[(&str, f32)]) -> TokenText {
        let top = top.iter().map(|&(text, logprob)| TopToken {
            id: 1,
            text: text.into(),
            bytes: text.into(),
            logprob,
        });
        let top = top.collect();
        TokenText { id: 0, text: text.into(), bytes: bytes.into(), logprob: -0.5, top }
    }

    #[test]
    fn offsets_count_a_split_character_once() {
        let mut lists = TextLogprobs::default();
        let halves = [token("\u{fffd}", b"\xc3", &[]), token("\u{fffd}", b"\xa9", &[])];
        let end = lists.add(&halves, 7);
        assert_eq!(lists.add(&[token("ab", b"ab", &[])], end), 10);
        assert_eq!(lists.text_offset, [7, 8, 8]);
    }

    #[test]
    fn prompts_begin_with_a_token_of_unknown_likelihood() {
        let mut lists = TextLogprobs::default();
        let rest = [token("h", b"h", &[]), token("\u{fffd}", b"\xc3", &[])];
        lists.add_prompt(
            &[(2, b"<bos>".to_vec())],
            &[&rest[..], &[token("x", b"\xa9x", &[])]].concat(),
            "h\u{e9}x",
        );
        assert_eq!(lists.text_offset, [0, 0, 1, 2]);
        assert_eq!(lists.token_logprobs, [None, Some(-0.5), Some(-0.5), Some(-0.5)]);
        assert_eq!((lists.top_logprobs[0].as_ref(), lists.tokens.len()), (None, 4));
        let mut spaced = TextLogprobs::default();
        let unread = [(2, b" a".to_vec()), (3, b" c".to_vec())];
        spaced.add_prompt(&unread, &[token(" b", b" b", &[])], "a c b");
        assert_eq!(spaced.text_offset, [0, 1, 3]);
        assert_eq!(spaced.token_logprobs, [None, None, Some(-0.5)]);
    }

    #[test]
    fn the_chosen_token_is_among_its_alternatives() {
        let mut lists = TextLogprobs::default();
        lists.add(&[token("a", b"a", &[("b", -0.25)])], 0);
        assert_eq!(json!(lists)["top_logprobs"], json!([{"b": -0.25, "a": -0.5}]));
        let mut lists = TextLogprobs::named(true);
        lists.add_prompt(&[(9, b"<bos>".to_vec())], &[], "");
        lists.add(&[token("a", b"a", &[("b", -0.25)])], 0);
        let expected = json!([null, {"token_id:1": -0.25, "token_id:0": -0.5}]);
        let lists = json!(lists);
        assert_eq!(lists["tokens"], json!(["token_id:9", "token_id:0"]));
        assert_eq!(lists["top_logprobs"], expected);
    }
}
