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

use crate::rendered_chat::{ChatSource, RenderedChat};
use crate::token_positions::TokenPositions;
use engine::MAX_MARKS;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Messages at the end of a conversation that are considered.
const LAST_MESSAGES: usize = 4;
/// Least distance of a mark from the one before it, in tokens, except at the end of the turn: to
/// compute fewer tokens costs less than a snapshot.
const MIN_DISTANCE: usize = 32;

/// What another rendering has in common with the prompt.
pub(crate) struct Shared {
    /// Bytes at the start that are the same, at most those before the answer.
    pub end: usize,
    /// Where the contents of messages begin within these bytes.
    pub places: Vec<Option<usize>>,
}

impl RenderedChat<'_> {
    /// The marks, in tokens of the prompt: ascending, after those of a remembered turn and below
    /// their number.
    pub fn marks(&self) -> Vec<usize> {
        let (positions, places) = (self.positions(), self.places());
        let shared = self.origin.shared;
        let inner = 1..self.tokens.len() - shared;
        // The rank of each position: the first places are the most useful.
        let mut ranks = BTreeMap::new();
        for (rank, place) in places.into_iter().enumerate() {
            if let Some(position) = positions.of(place).filter(|at| inner.contains(at)) {
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
        ranks.into_keys().map(|mark| shared + mark).collect()
    }

    /// The positions of the tokens after those of a remembered turn.
    pub fn positions(&self) -> TokenPositions<'_> {
        TokenPositions::new(self.source.assets, &self.text, &self.tokens[self.origin.shared..])
    }

    /// Places of the text in bytes, the most useful first.
    fn places(&self) -> Vec<usize> {
        let messages = self.source.input["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let points = points(messages, self.first_message);
        let next = self.shared(&next_turn(&self.source.input), &points, messages.len());
        // A template that drops reasoning leaves the prompt before the messages after it. These
        // stay until the next message of the user.
        let last = points.iter().position(|at| at + 1 == messages.len());
        let whole = next.as_ref().is_some_and(|it| last.is_none_or(|at| it.places[at].is_some()));
        let same = (!whole)
            .then(|| self.shared(&without_answer(&self.source.input), &points, messages.len()))
            .flatten();
        let all = [next, same];
        let ends = all.iter().flatten().map(|it| it.end);
        let found = |at: usize| all.iter().flatten().find_map(|it| it.places[at]);
        ends.chain((0..points.len()).filter_map(found)).collect()
    }

    /// What the rendering of `input` with points in these messages has in common with the prompt;
    /// `answer` is the index of the message that a model has yet to write.
    pub fn shared(&self, input: &Value, points: &[usize], answer: usize) -> Option<Shared> {
        let ChatSource { assets, probed, ends, .. } = &self.source;
        let points = [points, &[answer, self.first_message.unwrap_or(0)]].concat();
        let rendered = assets.render_pointed(&probed.template, input, &points).ok()?;
        let mut places = rendered.places;
        let start = match (self.first_message, places.pop()?) {
            (None, _) => 0,
            (Some(_), place) => rendered.prompt.last_end(ends, place?)?,
        };
        let text = &rendered.prompt.text[start..];
        let same = common_prefix(&self.text.text, text);
        let within = |place: usize| place.checked_sub(start).filter(|&place| place <= same);
        let mut places: Vec<_> = places.into_iter().map(|place| place.and_then(within)).collect();
        let answer = places.pop()?;
        Some(Shared { end: answer.unwrap_or(same), places })
    }
}

/// The messages from the index `first` on before which another prompt is likely to leave this one,
/// the most useful first: the last and the first of the user, and others at the end. Before an
/// answer it leaves after the message before it.
fn points(messages: &[Value], first: Option<usize>) -> Vec<usize> {
    let role = |at: usize| messages[at]["role"].as_str().unwrap_or("");
    let users = || (0..messages.len()).filter(|&at| role(at) == "user");
    let others = (0..messages.len()).rev().filter(|&at| role(at) != "assistant");
    let mut points = Vec::new();
    for at in
        users().next_back().into_iter().chain(users().next()).chain(others.take(LAST_MESSAGES))
    {
        if at >= first.unwrap_or(0) && !points.contains(&at) {
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
