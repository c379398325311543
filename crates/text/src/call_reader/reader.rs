//! What a reader of calls takes, and what it makes of a character.

use super::call::Call;
use super::json::NotJson;
use std::fmt::Debug;

/// The effect of a literal that is found in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiteralRole {
    /// A call, or a block of calls, begins.
    Start,
    /// As `Start`, but only in text.
    First,
    /// As `Start`, but only directly after a call.
    Next,
    /// As `Start`, unless an earlier call has broken off: this may be the rest of it.
    Implicit,
    /// Directly after a call: the literal belongs to the call and is dropped.
    Close,
    /// As `Close`, and the turn ends.
    End,
}

impl LiteralRole {
    /// Whether the literal counts directly after a call, or else in text.
    pub fn counts(self, after_call: bool) -> bool {
        match self {
            Self::Start | Self::Implicit => true,
            Self::First => !after_call,
            Self::Next | Self::Close | Self::End => after_call,
        }
    }
}

/// What a reader makes of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The character belongs to the call.
    More,
    /// The character ends the call.
    Over,
    /// The character ends the turn.
    Complete,
    /// The character cannot follow: the text since the last whole call is content.
    Refused,
}

impl From<Result<bool, NotJson>> for Flow {
    fn from(whole: Result<bool, NotJson>) -> Self {
        match whole {
            Ok(true) => Flow::Over,
            Ok(false) => Flow::More,
            Err(NotJson) => Flow::Refused,
        }
    }
}

/// Reads one call or one block of calls, starting after the literal that begins it.
pub(crate) trait CallReader: Debug + Send + Sync {
    /// Takes the next character.
    fn push(&mut self, c: char, call: &mut Call) -> Flow;

    /// Takes the end of the answer, which a limit has cut off if `truncated`. Returns whether the
    /// text since the last whole call is a call, or the rest of a block that had one; if it is
    /// neither, it is the beginning of a call in a truncated answer, and content in another.
    fn finish(&mut self, _truncated: bool, _call: &mut Call) -> bool {
        false
    }

    /// Whether the text that comes next is reasoning.
    fn in_reasoning(&self) -> bool {
        false
    }
}
