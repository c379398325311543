//! Warnings in answers: what a request asked for and did not get.

use crate::protocols::unsupported::{is_off, is_on};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Most sentences of one answer.
const MAX_WARNINGS: usize = 32;
/// Most characters of a name that a client gave.
const MAX_NAME_LEN: usize = 64;

/// Members of OpenAI's requests that this server has nothing for, and what a warning says of them.
pub(crate) const UNUSED: [(&str, &str); 3] = [
    ("moderation", "nothing is moderated"),
    ("prompt_cache_options", "every prompt is cached, as long as there is space"),
    ("prompt_cache_retention", "every prompt is cached, as long as there is space"),
];

/// Members that vLLM's requests may have beside these.
const UNUSED_OF_VLLM: [(&str, &str); 4] = [
    ("kv_transfer_params", "the cache is the server's own"),
    ("mm_processor_kwargs", "the model reads text"),
    ("truncation_side", "a prompt that is too long is refused, not truncated"),
    ("vllm_xargs", "the server has no further arguments"),
];

/// Sentences about what was left out, each said once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Warnings(Vec<String>);

impl Warnings {
    /// Adds one, with the name that the client gave to the thing.
    pub fn add(&mut self, name: &str, what: &str) {
        let name: String = name.chars().take(MAX_NAME_LEN).collect();
        self.push(format!("{name}: {what}"));
    }

    /// Adds sentences as they are.
    pub fn extend(&mut self, sentences: &[String]) {
        sentences.iter().for_each(|sentence| self.push(sentence.clone()));
    }

    fn push(&mut self, sentence: String) {
        if self.0.len() < MAX_WARNINGS && !self.0.contains(&sentence) {
            self.0.push(sentence);
        }
    }

    /// Adds one for each of `members`, names with sentences, that `object` gives a value other than
    /// `null`, `false` or an empty array.
    pub fn add_given(&mut self, object: &Value, members: &[(&str, &str)]) {
        self.add_given_unless(object, members, is_off);
    }

    /// Adds one for each member of vLLM's that changes nothing here.
    pub fn add_unused_of_vllm(&mut self, object: &Value) {
        self.add_given(object, &UNUSED_OF_VLLM);
        let shown = [("skip_special_tokens", "special tokens are never part of a text")];
        self.add_given_unless(object, &shown, is_on);
    }

    /// Adds one for each of `members` whose value in `object` is not off.
    pub fn add_given_unless(
        &mut self,
        object: &Value,
        members: &[(&str, &str)],
        is_off: fn(&Value) -> bool,
    ) {
        for (name, what) in members {
            if object.get(*name).is_some_and(|value| !is_off(value)) {
                self.add(name, what);
            }
        }
    }

    /// Adds one for a tier other than the only one.
    pub fn add_tier(&mut self, tier: Option<&str>) {
        if !matches!(tier, None | Some("auto" | "default")) {
            self.add("service_tier", "there is one tier");
        }
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_that_ask_for_nothing_are_not_named() {
        let body = json!({"a": 1, "b": null, "c": [], "d": false, "e": {}});
        let mut warnings = Warnings::default();
        let members = ["a", "b", "c", "d", "e", "f"].map(|name| (name, "x"));
        warnings.add_given(&body, &members);
        assert_eq!(json!(warnings), json!(["a: x", "e: x"]));
    }

    #[test]
    fn many_are_few_and_short() {
        let mut warnings = Warnings::default();
        for number in 0..1000 {
            warnings.add(&"x".repeat(1000 + number), "a");
            warnings.add(&number.to_string(), "b");
        }
        assert_eq!(warnings.0.len(), MAX_WARNINGS);
        assert!(warnings.0.iter().all(|sentence| sentence.len() < 100));
    }
}
