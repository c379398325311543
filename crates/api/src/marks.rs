//! Finds the positions of a prompt from which the prompts of other turns are likely to continue:
//! the marks of an [`engine::Request`].
//!
//! A template renders a conversation with another turn differently from the prompt of this turn: it
//! drops the opening of the answer, and many templates drop the reasoning of earlier turns. The
//! conversation is therefore rendered again with an answer and a further message. Where that text
//! leaves the prompt, the next turn does. The contents of messages carry points in this rendering,
//! which show where an edited message or another conversation leaves the prompt.
//!
//! Invariant: the tokens before a mark are also those of their text alone, so that they do not
//! depend on what follows.

use crate::token_positions::TokenPositions;
use engine::MAX_MARKS;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use text::{ChatTemplate, RenderedPrompt, TextAssets};

/// Messages at the end of a conversation that are considered.
const LAST_MESSAGES: usize = 4;
/// Least distance of a mark from the one before it, in tokens, except at the end of the turn: to
/// compute fewer tokens costs less than a snapshot.
const MIN_DISTANCE: usize = 32;

/// A prompt for which marks are found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkFinder<'a> {
    pub assets: &'a TextAssets,
    pub template: &'a ChatTemplate,
    /// The variables of the template.
    pub input: &'a Value,
    /// The rendered text of `tokens`.
    pub prompt: &'a RenderedPrompt,
    pub tokens: &'a [u32],
    /// The message before which the text begins, at the end of the turn before it; `None` if the
    /// text is that of the whole conversation.
    pub behind: Option<usize>,
    /// The texts that can end a turn.
    pub ends: &'a [&'a str],
}

/// What another rendering has in common with the prompt.
pub(crate) struct Shared {
    /// Bytes at the start that are the same, at most those before the answer.
    pub end: usize,
    /// Where the contents of messages begin within these bytes.
    pub places: Vec<Option<usize>>,
}

impl MarkFinder<'_> {
    /// The marks, in tokens of `tokens`: ascending, above 0 and below their number.
    pub fn marks(&self) -> Vec<usize> {
        let positions = TokenPositions::new(self.assets, self.prompt, self.tokens);
        let places = self.places();
        // The rank of each position: the first places are the most useful.
        let mut ranks = BTreeMap::new();
        for (rank, place) in places.into_iter().enumerate() {
            let position = positions.of(place).filter(|at| (1..self.tokens.len()).contains(at));
            if let Some(position) = position {
                ranks.entry(position).or_insert(rank);
            }
        }
        let mut before = 0;
        ranks.retain(|&position, rank| {
            let kept = *rank == 0 || position - before >= MIN_DISTANCE;
            before = if kept { position } else { before };
            kept
        });
        while ranks.len() > MAX_MARKS {
            let last = ranks.iter().max_by_key(|(_, rank)| **rank).map(|(&position, _)| position);
            last.map(|position| ranks.remove(&position));
        }
        ranks.into_keys().collect()
    }

    /// Places of the text in bytes, the most useful first.
    fn places(&self) -> Vec<usize> {
        let messages = self.input["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let points = points(messages, self.behind);
        let next = self.shared(&next_turn(self.input), &points, messages.len());
        // A template that drops reasoning leaves the prompt before the messages after it. These
        // stay until the next message of the user.
        let last = points.iter().position(|at| at + 1 == messages.len());
        let whole = next.as_ref().is_some_and(|it| last.is_none_or(|at| it.places[at].is_some()));
        let same = (!whole)
            .then(|| self.shared(&without_answer(self.input), &points, messages.len()))
            .flatten();
        let all = [next, same];
        let ends = all.iter().flatten().map(|it| it.end);
        let found = |at: usize| all.iter().flatten().find_map(|it| it.places[at]);
        ends.chain((0..points.len()).filter_map(found)).collect()
    }

    /// What the rendering of `input` with points in these messages has in common with the prompt;
    /// `answer` is the index of the message that a model has yet to write.
    pub fn shared(&self, input: &Value, points: &[usize], answer: usize) -> Option<Shared> {
        let points = [points, &[answer, self.behind.unwrap_or(0)]].concat();
        let rendered = self.assets.render_pointed(self.template, input, &points).ok()?;
        let mut places = rendered.places;
        let start = match (self.behind, places.pop()?) {
            (None, _) => 0,
            (Some(_), place) => rendered.prompt.last_end(self.ends, place?)?,
        };
        let text = &rendered.prompt.text[start..];
        let same = common_prefix(&self.prompt.text, text);
        let within = |place: usize| place.checked_sub(start).filter(|&place| place <= same);
        let mut places: Vec<_> = places.into_iter().map(|place| place.and_then(within)).collect();
        let answer = places.pop()?;
        Some(Shared { end: answer.unwrap_or(same), places })
    }
}

/// The messages from the index `behind` on before which another prompt is likely to leave this one,
/// the most useful first: the last and the first of the user, and others at the end. Before an
/// answer it leaves behind the message before it.
fn points(messages: &[Value], behind: Option<usize>) -> Vec<usize> {
    let role = |at: usize| messages[at]["role"].as_str().unwrap_or("");
    let users = || (0..messages.len()).filter(|&at| role(at) == "user");
    let others = (0..messages.len()).rev().filter(|&at| role(at) != "assistant");
    let mut points = Vec::new();
    for at in
        users().next_back().into_iter().chain(users().next()).chain(others.take(LAST_MESSAGES))
    {
        if at >= behind.unwrap_or(0) && !points.contains(&at) {
            points.push(at);
        }
    }
    points
}

/// The variables of the template for the conversation with an answer and another message.
fn next_turn(input: &Value) -> Value {
    let mut input = without_answer(input);
    if let Some(messages) = input["messages"].as_array_mut() {
        let message = |role| json!({"role": role, "content": "."});
        if messages.last().is_none_or(|last| last["role"] != "assistant") {
            messages.push(message("assistant"));
        }
        messages.push(message("user"));
    }
    input
}

fn without_answer(input: &Value) -> Value {
    let mut input = input.clone();
    input["add_generation_prompt"] = false.into();
    input
}

/// Bytes that both texts begin with, up to a boundary of characters.
fn common_prefix(a: &str, b: &str) -> usize {
    let mut same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    while !a.is_char_boundary(same) {
        same -= 1;
    }
    same
}
