//! In what two vocabularies differ.

use crate::tokenizer::{EncodeOptions, Tokenizer};
use crate::vocab::TokenKind;

/// One of so many words is part of the text that both vocabularies encode.
const SAMPLED: usize = 37;

impl Tokenizer {
    /// In what `other` differs from this one, if it does: the first word, the first token that
    /// begins or ends texts where both have one, or the tokens of a text. Words that no text has,
    /// which fill a vocabulary up, do not count.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let size = self.vocab_size().max(other.vocab_size());
        let mut words = (0..size as u32).map(|id| (id, self.used_word(id), other.used_word(id)));
        if let Some((id, own, found)) = words.find(|(_, own, found)| own != found) {
            return Some(format!("token {id}: expected {}, found {}", shown(own), shown(found)));
        }
        let (own, found) = (self.special, other.special);
        let roles = [("begins", own.bos, found.bos), ("ends", own.eos, found.eos)];
        for (does, own, found) in roles {
            if let (Some(own), Some(found)) = (own, found)
                && own != found
            {
                let [own, found] = [own, found].map(|id| (id, shown(self.used_word(id))));
                return Some(format!(
                    "the token that {does} texts: expected {} {}, found {} {}",
                    own.0, own.1, found.0, found.1
                ));
            }
        }
        self.encodes_otherwise(other)
    }

    /// The text of a word that some text has.
    fn used_word(&self, id: u32) -> Option<&str> {
        self.vocab.get(id).filter(|entry| entry.kind != TokenKind::Unused).map(|entry| entry.text)
    }

    /// Compares the tokens of a text of words of this vocabulary: what is merged first decides them
    /// too.
    fn encodes_otherwise(&self, other: &Self) -> Option<String> {
        let sampled = (0..self.vocab_size() as u32).step_by(SAMPLED);
        let bytes = sampled.map(|id| String::from_utf8_lossy(self.token_bytes(id)));
        let text = bytes.collect::<String>();
        let encode = |tokenizer: &Self| tokenizer.encode(&text, EncodeOptions::default()).ok();
        let (own, found) = (encode(self)?, encode(other)?);
        let place = own.iter().zip(&found).position(|(own, found)| own != found)?;
        let [own, found] = [own[place], found[place]].map(|id| shown(self.used_word(id)));
        Some(format!("merges of words: where a text has {own}, found {found}"))
    }
}

/// A word for a message.
fn shown(word: Option<&str>) -> String {
    word.map_or("none".into(), |word| format!("{word:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");

    /// The built-in vocabulary, changed.
    fn vocabulary(change: impl Fn(&mut Value, &mut Value)) -> Tokenizer {
        let read = |name: &str| std::fs::read(format!("{MODEL}/{name}")).unwrap();
        let parse = |name| serde_json::from_slice(&read(name)).unwrap();
        let (mut words, mut config) = (parse("tokenizer.json"), parse("tokenizer_config.json"));
        change(&mut words, &mut config);
        let [words, config] = [words, config].map(|json: Value| json.to_string());
        Tokenizer::from_json_bytes(words.as_bytes(), Some(config.as_bytes())).unwrap()
    }

    fn difference(change: impl Fn(&mut Value, &mut Value)) -> Option<String> {
        vocabulary(|_, _| {}).difference(&vocabulary(change))
    }

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(difference(|_, _| {}), None);
        let swapped = difference(|words, _| {
            let vocab = &mut words["model"]["vocab"];
            (vocab["A"], vocab["B"]) = (vocab["B"].clone(), vocab["A"].clone());
        });
        let message = swapped.unwrap();
        assert!(message.ends_with("expected \"A\", found \"B\""), "{message}");
        let longer = difference(|words, _| {
            let word = json!({"id": 2048, "content": "<|more|>", "special": true});
            words["added_tokens"].as_array_mut().unwrap().push(word);
        });
        assert_eq!(longer.unwrap(), "token 2048: expected none, found \"<|more|>\"");
        let ends = difference(|_, config| config["eos_token"] = json!("<|im_start|>"));
        assert!(ends.unwrap().starts_with("the token that ends texts: expected "));
        let merged = difference(|words, _| {
            words["model"]["merges"].as_array_mut().unwrap().reverse();
        });
        assert!(merged.unwrap().starts_with("merges of words: where a text has "));
    }
}
