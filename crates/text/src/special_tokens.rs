//! The tokens with a role.

/// The names of the roles in `tokenizer_config.json` and in templates, in the order of the fields
/// of [`SpecialTokens`].
pub(crate) const ROLES: [&str; 4] = ["bos_token", "eos_token", "pad_token", "unk_token"];

/// The tokens with a role, as texts or as ids. A role without a token is undefined in templates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecialTokens<T = String> {
    /// Begin of sequence.
    pub bos: Option<T>,
    /// End of sequence.
    pub eos: Option<T>,
    /// Padding.
    pub pad: Option<T>,
    /// Unknown text.
    pub unk: Option<T>,
}

/// The ids of the tokens with a role.
pub type SpecialIds = SpecialTokens<u32>;

impl<T> SpecialTokens<T> {
    /// The tokens that `token` finds for the names of the roles.
    pub(crate) fn named(token: impl Fn(&str) -> Option<T>) -> Self {
        let [bos, eos, pad, unk] = ROLES.map(token);
        SpecialTokens { bos, eos, pad, unk }
    }
}
