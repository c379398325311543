//! Finds the message to which a token of a prompt belongs.

use crate::cache_report::MessagePlace;
use crate::rendered_chat::RenderedChat;
use crate::token_positions::TokenPositions;
use serde_json::Value;

/// Messages that are looked at in one rendering; a rendering adds two.
const POINTS: usize = text::MAX_POINTS - 2;

impl RenderedChat<'_> {
    /// The message to which token `at` of the prompt belongs; `None` for the tokens of a remembered
    /// turn, and if the template renders the conversation otherwise when it is looked at.
    pub fn place(&self, at: usize) -> Option<MessagePlace> {
        let at = at.checked_sub(self.origin.shared)?;
        let positions = self.positions();
        let messages = self.source.input["messages"].as_array()?;
        let Some((index, start)) = self.last_begun(&positions, messages.len(), at)? else {
            let place = MessagePlace { message: None, role: None, is_content: false };
            return self.first_message.is_none().then_some(place);
        };
        let message = &messages[index];
        let end = content_end(message, &self.text.text, start);
        let is_after = end.zip(positions.start(at)).is_some_and(|(end, byte)| byte >= end);
        let role = message["role"].as_str().map(str::to_owned);
        Some(MessagePlace { message: Some(index), role, is_content: !is_after })
    }

    /// The last message whose content begins at token `at` of `positions` or before it, with the
    /// byte at which it begins. `None` if that cannot be found.
    fn last_begun(
        &self,
        positions: &TokenPositions<'_>,
        messages: usize,
        at: usize,
    ) -> Option<Option<(usize, usize)>> {
        let has_begun = |place: &usize| positions.of(*place).is_some_and(|token| token <= at);
        let (mut low, mut high, mut last) = (self.first_message.unwrap_or(0), messages, None);
        while low < high {
            let step = (high - low).div_ceil(POINTS);
            let points: Vec<usize> = (low..high).step_by(step).collect();
            let shared = self.shared(&self.source.input, &points, messages)?;
            if positions.of(shared.end)? < at {
                return None;
            }
            let mut found = points.iter().zip(shared.places).rev();
            let begun =
                found.find_map(|(&message, place)| Some((message, place.filter(has_begun)?)));
            let before = begun.map_or(low, |(message, _)| message);
            (low, high, last) = (before + 1, high.min(before + step), begun.or(last));
        }
        Some(last)
    }
}

/// The byte after the content of `message`, which begins at the byte `start` of the prompt.
fn content_end(message: &Value, prompt: &str, start: usize) -> Option<usize> {
    let (content, rest) = (message["content"].as_str()?, prompt.get(start..)?);
    // Whether the space at the end is the content's or the template's cannot be told.
    let written = [content.trim_end(), content.trim()];
    let written = written.into_iter().find(|text| rest.starts_with(text))?;
    Some(start + written.len())
}
