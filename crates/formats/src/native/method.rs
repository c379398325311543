//! How the weights of a checkpoint were quantised, as its settings say.

use std::path::Path;

use super::scheme::{Scheme, Sharing, Stored, tile};
use super::settings::Settings;
use crate::error::{Error, Result, shown};
use crate::json::Object;
use crate::tensor::TensorView;

/// Formats of compressed-tensors that are read. `mixed-precision` leaves the format to each group,
/// `dense` has no quantised weights.
const FORMATS: [&str; 9] = [
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
    MIXED,
    "dense",
];
const MIXED: &str = "mixed-precision";

/// Algorithms of ModelOpt that are read: bits of their floats, and which weights share a scale.
static ALGORITHMS: [(&str, usize, Sharing); 6] = [
    ("nvfp4", 4, Sharing::Inputs(16)),
    ("w4a16_nvfp4", 4, Sharing::Inputs(16)),
    ("fp8", 8, Sharing::Matrix),
    ("fp8_per_channel_per_token", 8, Sharing::Row),
    ("fp8_pb_wo", 8, Sharing::Tile([128, 128])),
    ("mxfp8", 8, Sharing::Inputs(32)),
];
const LAYERS: &str = "mixed_precision";

/// Settings of quantised weights.
#[derive(Debug, Default)]
pub(super) struct Method {
    /// The file with the settings, and the key in it, as messages name them.
    origin: String,
    /// Whether there are settings.
    pub given: bool,
    /// `quant_method`.
    pub name: Option<String>,
    /// How GPTQ and AWQ pack words: `checkpoint_format`, or `version` of AWQ.
    pub format: Option<String>,
    /// Lists of schemes. A matrix agrees with one scheme of each list.
    schemes: Vec<Vec<Scheme>>,
}

impl Method {
    /// Reads the settings in `folder`; empty if there are none.
    ///
    /// # Errors
    /// If the settings cannot be read, or name a method or values that are not supported.
    pub fn of(folder: Option<&Path>) -> Result<Self> {
        let settings = folder.map(Settings::of).transpose()?.unwrap_or_default();
        if settings.path.as_os_str().is_empty() {
            return Ok(Self::default());
        }
        let path = settings.path.display();
        let origin = match settings.key {
            "" => path.to_string(),
            key => format!("{key} in {path}"),
        };
        let fields = Object::at(&settings.path, settings.key, &settings.fields);
        let text = |key: &str| Ok(fields.text(key)?.map(str::to_owned));
        let name = text("quant_method")?.map(|name| match name.as_str() {
            // The name of the algorithm follows.
            name if name.starts_with("modelopt") => "modelopt".to_owned(),
            _ => name,
        });
        let schemes = match name.as_deref() {
            Some("gptq" | "awq") => vec![word_schemes(fields)?],
            Some("compressed-tensors") => vec![group_schemes(fields)?],
            Some("modelopt") => algorithm_schemes(fields)?,
            Some("fp8") => vec![fp8_schemes(fields)?],
            Some("fbgemm_fp8") => vec![vec![Scheme { sharing: Some(Sharing::Row), ..FP8 }]],
            _ => Vec::new(),
        };
        Ok(Self { origin, given: true, name, format: text("format")?, schemes })
    }

    /// The error for a tensor that does not belong to this method, or that has no settings.
    pub fn unknown(&self, view: &TensorView) -> Error {
        let origin = &self.origin;
        view.error(match &self.name {
            Some(method) => {
                let method = shown(method);
                format!("not known in weights quantised by {method} (quant_method, {origin})")
            }
            None if self.given => format!("expected quant_method in {origin}, found none"),
            None => {
                format!("expected settings of its quantisation ({}), found none", Settings::files())
            }
        })
    }

    /// The error for integers where floating-point weights are expected.
    pub fn no_floats(&self, view: &TensorView) -> Error {
        let problem = format!("expected floating-point weights, found values of type {}", view.ty);
        let why = match &self.name {
            Some(method) => {
                format!("not known in weights quantised by {} ({})", shown(method), self.origin)
            }
            None => format!("no settings of their quantisation ({})", Settings::files()),
        };
        view.error(format!("{problem}, {why}"))
    }

    /// The size of groups of which a row of `cols` inputs has `groups`, the last maybe shorter.
    pub fn group_inputs(&self, cols: usize, groups: usize) -> Option<usize> {
        self.sharing().find_map(|sharing| match sharing {
            Sharing::Inputs(size) if cols.div_ceil(size) == groups => Some(size),
            _ => None,
        })
    }

    /// Rows and columns of all tiles of the settings.
    pub fn tiles(&self) -> Vec<[usize; 2]> {
        let tile = |sharing| match sharing {
            Sharing::Tile(tile) => Some(tile),
            _ => None,
        };
        self.sharing().filter_map(tile).collect()
    }

    fn sharing(&self) -> impl Iterator<Item = Sharing> {
        self.schemes.iter().flatten().filter_map(|scheme| scheme.sharing)
    }

    /// Whether some weights are symmetric according to the settings.
    pub fn is_symmetric(&self) -> bool {
        self.schemes.iter().flatten().any(|scheme| scheme.symmetric == Some(true))
    }

