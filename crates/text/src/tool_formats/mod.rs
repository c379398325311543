//! Tool-call formats: how families of models write tool calls.
//!
//! A format is one file with a static [`ToolFormat`], and one entry of [`ToolFormat::ALL`]. The
//! file has the markers, the reader and the syntax for grammars; `docs/add-a-tool-call-format.md`
//! says how to add one.

pub mod atem;
pub mod deepseek;
pub mod dsml;
mod dsml_dialects;
mod dsml_structure;
mod format;
pub mod glm;
pub mod harmony;
pub mod hermes;
pub mod hy;
pub mod lfm;
pub mod llama;
mod messages;
pub mod minimax;
pub mod minimax_m3;
pub mod mistral;
mod python;
pub mod qwen_coder;
mod suffixed;
pub(crate) mod syntax;
mod written;

pub use format::ToolFormat;
use std::str::FromStr;

impl ToolFormat {
    /// Every format, in the order of detection: the first one that a template shows is its format.
    pub const ALL: &[&Self] = &[
        &lfm::LFM,
        &atem::ATEM,
        &minimax_m3::MINIMAX_M3,
        &minimax::MINIMAX,
        &hy::HY,
        &glm::GLM_45,
        &glm::GLM,
        &harmony::HARMONY,
        &dsml::DSML,
        &deepseek::DEEPSEEK_V31,
        &deepseek::DEEPSEEK_V3,
        &mistral::MISTRAL,
        &llama::LLAMA,
        &qwen_coder::QWEN_CODER,
        &hermes::HERMES,
    ];

    /// Returns the format that the source of a chat template shows, if it shows one.
    pub fn detect(template: &str) -> Option<&'static Self> {
        let found = Self::ALL.iter().copied().find(|format| (format.detect)(template))?;
        let suffix = found.suffix.and_then(|suffix| suffix(template));
        Some(suffix.and_then(|suffix| suffixed::suffixed(found, suffix)).unwrap_or(found))
    }

    /// Returns the names of all formats, the most common ones first: they are detected last.
    pub fn names() -> String {
        let names: Vec<&str> = Self::ALL.iter().rev().map(|format| format.name).collect();
        names.join(", ")
    }
}

/// A name that no format has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown tool format \"{found}\" (known: {known})")]
pub struct UnknownFormat {
    found: String,
    known: String,
}

impl FromStr for &'static ToolFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let (base, suffix) = name.split_at(name.find(':').unwrap_or(name.len()));
        let found = ToolFormat::ALL.iter().copied().find(|format| format.name == base);
        let found = match suffix {
            "" => found,
            suffix => found
                .filter(|format| format.suffix.is_some())
                .and_then(|format| suffixed::suffixed(format, suffix)),
        };
        let unknown = || UnknownFormat { found: name.to_owned(), known: ToolFormat::names() };
        found.ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_literal_hides_another() {
        for format in ToolFormat::ALL {
            let literals: Vec<&str> = format.literals.iter().map(|literal| literal.0).collect();
            for (literal, other) in
                literals.iter().flat_map(|l| literals.iter().map(move |o| (l, o)))
            {
                assert!(literal == other || !other.starts_with(literal), "{literal} {other}");
                let rest = literal.trim_start_matches('`').chars().skip(1);
                let first = other.chars().next();
                let inner = rest.filter(|c| Some(*c) == first && literal.len() > 1);
                assert!(inner.count() == 0 || first == Some(']'), "{literal} {other}");
            }
        }
    }
}
