//! Finds the message to which a token of a prompt belongs.

use crate::cache_report::MessagePlace;
use crate::marks::MarkFinder;
use crate::token_positions::TokenPositions;
use serde_json::Value;

/// Messages that are looked at in one rendering; the finder of marks adds two.
const POINTS: usize = text::MAX_POINTS - 2;

/// The place of token `at` of the finder's prompt; `None` if the template renders the conversation
/// otherwise when it is looked at.
pub(crate) fn place_of(finder: &MarkFinder<'_>, at: usize) -> Option<MessagePlace> {
    let positions = TokenPositions::new(finder.assets, finder.prompt, finder.tokens);
    let messages = finder.input["messages"].as_array()?;
    let Some((index, start)) = last_begun(finder, &positions, messages.len(), at)? else {
        let place = MessagePlace { message: None, role: None, is_content: false };
        return finder.behind.is_none().then_some(place);
    };
    let message = &messages[index];
    let end = content_end(message, &finder.prompt.text, start);
    let is_after = end.zip(positions.start(at)).is_some_and(|(end, byte)| byte >= end);
    let role = message["role"].as_str().map(str::to_owned);
    Some(MessagePlace { message: Some(index), role, is_content: !is_after })
}

/// The last message whose content begins at token `at` or before it, with the byte at which it
/// begins. `None` if that cannot be found.
fn last_begun(
    finder: &MarkFinder<'_>,
    positions: &TokenPositions<'_>,
    messages: usize,
    at: usize,
) -> Option<Option<(usize, usize)>> {
    let has_begun = |place: &usize| positions.of(*place).is_some_and(|token| token <= at);
    let (mut low, mut high, mut last) = (finder.behind.unwrap_or(0), messages, None);
    while low < high {
        let step = (high - low).div_ceil(POINTS);
        let points: Vec<usize> = (low..high).step_by(step).collect();
        let shared = finder.shared(finder.input, &points, messages)?;
        if positions.of(shared.end)? < at {
            return None;
        }
        let mut found = points.iter().zip(shared.places).rev();
        let begun = found.find_map(|(&message, place)| Some((message, place.filter(has_begun)?)));
        let before = begun.map_or(low, |(message, _)| message);
        (low, high, last) = (before + 1, high.min(before + step), begun.or(last));
    }
    Some(last)
}

/// The byte after the content of `message`, which begins at the byte `start` of the prompt.
fn content_end(message: &Value, prompt: &str, start: usize) -> Option<usize> {
    let (content, rest) = (message["content"].as_str()?, prompt.get(start..)?);
    // Whether the space at the end is the content's or the template's cannot be told.
    let written = [content.trim_end(), content.trim()];
    let written = written.into_iter().find(|text| rest.starts_with(text))?;
    Some(start + written.len())
}