    /// Checks that the tensors of `view` do not contradict the settings.
    ///
    /// # Errors
    /// If they do.
    pub fn check(&self, view: &TensorView, stored: &Stored) -> Result<()> {
        for schemes in &self.schemes {
            let all = schemes.iter().map(|scheme| scheme.contradiction(stored));
            let Some(problems) = all.collect::<Option<Vec<_>>>() else { continue };
            let Some(first) = problems.first() else { continue };
            let more = match problems.len() - 1 {
                0 => String::new(),
                more => format!(", nor what {more} more groups of settings say"),
            };
            return Err(self.contradiction(view, &format!("{first}{more}")));
        }
        Ok(())
    }

    /// The error for a tensor that contradicts the settings.
    pub fn contradiction(&self, view: &TensorView, problem: &str) -> Error {
        view.error(format!("{problem} ({})", self.origin))
    }
}

/// Eight-bit floats.
const FP8: Scheme = Scheme {
    format: None,
    bits: Some(8),
    floats: Some(true),
    sharing: None,
    symmetric: None,
    ordered: None,
};

/// GPTQ and AWQ: one scheme, and in gptqmodel's `dynamic` others for some modules.
fn word_schemes(settings: Object) -> Result<Vec<Scheme>> {
    const WORDS: &str = "int32";
    if let Some(words) = settings.text("pack_dtype")?.filter(|words| *words != WORDS) {
        let problem = format!("expected {WORDS}, found {}", shown(words));
        return Err(settings.error("pack_dtype", problem));
    }
    let base = Scheme::default().with(settings)?;
    let mut schemes = vec![base.clone()];
    if let Some(dynamic) = settings.object("dynamic")? {
        for module in dynamic.objects() {
            schemes.push(base.with(module)?);
        }
    }
    Ok(schemes)
}

/// compressed-tensors: a scheme for each of `config_groups` with weights.
fn group_schemes(settings: Object) -> Result<Vec<Scheme>> {
    let format = format_of(settings)?;
    let (mut schemes, mut named) = (Vec::new(), false);
    if let Some(groups) = settings.object("config_groups")? {
        for group in groups.objects() {
            let own = format_of(group)?.or_else(|| format.clone());
            if let Some(weights) = group.object("weights")? {
                schemes.push(Scheme::of_weights(weights, own.filter(|it| it != MIXED))?);
            }
        }
        named = groups.objects().count() < groups.len();
    }
    // Of a group that only names a preset no more than the format is known.
    if schemes.is_empty() || named {
        let format = format.filter(|it| it != MIXED);
        schemes.push(Scheme { format, ..Scheme::default() });
    }
    Ok(schemes)
}

/// A format of compressed-tensors, which must be one that is read.
fn format_of(settings: Object) -> Result<Option<String>> {
    match settings.text("format")? {
        Some(format) if !FORMATS.contains(&format) => {
            let problem = format!("expected one of {}", FORMATS.join(", "));
            Err(settings.error("format", format!("{problem}, found {}", shown(format))))
        }
        format => Ok(format.map(str::to_owned)),
    }
}

/// ModelOpt: the scheme of `quant_algo`, or those of `quantized_layers`; and those of
/// `config_groups`, where it wrote them for other readers.
fn algorithm_schemes(settings: Object) -> Result<Vec<Vec<Scheme>>> {
    let mut all = Vec::new();
    let algorithm = settings.text("quant_algo")?;
    match algorithm {
        Some(LAYERS) => {
            let layers = settings.object("quantized_layers")?;
            let layers = settings.need("quantized_layers", "an object", layers)?;
            let schemes = layers.objects().map(|layer| algorithm_scheme(layer, None));
            all.push(schemes.filter_map(Result::transpose).collect::<Result<_>>()?);
        }
        _ => all.extend(algorithm_scheme(settings, algorithm)?.map(|scheme| vec![scheme])),
    }
    if algorithm != Some(LAYERS) && settings.has("config_groups") {
        all.push(group_schemes(settings)?);
    }
    Ok(all)
}

/// The scheme of one algorithm; its name is `known`, or in `settings`.
fn algorithm_scheme(settings: Object, known: Option<&str>) -> Result<Option<Scheme>> {
    const KEY: &str = "quant_algo";
    let own = settings.text(KEY)?.map(str::to_lowercase);
    let Some(name) = known.map(str::to_owned).or(own) else { return Ok(None) };
    let found = ALGORITHMS.iter().find(|(known, ..)| *known == name);
    let Some((_, bits, sharing)) = found else {
        let read: Vec<_> = ALGORITHMS.iter().map(|(name, ..)| name.to_uppercase()).collect();
        let problem = format!("expected one of {}", read.join(", "));
        let found = shown(&name).to_uppercase();
        return Err(settings.error(KEY, format!("{problem}, found {found}")));
    };
    // ModelOpt writes 0 where an algorithm has no groups.
    let sized = settings.get("group_size").is_some_and(|size| size.as_u64() != Some(0));
    let said = if sized { Scheme::default().with(settings)?.sharing } else { None };
    let sharing = match sharing {
        Sharing::Inputs(_) => said.unwrap_or(*sharing),
        _ => *sharing,
    };
    Ok(Some(Scheme { bits: Some(*bits), sharing: Some(sharing), ..FP8 }))
}

/// FP8 of Hugging Face: tiles, where there are any.
fn fp8_schemes(settings: Object) -> Result<Vec<Scheme>> {
    if let Some(format) = settings.text("fmt")?.filter(|format| *format != "e4m3") {
        return Err(settings.error("fmt", format!("expected e4m3, found {}", shown(format))));
    }
    Ok(vec![Scheme { sharing: tile(settings, "weight_block_size")?, ..FP8 }])
}
