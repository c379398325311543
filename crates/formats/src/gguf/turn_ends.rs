//! Which tokens of a vocabulary end a turn.
//!
//! The rule is that of llama.cpp: a token ends a turn if the file names it in a role that does, or
//! by its text, whatever its type. Files of chat models often name only the end token of the base
//! model, and give that of the turns another type than control.

use indexmap::IndexSet;

use crate::error::Result;
use crate::gguf::metadata::Metadata;
use crate::gguf::value::Strings;

/// Texts of tokens that end a turn, or a text. After the last ones a model continues with another
/// file of its training data.
const TEXTS: [&str; 36] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "[|endofturn|]",
    "<|END_OF_TURN_TOKEN|>",
    "<|endoftext|>",
    "</s>",
    "<eos>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<｜end▁of▁sentence｜>",
    "<seed:eos>",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// Texts of which the last ends only a message in a vocabulary that has all the others: an answer
/// is several messages there.
const WITHIN_ANSWERS: [&[&str]; 4] = [
    &["<|return|>", "<|call|>", "<|end|>"],
    &["<|return|>", "<|calls|>", "<|end|>"],
    &["<|flush|>", "<|call|>", "<|end|>"],
    &["<|flush|>", "<|calls|>", "<|end|>"],
];

/// The same for a text that is a markup tag where turns end with tokens of their own.
const MARKUP: &[&str] = &["<|tool_response>", "</s>"];

/// Roles whose token ends a turn, in order of precedence.
const ROLES: [&str; 6] = ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"];

/// The tokens of a vocabulary that end a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnEnds {
    /// The ids: those with a role first, then the ones known by their text.
    pub ids: Vec<u32>,
    /// Those of `ids` that are known by their text, in ascending order. They are control tokens,
    /// whatever their type in the file.
    by_text: Vec<u32>,
}

impl TurnEnds {
    /// Reads them from the metadata of a file.
    ///
    /// # Errors
    /// If the list of tokens or an id of a role has another type.
    pub fn read(metadata: &Metadata) -> Result<Self> {
        let tokens = metadata.opt_strings("tokenizer.ggml.tokens")?;
        let known = tokens.map(known).unwrap_or_default();
        let (by_text, not): (Vec<_>, Vec<_>) =
            known.iter().partition(|(text, _)| !ends_no_turn(text, &known));
        let by_text: Vec<u32> = by_text.into_iter().map(|(_, id)| id).collect();
        let mut ids = IndexSet::new();
        for role in ROLES {
            ids.extend(metadata.opt_id(&format!("tokenizer.ggml.{role}_token_id"))?);
        }
        ids.extend(&by_text);
        ids.retain(|id| not.iter().all(|(_, other)| other != id));
        Ok(Self { ids: ids.into_iter().collect(), by_text })
    }

    /// Whether token `id` ends a turn by its text.
    pub fn has_text(&self, id: u32) -> bool {
        self.by_text.binary_search(&id).is_ok()
    }
}

/// The tokens with one of [`TEXTS`], in ascending order of ids.
fn known(tokens: &Strings) -> Vec<(&str, u32)> {
    let tokens = (0u32..).zip(tokens.iter());
    tokens.filter(|(_, text)| TEXTS.contains(text)).map(|(id, text)| (text, id)).collect()
}

fn ends_no_turn(text: &str, known: &[(&str, u32)]) -> bool {
    let has = |text: &&str| known.iter().any(|(other, _)| other == text);
    let mut rules = WITHIN_ANSWERS.iter().copied().chain([MARKUP]);
    rules.any(|rule| rule.last() == Some(&text) && rule.iter().all(has))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{Array, GgufFile, GgufWriter, Value};

    /// The ends of a vocabulary of these tokens, by their texts; `eos` is the index of the token
    /// with this role.
    fn ends(tokens: &[&str], eos: Option<u32>) -> Vec<String> {
        let mut writer = GgufWriter::new();
        writer.set("general.architecture", Value::String("llama".into()));
        let strings = tokens.iter().copied().collect();
        writer.set("tokenizer.ggml.tokens", Value::Array(Array::Strings(strings)));
        if let Some(id) = eos {
            writer.set("tokenizer.ggml.eos_token_id", Value::U32(id));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vocabulary.gguf");
        writer.create(&path).unwrap().finish().unwrap();
        let file = GgufFile::open(&path).unwrap();
        let ends = TurnEnds::read(file.metadata()).unwrap();
        ends.ids.iter().map(|id| tokens[*id as usize].to_owned()).collect()
    }

    #[test]
    fn tokens_with_a_role_come_first_and_all_known_texts_follow() {
        assert_eq!(
            ends(&["a", "<|im_end|>", "<|endoftext|>"], None),
            ["<|im_end|>", "<|endoftext|>"]
        );
        assert_eq!(ends(&["<|eot_id|>", "stop"], Some(1)), ["stop", "<|eot_id|>"]);
        for text in TEXTS {
            assert_eq!(ends(&["<|fim_middle|>", "x", text, "y"], None), [text]);
        }
    }

    #[test]
    fn the_end_of_a_message_within_an_answer_ends_no_turn() {
        let harmony = ["<|end|>", "<|return|>", "<|call|>"];
        assert_eq!(ends(&harmony, None), ["<|return|>", "<|call|>"]);
        assert_eq!(ends(&harmony, Some(0)), ["<|return|>", "<|call|>"]);
        assert_eq!(ends(&["<|calls|>", "<|flush|>", "<|end|>"], None), ["<|calls|>", "<|flush|>"]);
        assert_eq!(ends(&["<|end|>", "<|call|>"], None), ["<|end|>", "<|call|>"]);
        assert_eq!(ends(&["<|end|>", "<|return|>", "<|flush|>"], None).len(), 3);
    }

    #[test]
    fn a_markup_tag_ends_no_turn_beside_a_tool_response() {
        assert_eq!(ends(&["</s>", "<|tool_response>"], None), ["<|tool_response>"]);
        assert_eq!(ends(&["</s>", "<eos>"], None), ["</s>", "<eos>"]);
    }
}
