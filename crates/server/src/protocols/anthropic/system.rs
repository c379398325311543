//! The system prompt, without the headers that some clients write into it.
//!
//! A client's billing header holds a number that changes with every request. At the head of the
//! prompt it would keep everything behind it from being found in the cache.

use crate::http::error::HttpError;
use crate::protocols::anthropic::blocks::{self, BlockSource, InputBlock, misplaced};
use crate::protocols::warnings::Warnings;
use serde_json::Value;

/// A header that may stand anywhere in the prompt, as programs between may join its blocks.
const BILLING: &str = "x-anthropic-billing-header";
/// What other headers begin with; they count at the head of a text only.
const HEADER: &str = "x-anthropic-";

/// A system prompt.
#[derive(Debug, Default)]
pub(crate) struct SystemPrompt {
    /// One line for each text; `None` where there are none.
    pub text: Option<String>,
    /// Blocks that change the tools, with their paths.
    pub tool_changes: Vec<(String, InputBlock)>,
}

/// Reads the system prompt `content`.
pub(crate) fn read(
    content: &Value,
    path: &str,
    warnings: &mut Warnings,
) -> Result<SystemPrompt, HttpError> {
    let (mut kept, mut tool_changes) = (Vec::new(), Vec::new());
    let blocks = match content {
        Value::Null => Vec::new(),
        content => blocks::read(content, path, BlockSource::System, warnings)?,
    };
    for (path, block) in blocks {
        match block {
            InputBlock::Text(text) => kept.extend(without_headers(&text)),
            InputBlock::ToolAddition(_) | InputBlock::ToolRemoval(_) => {
                tool_changes.push((path, block));
            }
            _ => return Err(misplaced(&path, "only text can stand here")),
        }
    }
    let text = (!kept.is_empty()).then(|| kept.join("\n"));
    Ok(SystemPrompt { text, tool_changes })
}

/// `text` without headers; `None` if it has nothing else.
fn without_headers(text: &str) -> Option<String> {
    if !text.contains(HEADER) {
        return Some(text.to_owned());
    }
    let mut head = true;
    let kept = text.split_inclusive('\n').filter(|line| {
        let header = is_header(line, BILLING) || (head && is_header(line, HEADER));
        head &= header;
        !header
    });
    let kept: String = kept.collect();
    // The line end before a header that ended the text.
    let kept = if text.ends_with('\n') { &kept } else { kept.trim_end_matches('\n') };
    (!kept.trim().is_empty()).then(|| kept.to_owned())
}

/// Whether `line` is a header whose name begins with `prefix`.
fn is_header(line: &str, prefix: &str) -> bool {
    let line = line.trim_start();
    let name = line.split(':').next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    name.len() < line.len() && name.starts_with(prefix) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LINE: &str = "x-anthropic-billing-header: cc_version=2.1; cch=0f3a1;";

    fn check(system: Value, expected: Option<&str>) {
        let read = read(&system, "system", &mut Warnings::default()).unwrap();
        assert_eq!(read.text.as_deref(), expected, "{system}");
    }

    #[test]
    fn billing_headers_leave_no_trace() {
        let block = |text: &str| json!({"type": "text", "text": text});
        check(json!([block(LINE), block("be brief")]), Some("be brief"));
        check(json!([block(LINE)]), None);
        check(json!(LINE), None);
        check(json!(format!("{LINE}\nbe brief")), Some("be brief"));
        check(json!(format!("You are\n{LINE}\nbrief\n")), Some("You are\nbrief\n"));
        check(json!(format!("be brief\n{LINE}")), Some("be brief"));
        check(json!(format!("x-anthropic-other: 1\n{LINE}\nbe brief")), Some("be brief"));
    }

    #[test]
    fn other_text_is_kept_to_the_letter() {
        check(json!("be brief \n"), Some("be brief \n"));
        check(json!("Send x-anthropic-version: 1\n"), Some("Send x-anthropic-version: 1\n"));
        check(json!("Headers:\nx-anthropic-foo: 1"), Some("Headers:\nx-anthropic-foo: 1"));
        check(
            json!("x-anthropic-billing-header is bad"),
            Some("x-anthropic-billing-header is bad"),
        );
        check(json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), Some("a\nb"));
        check(json!(null), None);
        check(json!([]), None);
    }
}
