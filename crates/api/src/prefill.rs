//! The beginning of an answer that a client gives: content, or reasoning that the answer continues.

use crate::reasoning_tags::ReasoningTags;
use crate::request::ChatRequest;
use text::RenderedPrompt;

/// How an answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefill<'a> {
    reasoning: Option<PrefilledReasoning<'a>>,
    content: &'a str,
    tags: ReasoningTags,
}

/// The reasoning at the beginning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PrefilledReasoning<'a> {
    /// The text after the opening tag.
    text: &'a str,
    /// The answer continues the reasoning.
    open: bool,
    /// The client wrote the tags itself.
    tagged: bool,
}

impl<'a> Prefill<'a> {
    /// The beginning that `request` gives, of a model that `thinks` or not; none without any text,
    /// of which the answer begins as any other. Reasoning is between tags at the start of the
    /// content; given separately, it counts without content only, as reasoning before content is
    /// over.
    pub fn of(request: &'a ChatRequest, tags: ReasoningTags, thinks: bool) -> Option<Self> {
        let given = request.prefill.as_deref()?;
        let apart = request.prefill_reasoning.as_deref();
        let apart = apart.filter(|text| !text.is_empty() && given.is_empty() && thinks);
        let tagged = given.trim_start().strip_prefix(tags.open).filter(|_| thinks);
        let (reasoning, content) = match (apart, tagged) {
            (Some(text), _) => (Some(PrefilledReasoning { text, open: true, tagged: false }), ""),
            (None, Some(rest)) => {
                let (text, content) = rest.split_once(tags.close).unwrap_or((rest, ""));
                let open = rest.len() == text.len();
                (Some(PrefilledReasoning { text, open, tagged: true }), content)
            }
            (None, None) if given.is_empty() => return None,
            (None, None) => (None, given),
        };
        Some(Self { reasoning, content, tags })
    }

    /// Appends the beginning to the prompt; returns whether its reasoning is still open. Control
    /// tokens in the texts of the client are plain text, except for the tags of reasoning.
    pub fn append(&self, prompt: &mut RenderedPrompt) -> bool {
        let opened = opens_reasoning(&prompt.text, self.tags);
        let Some(reasoning) = self.reasoning else {
            if opened {
                prompt.text.push_str(self.tags.closing);
            }
            literal(prompt, self.content);
            return false;
        };
        if !opened {
            remove_empty_reasoning(prompt, self.tags);
            prompt.text.push_str(self.tags.open);
            if !reasoning.tagged && self.tags.closing.starts_with('\n') {
                prompt.text.push('\n');
            }
        }
        // The line end after the tag is there already if the template wrote it.
        let text = reasoning.text.strip_prefix('\n').filter(|_| prompt.text.ends_with('\n'));
        literal(prompt, text.unwrap_or(reasoning.text));
        if !reasoning.open {
            prompt.text.push_str(self.tags.close);
            literal(prompt, self.content);
        }
        reasoning.open
    }
}

/// Whether an answer to the prompt begins with reasoning.
pub(crate) fn opens_reasoning(prompt: &str, tags: ReasoningTags) -> bool {
    prompt.trim_end().ends_with(tags.open)
}

/// Removes the reasoning without text with which templates switch thinking off.
fn remove_empty_reasoning(prompt: &mut RenderedPrompt, tags: ReasoningTags) {
    let before = prompt.text.trim_end().strip_suffix(tags.close).map(str::trim_end);
    if let Some(before) = before.and_then(|text| text.strip_suffix(tags.open)) {
        let end = before.len();
        prompt.literals.retain(|range| range.end <= end);
        prompt.text.truncate(end);
    }
}

fn literal(prompt: &mut RenderedPrompt, text: &str) {
    let start = prompt.text.len();
    prompt.text.push_str(text);
    prompt.literals.push(start..prompt.text.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENED: &str = "assistant\n<think>\n";
    const SILENT: &str = "assistant\n<think>\n\n</think>\n\n";
    const PLAIN: &str = "assistant\n";

    #[track_caller]
    fn check(prompt: &str, reasoning: Option<&str>, content: &str, expected: &str, open: bool) {
        let request = ChatRequest {
            prefill: Some(content.into()),
            prefill_reasoning: reasoning.map(str::to_owned),
            ..ChatRequest::default()
        };
        let mut rendered = RenderedPrompt { text: prompt.into(), literals: Vec::new() };
        let reasons =
            Prefill::of(&request, ReasoningTags::default(), true).unwrap().append(&mut rendered);
        assert_eq!((rendered.text.as_str(), reasons), (expected, open));
    }

    #[test]
    fn reasoning_that_the_beginning_opens_is_continued() {
        for prompt in [OPENED, SILENT, PLAIN] {
            let expected = "assistant\n<think>\nThis is a";
            check(prompt, None, "<think>\nThis is a", expected, true);
            check(prompt, Some("This is a"), "", expected, true);
        }
        check(OPENED, None, "<think>", OPENED, true);
    }

    #[test]
    fn a_beginning_without_text_is_none() {
        let begun = |reasoning: Option<&str>, thinks| {
            let request = ChatRequest {
                prefill: Some(String::new()),
                prefill_reasoning: reasoning.map(str::to_owned),
                ..ChatRequest::default()
            };
            Prefill::of(&request, ReasoningTags::default(), thinks).is_some()
        };
        assert!(!begun(None, true) && !begun(Some(""), true) && !begun(Some("w"), false));
        assert!(begun(Some("w"), true));
    }

    #[test]
    fn reasoning_that_the_beginning_closes_is_over() {
        for prompt in [OPENED, SILENT, PLAIN] {
            let expected = "assistant\n<think>\nw\n</think>\n\nThe";
            check(prompt, None, "<think>\nw\n</think>\n\nThe", expected, false);
        }
        check(PLAIN, Some("w"), "The", "assistant\nThe", false);
    }

    #[test]
    fn content_follows_reasoning_that_the_template_opened() {
        check(OPENED, None, "The", "assistant\n<think>\n\n</think>\n\nThe", false);
        check(PLAIN, None, "The", "assistant\nThe", false);
        check(PLAIN, None, "say <think>", "assistant\nsay <think>", false);
    }

    #[test]
    fn tags_are_text_for_models_that_do_not_think() {
        let request = ChatRequest { prefill: Some("<think>a".into()), ..ChatRequest::default() };
        let mut rendered = RenderedPrompt { text: PLAIN.into(), literals: Vec::new() };
        assert!(
            !Prefill::of(&request, ReasoningTags::default(), false).unwrap().append(&mut rendered)
        );
        assert_eq!(rendered.literals.len(), 1);
        assert_eq!(rendered.literals[0], PLAIN.len()..PLAIN.len() + "<think>a".len());
    }
}
