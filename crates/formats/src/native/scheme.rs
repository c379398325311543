//! Schemes: what settings say of quantised weights, and whether the tensors agree.

use serde_json::Value;

use crate::error::Result;
use crate::json::{Object, describe};

/// Largest accepted size of a group or tile.
const MAX_SIZE: usize = 1 << 24;
/// Most bits of a code.
const MAX_BITS: usize = 64;

/// Which weights share a scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sharing {
    /// All of a matrix.
    Matrix,
    /// All inputs of an output.
    Row,
    /// So many inputs of an output.
    Inputs(usize),
    /// Rows and columns of a tile.
    Tile([usize; 2]),
}

impl Sharing {
    /// Rows and columns of the scales of a matrix.
    fn scales(self, [rows, cols]: [usize; 2]) -> [usize; 2] {
        match self {
            Self::Matrix => [1, 1],
            Self::Row => [rows, 1],
            Self::Inputs(inputs) => [rows, cols.div_ceil(inputs)],
            Self::Tile([down, across]) => [rows.div_ceil(down), cols.div_ceil(across)],
        }
    }
}

/// What settings say of some quantised weights; `None` where they say nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scheme {
    /// Format of compressed-tensors.
    pub format: Option<String>,
    pub bits: Option<usize>,
    /// Whether codes are floating-point numbers.
    pub floats: Option<bool>,
    pub sharing: Option<Sharing>,
    /// Whether all zero points are in the middle.
    pub symmetric: Option<bool>,
    /// Whether inputs of a group need not be consecutive.
    pub ordered: Option<bool>,
}

/// The zero points of a quantised matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum ZeroPoints {
    /// No tensor has them.
    #[default]
    None,
    /// All are in the middle of the codes.
    Middle,
    /// They are anywhere, or not known.
    Any,
}

/// What the tensors of a quantised matrix hold.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Names of compressed-tensors for the format; none where it is another method's.
    pub formats: &'static [&'static str],
    pub bits: usize,
    pub floats: bool,
    /// Outputs and inputs.
    pub shape: [usize; 2],
    /// Scales along outputs and inputs.
    pub scales: [usize; 2],
    pub zeros: ZeroPoints,
    /// Whether a tensor has the group of each input.
    pub indexed: bool,
    /// Whether inputs of a group are not consecutive.
    pub ordered: bool,
}

impl Scheme {
    /// The settings of a group of compressed-tensors, in `weights`.
    ///
    /// # Errors
    /// If a field has an unknown value.
    pub fn of_weights(weights: Object, format: Option<String>) -> Result<Self> {
        let floats = match weights.text("type")? {
            None | Some("int") => false,
            Some("float") => true,
            Some(other) => {
                let problem =
                    format!("expected int or float, found {}", crate::error::shown(other));
                return Err(weights.error("type", problem));
            }
        };
        let ordered = match weights.get("actorder") {
            Some(Value::String(order)) => matches!(order.as_str(), "group" | "dynamic"),
            Some(Value::Bool(order)) => *order,
            _ => false,
        };
        Ok(Self {
            format,
            bits: weights.count("num_bits", MAX_BITS)?,
            floats: Some(floats),
            sharing: sharing(weights)?,
            symmetric: weights.flag("symmetric")?,
            ordered: Some(ordered),
        })
    }

    /// The settings of GPTQ or AWQ in `settings`, and of `self` where these leave one out.
    ///
    /// # Errors
    /// If a field has the wrong type or is out of range.
    pub fn with(&self, settings: Object) -> Result<Self> {
        let group = group(settings)?;
        Ok(Self {
            bits: settings.count("bits", MAX_BITS)?.or(self.bits),
            sharing: group.or(self.sharing),
            symmetric: settings.flag("sym")?.or(self.symmetric),
            ordered: settings.flag("desc_act")?.or(self.ordered),
            ..self.clone()
        })
    }

