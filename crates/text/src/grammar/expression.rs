//! Regular expressions with intersection and complement, as terminals of Lark.

use super::lark::literal;
use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;

/// States for the proof that an expression matches anything.
const MAX_FUEL: u64 = 100_000;

/// An expression over a whole text.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    /// In the syntax of llguidance's regular expressions.
    Regex(String),
    /// A text.
    Literal(String),
    /// What the expression does not match.
    Not(Box<Expression>),
    /// What all match.
    All(Vec<Expression>),
    /// What one matches.
    Any(Vec<Expression>),
    /// One after the other.
    Sequence(Vec<Expression>),
}

impl Expression {
    /// The complement of a regular expression.
    pub fn without(regex: String) -> Self {
        Self::Not(Box::new(Self::Regex(regex)))
    }

    /// Returns the expression as a terminal; `None` if it matches nothing.
    ///
    /// # Errors
    /// If a regular expression is malformed, or the expression is too complex.
    pub fn terminal(&self) -> Result<Option<String>, String> {
        let mut builder = RegexBuilder::new();
        let root = builder.mk(&self.ast()).map_err(|error| error.to_string())?;
        let regex = builder.to_regex_limited(root, MAX_FUEL);
        let mut regex = regex.map_err(|error| error.to_string())?;
        Ok((!regex.always_empty()).then(|| self.lark()))
    }

    fn ast(&self) -> RegexAst {
        let asts = |list: &[Self]| list.iter().map(Self::ast).collect();
        match self {
            Self::Regex(text) => RegexAst::Regex(text.clone()),
            Self::Literal(text) => RegexAst::Literal(text.clone()),
            Self::Not(inner) => RegexAst::Not(Box::new(inner.ast())),
            Self::All(list) => RegexAst::And(asts(list)),
            Self::Any(list) => RegexAst::Or(asts(list)),
            Self::Sequence(list) => RegexAst::Concat(asts(list)),
        }
    }

    /// Whether the expression is an alternative of none.
    fn is_nothing(&self) -> bool {
        match self {
            Self::Any(list) => list.iter().all(Self::is_nothing),
            Self::All(list) | Self::Sequence(list) => list.iter().any(Self::is_nothing),
            _ => false,
        }
    }

    fn lark(&self) -> String {
        let texts = |list: &[Self], sign: &str| {
            let texts: Vec<String> =
                list.iter().filter(|part| !part.is_nothing()).map(Self::lark).collect();
            format!("({})", texts.join(sign))
        };
        match self {
            Self::Regex(text) => format!("/{}/", regex_to_lark(text, "")),
            Self::Literal(text) => literal(text),
            Self::Not(inner) => format!("~{}", inner.lark()),
            Self::All(list) => texts(list, " & "),
            Self::Any(list) => texts(list, " | "),
            Self::Sequence(list) => texts(list, " "),
        }
    }
}
