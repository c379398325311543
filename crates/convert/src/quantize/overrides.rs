//! Types that the user chose for single tensors.

use crate::types::writable_type;
use anyhow::{Context, Result, bail};
use kernels::quant::QuantType;
use regex::Regex;

/// A pattern of tensor names with the type that matching tensors get.
#[derive(Clone, Debug)]
pub struct Override {
    pattern: String,
    pub(super) ty: &'static QuantType,
}

impl Override {
    /// Reads `PATTERN=TYPE`.
    ///
    /// # Errors
    ///
    /// A text of another form, or a type that cannot be written.
    pub fn parse(text: &str) -> Result<Self> {
        let (pattern, ty) = text.rsplit_once('=').context("expected PATTERN=TYPE")?;
        if pattern.is_empty() {
            bail!("expected a pattern before the =");
        }
        let ty = writable_type(ty).map_err(anyhow::Error::msg)?;
        Ok(Self { pattern: pattern.to_owned(), ty })
    }

    /// The indices of the names that match.
    pub(super) fn matching(&self, names: &[&str]) -> Result<Vec<usize>> {
        matching(&self.pattern, names)
            .with_context(|| format!("--tensor-type {}", self.pattern.escape_debug()))
    }
}

/// The indices of the names that match: the pattern is a glob over whole names or, where no name
/// matches, a regular expression that is found anywhere in a name.
pub(super) fn matching(pattern: &str, names: &[&str]) -> Result<Vec<usize>> {
    let found = glob(pattern).map_or_else(Vec::new, |glob| fitting(&glob, names));
    if !found.is_empty() {
        return Ok(found);
    }
    let expression = Regex::new(pattern).context("not a pattern")?;
    let found = fitting(&expression, names);
    if found.is_empty() {
        bail!("no quantised tensor has a matching name");
    }
    Ok(found)
}

/// `*` for any text and `?` for any character, over a whole name.
pub(crate) fn glob(pattern: &str) -> Option<Regex> {
    let expression = regex::escape(pattern).replace(r"\*", ".*").replace(r"\?", ".");
    Regex::new(&format!("^(?:{expression})$")).ok()
}

fn fitting(expression: &Regex, names: &[&str]) -> Vec<usize> {
    (0..names.len()).filter(|&index| expression.is_match(names[index])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] =
        ["token_embd.weight", "blk.0.attn_v.weight", "blk.1.attn_v.weight", "blk.10.ffn_up.weight"];

    fn check(pattern: &str, expected: &[usize]) {
        let found = Override::parse(&format!("{pattern}=q8_0")).unwrap().matching(&NAMES);
        assert_eq!(found.unwrap_or_default(), expected, "{pattern}");
    }

    #[test]
    fn patterns_are_globs_or_regular_expressions() {
        check("token_embd.weight", &[0]);
        check("*.attn_v.weight", &[1, 2]);
        check("blk.?.*", &[1, 2]);
        check("blk.1*", &[2, 3]);
        check("attn_v", &[1, 2]);
        check(r"^blk\.(0|10)\.", &[1, 3]);
        check(".*ffn_up.*", &[3]);
    }

    #[test]
    fn patterns_without_a_match_and_unknown_types_are_errors() {
        check("attn_x", &[]);
        check("blk.(", &[]);
        let error = |text| Override::parse(text).unwrap_err().to_string();
        assert!(error("x").contains("PATTERN=TYPE"));
        assert!(error("=q8_0").contains("a pattern"));
        assert!(error("x=q9").contains("expected one of"));
    }
}
