//! How cached rows are rounded, in models that were trained for it.

use super::error::Error;
use backend::{Mode, Rounding};
use formats::ModelConfig;
use formats::layers::OpSpec;

/// How cached rows are rounded, in models that were trained for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheRounding {
    /// Not at all, besides the storage type of the cache.
    Off,
    /// As the model was trained for: rows of attention to FP8, those of an index to FP4.
    Native,
}

impl CacheRounding {
    /// Both, with their names.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Off, "off"), (Self::Native, "native")];

    /// `off` or `native`.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The default of a compute mode.
    pub fn of(mode: Mode) -> Self {
        match mode {
            Mode::Exact => Self::Off,
            Mode::Fast => Self::Native,
        }
    }
}

impl std::str::FromStr for CacheRounding {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(_, other)| *other == name);
        let wrong = || format!("cache rounding must be off or native, not {name:?}");
        found.map(|(rounding, _)| rounding).ok_or_else(wrong)
    }
}

/// How cached rows are rounded, `None` where the model was not trained for it, and what the user
/// should know about it. `asked` is what the user asked for.
///
/// # Errors
///
/// If they cannot be rounded as the model was trained for.
pub(crate) fn rounding(
    config: &ModelConfig,
    asked: Option<CacheRounding>,
    mode: Mode,
) -> Result<(Option<CacheRounding>, Option<String>), Error> {
    let mut compressed = config.ops().filter_map(OpSpec::compressed).peekable();
    if compressed.peek().is_none() {
        return Ok((None, None));
    }
    let rounding = asked.unwrap_or(CacheRounding::of(mode));
    let mut indexes = compressed.filter_map(|spec| spec.index);
    let unfit = indexes.find(|index| !Rounding::Fp4.fits(index.rows.dim));
    if let (CacheRounding::Native, Some(index)) = (rounding, unfit) {
        let problem = format!(
            "cache rounding native: expected heads of the index whose size is a power of two, \
             found {}",
            index.rows.dim
        );
        return match asked {
            None => {
                Ok((Some(CacheRounding::Off), Some(format!("{problem}; rows are not rounded"))))
            }
            Some(_) => Err(Error::Rounding(problem)),
        };
    }
    Ok((Some(rounding), None))
}
