//! `quantization_config` of config.json: how the weights were quantised.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result, shown};
use crate::json::{self, CONFIG_FILE, MAX_CONFIG_BYTES, Object, describe};
use crate::tensor::TensorView;

/// Largest accepted size of a group or tile.
const MAX_SIZE: usize = 1 << 24;

/// Settings of `quantization_config` that do not follow from the tensors.
#[derive(Debug, Default)]
pub(super) struct Method {
    path: PathBuf,
    /// Whether the configuration has a `quantization_config`.
    pub given: bool,
    /// `quant_method`.
    pub name: Option<String>,
    /// `version`, of AWQ.
    pub version: Option<String>,
    /// `checkpoint_format`, of GPTQ.
    pub format: Option<String>,
    /// Bits of a code, where they are the same for all tensors.
    pub bits: Option<usize>,
    /// Inputs per group; `usize::MAX` for one group of all inputs.
    pub group: Option<usize>,
    /// Rows and columns of a tile.
    pub tile: Option<[usize; 2]>,
}

impl Method {
    /// Reads config.json in `folder`; empty if there is none.
    pub fn of(folder: Option<&Path>) -> Result<Self> {
        let Some(path) = folder.map(|folder| folder.join(CONFIG_FILE)) else {
            return Ok(Self::default());
        };
        if matches!(path.try_exists(), Ok(false)) {
            return Ok(Self::default());
        }
        let text = json::read_text(&path, MAX_CONFIG_BYTES)?;
        let map = json::parse_object(&text, &path)?;
        Self::read(Object::new(&path, &map))
    }

    fn read(config: Object) -> Result<Self> {
        let new = config.object("quantization_config")?;
        let Some(read) =
            new.map_or_else(|| config.object("compression_config"), |it| Ok(Some(it)))?
        else {
            return Ok(Self::default());
        };
        for key in ["transform_config", "sparsity_config"] {
            let dense = |it: &Object| matches!(it.text("format"), Ok(Some("dense")));
            if read.object(key)?.is_some_and(|it| !it.is_empty() && !dense(&it)) {
                return Err(read.error(key, "weights that are changed so cannot be read yet"));
            }
        }
        let text = |key: &str| Ok(read.text(key)?.map(str::to_lowercase));
        let bits = read.count("bits", 64)?.filter(|_| !read.has("dynamic"));
        Ok(Self {
            path: config.path.to_owned(),
            given: true,
            name: text("quant_method")?,
            version: text("version")?,
            format: text("checkpoint_format")?,
            bits,
            group: group(read)?,
            tile: tile(read)?,
        })
    }

    /// The error for a tensor that does not belong to this method.
    pub fn unknown(&self, view: &TensorView) -> Error {
        let method = shown(self.name.as_deref().unwrap_or("none"));
        let config = self.path.display();
        let problem =
            format!("not known in weights quantised by {method} (quant_method in {config})");
        view.error(problem)
    }
}

fn group(config: Object) -> Result<Option<usize>> {
    const KEY: &str = "group_size";
    let Some(value) = config.get(KEY) else { return Ok(None) };
    match value.as_i64() {
        Some(-1) => Ok(Some(usize::MAX)),
        Some(size) if size > 0 && size <= MAX_SIZE as i64 => Ok(Some(size as usize)),
        _ => {
            let expected = format!("expected -1 or an integer from 1 to {MAX_SIZE}");
            Err(config.error(KEY, format!("{expected}, found {}", describe(value))))
        }
    }
}

fn tile(config: Object) -> Result<Option<[usize; 2]>> {
    const KEY: &str = "weight_block_size";
    let Some(sizes) = config.array(KEY)? else { return Ok(None) };
    let size = |value: &serde_json::Value| {
        let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
        size.filter(|size| (1..=MAX_SIZE).contains(size))
    };
    match sizes {
        [rows, cols] => size(rows).zip(size(cols)),
        _ => None,
    }
    .map(|(rows, cols)| Some([rows, cols]))
    .ok_or_else(|| config.error(KEY, format!("expected two integers from 1 to {MAX_SIZE}")))
}