    /// How the tensors contradict the settings, if they do.
    pub fn contradiction(&self, stored: &Stored) -> Option<String> {
        let known = |format: &String| stored.formats.contains(&format.as_str());
        if let Some(format) = self.format.as_ref().filter(|format| !known(format)) {
            let stored = stored.formats.first().unwrap_or(&"another format");
            return Some(format!("expected {format}, found {stored}"));
        }
        let kind =
            |floats, bits| format!("{}s of {bits} bits", if floats { "float" } else { "integer" });
        let floats = self.floats.unwrap_or(stored.floats);
        let bits = self.bits.unwrap_or(stored.bits);
        if (floats, bits) != (stored.floats, stored.bits) {
            let found = kind(stored.floats, stored.bits);
            return Some(format!("expected {}, found {found}", kind(floats, bits)));
        }
        if let Some(sharing) = self.sharing {
            let expected = sharing.scales(stored.shape);
            if expected != stored.scales {
                let per = match sharing {
                    Sharing::Matrix => "one scale".to_owned(),
                    Sharing::Row => "a scale for each output".to_owned(),
                    Sharing::Inputs(inputs) => format!("groups of {inputs} inputs"),
                    Sharing::Tile([rows, cols]) => format!("tiles of {rows} by {cols}"),
                };
                let found = format!("{expected:?}, found {:?}", stored.scales);
                return Some(format!("expected {per}, which has scales of shape {found}"));
            }
        }
        match (self.symmetric, stored.zeros) {
            (Some(true), ZeroPoints::Any) => {
                return Some("expected symmetric weights, found zero points off the middle".into());
            }
            (Some(false), ZeroPoints::None) if !stored.floats => {
                return Some("expected zero points, found none".into());
            }
            _ => {}
        }
        match self.ordered {
            Some(true) if !stored.indexed && stored.scales[1] > 1 => {
                Some("expected a tensor with the group of each input, found none".into())
            }
            Some(false) if stored.ordered => {
                Some("expected inputs in the order of their groups, found another order".into())
            }
            _ => None,
        }
    }
}

/// `group_size` of GPTQ and AWQ.
fn group(settings: Object) -> Result<Option<Sharing>> {
    const KEY: &str = "group_size";
    let Some(value) = settings.get(KEY) else { return Ok(None) };
    match value.as_i64() {
        Some(-1) => Ok(Some(Sharing::Row)),
        Some(size) if size > 0 && size <= MAX_SIZE as i64 => {
            Ok(Some(Sharing::Inputs(size as usize)))
        }
        _ => {
            let expected = format!("expected -1 or an integer from 1 to {MAX_SIZE}");
            Err(settings.error(KEY, format!("{expected}, found {}", describe(value))))
        }
    }
}

/// `strategy` of compressed-tensors, which follows from the sizes where it is left out.
fn sharing(weights: Object) -> Result<Option<Sharing>> {
    let (group, tile) = (group(weights)?, tile(weights, "block_structure")?);
    let need = |key: &str, value: Option<Sharing>| weights.need(key, "a size", value).map(Some);
    match weights.text("strategy")? {
        Some("tensor") => Ok(Some(Sharing::Matrix)),
        Some("channel") => Ok(Some(Sharing::Row)),
        Some("group" | "tensor_group") => need("group_size", group),
        Some("block") => need("block_structure", tile),
        None => Ok(group.or(tile).or(Some(Sharing::Matrix))),
        Some(other) => {
            let problem = "expected tensor, channel, group, tensor_group or block, found";
            Err(weights.error("strategy", format!("{problem} {}", crate::error::shown(other))))
        }
    }
}

/// Rows and columns of a tile.
pub(super) fn tile(settings: Object, key: &str) -> Result<Option<Sharing>> {
    let Some(sizes) = settings.array(key)? else { return Ok(None) };
    let size = |value: &Value| {
        let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
        size.filter(|size| (1..=MAX_SIZE).contains(size))
    };
    match sizes {
        [rows, cols] => size(rows).zip(size(cols)),
        _ => None,
    }
    .map(|(rows, cols)| Some(Sharing::Tile([rows, cols])))
    .ok_or_else(|| settings.error(key, format!("expected two integers from 1 to {MAX_SIZE}")))
}
