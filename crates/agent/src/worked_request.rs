//! What an agent remembers of a request, so that it can be taken back.

use crate::file_change::FileChange;
use crate::known_facts::KnownFacts;

/// A request of the user with what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkedRequest {
    /// The user's words.
    pub text: String,
    /// The number of its message, or of the first message after the summary that it is part of.
    pub message: usize,
    /// Whether a summary has its message.
    pub is_summed_up: bool,
    /// What the user wrote while the model worked on it.
    pub written: Vec<String>,
    /// What the tools changed.
    pub changes: Vec<FileChange>,
    /// The commands that ran; what they changed is not known.
    pub commands: Vec<String>,
    /// The ids of calls that failed or were not made.
    pub failed_calls: Vec<String>,
    /// What is known of its calls.
    pub facts: KnownFacts,
}

impl WorkedRequest {
    /// All words of the user.
    pub(crate) fn words(&self) -> String {
        let all = std::iter::once(&self.text).chain(&self.written);
        all.map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}
