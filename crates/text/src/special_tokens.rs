//! The tokens with a role.

use std::collections::BTreeMap;

/// The names of the roles in `tokenizer_config.json` and in templates, in the order of the fields
/// of [`SpecialTokens`].
pub(crate) const ROLES: [&str; 4] = ["bos_token", "eos_token", "pad_token", "unk_token"];

/// The texts of the tokens with a role. A role without a token is undefined in templates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Begin of sequence.
    pub bos: Option<String>,
    /// End of sequence.
    pub eos: Option<String>,
    /// Padding.
    pub pad: Option<String>,
    /// Unknown text.
    pub unk: Option<String>,
    /// Those of other roles, such as `sep_token` and `image_token`, by their names in templates.
    pub others: BTreeMap<String, String>,
}

impl SpecialTokens {
    /// The tokens of `named`, by the names of their roles.
    pub(crate) fn from_names(mut named: BTreeMap<String, String>) -> Self {
        let [bos, eos, pad, unk] = ROLES.map(|role| named.remove(role));
        SpecialTokens { bos, eos, pad, unk, others: named }
    }

    /// The names and texts that templates get.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let Self { bos, eos, pad, unk, others } = self;
        let roles = ROLES.into_iter().zip([bos, eos, pad, unk]);
        let roles = roles.filter_map(|(name, text)| Some((name, text.as_deref()?)));
        roles.chain(others.iter().map(|(name, text)| (name.as_str(), text.as_str())))
    }
}

/// The ids of the tokens with a role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Begin of sequence.
    pub bos: Option<u32>,
    /// End of sequence.
    pub eos: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Unknown text.
    pub unk: Option<u32>,
}

impl SpecialIds {
    /// The ids that `id` finds for the names of the roles.
    pub(crate) fn named(id: impl Fn(&str) -> Option<u32>) -> Self {
        let [bos, eos, pad, unk] = ROLES.map(id);
        SpecialIds { bos, eos, pad, unk }
    }
}
