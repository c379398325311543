//! What a request asked for and did not get, although it was answered.

use serde::Serialize;
use utoipa::ToSchema;

/// Most sentences of one answer.
const MOST: usize = 32;
/// Most characters of a name that a client gave.
const MAX_NAME_LEN: usize = 64;

/// Sentences about what was left out, each said once.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Warnings(Vec<String>);

impl Warnings {
    /// Adds one, with the name that the client gave to the thing.
    pub fn add(&mut self, name: &str, what: &str) {
        let name: String = name.chars().take(MAX_NAME_LEN).collect();
        let sentence = format!("{name}: {what}");
        if self.0.len() < MOST && !self.0.contains(&sentence) {
            self.0.push(sentence);
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

    #[test]
    fn many_are_few_and_short() {
        let mut warnings = Warnings::default();
        for number in 0..1000 {
            warnings.add(&"x".repeat(1000 + number), "a");
            warnings.add(&number.to_string(), "b");
        }
        assert_eq!(warnings.0.len(), MOST);
        assert!(warnings.0.iter().all(|sentence| sentence.len() < 100));
    }
}
