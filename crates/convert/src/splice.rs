//! Splicing: a GGUF file of one model in which some tensors are those of another file of it.

use super::output;
use super::quantize::{glob, split_layer};
use super::tensor_list::{self, TensorChange, mib};
use crate::progress::WorkProgress;
use anyhow::{Context, Result, bail};
use formats::gguf::{GgufFile, GgufWriter};
use formats::{ModelFiles, TensorView};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::ops::RangeInclusive;
use std::path::Path;

/// Bytes copied at once.
const PIECE: usize = 8 << 20;

/// A range of layers, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerRange(RangeInclusive<usize>);

/// Which tensors are those of the donor.
#[derive(Clone, Copy, Debug)]
pub struct SpliceSelection<'a> {
    /// Glob over whole names, or over names without `blk.N.`.
    pub tensors: &'a str,
    /// The layers; empty for all tensors of matching names.
    pub layers: &'a [LayerRange],
}

/// A tensor of the base, with the one that takes its place.
#[derive(Debug)]
struct SplicedTensor {
    base: TensorView,
    donor: Option<TensorView>,
}

/// A file that is planned: the metadata and tensors of the base, some of the donor.
#[derive(Debug)]
pub struct Splice {
    header: GgufWriter,
    tensors: Vec<SplicedTensor>,
}

impl LayerRange {
    /// Reads `A-B`, or `A` for one layer.
    ///
    /// # Errors
    ///
    /// A text of another form, or a range that ends before it begins.
    pub fn parse(text: &str) -> Result<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.parse::<usize>().context("expected layers such as 37-42");
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            bail!("expected the first layer before the last, found {first}-{last}");
        }
        Ok(Self(first..=last))
    }
}

impl SpliceSelection<'_> {
    /// Whether each tensor of `base` is selected.
    fn choose(&self, base: &GgufFile) -> Result<Vec<bool>> {
        let (pattern, path) = (self.tensors.escape_debug(), base.path().display());
        let layers = base.tensors().iter().filter_map(|tensor| split_layer(&tensor.name));
        let layers = layers.map(|(layer, _)| layer.saturating_add(1)).max().unwrap_or(0);
        if let Some(LayerRange(range)) = self.layers.iter().find(|it| *it.0.end() >= layers) {
            let (first, last) = (range.start(), range.end());
            bail!("--layers {first}-{last}: expected layers below {layers}, those of {path}");
        }
        let glob =
            glob(self.tensors).with_context(|| format!("--tensors {pattern}: not a glob"))?;
        let chosen = base.tensors().iter().map(|tensor| {
            let place = split_layer(&tensor.name);
            let matches = glob.is_match(&tensor.name)
                || place.is_some_and(|(_, within)| glob.is_match(within));
            let in_layers = |layer: usize| self.layers.iter().any(|it| it.0.contains(&layer));
            matches && (self.layers.is_empty() || place.is_some_and(|(at, _)| in_layers(at)))
        });
        let chosen: Vec<bool> = chosen.collect();
        if !chosen.contains(&true) {
            bail!("--tensors {pattern}: no tensor of {path} in these layers has a matching name");
        }
        Ok(chosen)
    }
}

impl Splice {
    /// Plans the metadata and tensors of the GGUF file `base`, with the tensors that `selection`
    /// names from the GGUF file `donor`.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or is of another family, a selection of no tensor, and a tensor
    /// that the donor lacks or has in another shape.
    pub fn plan(base: &Path, donor: &Path, selection: SpliceSelection<'_>) -> Result<Self> {
        let files = [ModelFiles::open(base)?, ModelFiles::open(donor)?];
        let [base, donor] = [gguf(&files[0])?, gguf(&files[1])?];
        check_family(base, donor)?;
        let chosen = selection.choose(base)?;
        let donors: HashMap<&str, &TensorView> =
            donor.tensors().iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
        let mut header = GgufWriter::new();
        let entries = base.metadata().iter().filter(|(key, _)| !key.starts_with("split."));
        entries.for_each(|(key, value)| header.set(key, value.clone()));
        let mut tensors = Vec::with_capacity(chosen.len());
        for (tensor, chosen) in base.tensors().iter().zip(chosen) {
            let found = chosen.then(|| replacement(tensor, &donors, donor)).transpose()?;
            let spliced = SplicedTensor { base: tensor.clone(), donor: found.cloned() };
            let TensorView { name, ty, shape, .. } = spliced.written();
            header.plan(name, ty, shape)?;
            tensors.push(spliced);
        }
        Ok(Self { header, tensors })
    }

    /// Checks that `out` can be the name of the file.
    ///
    /// # Errors
    ///
    /// A name that does not end in `.gguf`, or that of a part of a model.
    pub fn check_name(out: &Path) -> Result<()> {
        output::check_name(out)
    }

    /// Writes the planned file `out`; `force` replaces an existing one. Reports the bytes of the
    /// tensors as progress.
    ///
    /// # Errors
    ///
    /// An existing file, or an error of the system. No incomplete file is left there.
    pub fn write(self, out: &Path, force: bool, progress: &mut dyn WorkProgress) -> Result<()> {
        Self::check_name(out)?;
        let (mut output, _) = output::create(out, None, force, self.header)?;
        progress.start(self.tensors.iter().map(|it| it.written().bytes().len() as u64).sum());
        for tensor in self.tensors.iter().map(SplicedTensor::written) {
            progress.part(&tensor.name);
            let bytes = tensor.bytes();
            for start in (0..bytes.len()).step_by(PIECE) {
                progress.check()?;
                let piece = start..bytes.len().min(start + PIECE);
                output.write(&bytes.read(piece.clone()))?;
                progress.advance(piece.len() as u64);
            }
        }
        Ok(output.finish()?)
    }

    /// Totals, and the tensors of the donor, as JSON.
    pub fn to_json(&self) -> Json {
        let (before, after) = self.bytes();
        json!({"tensors": self.tensors.len(), "bytes_before": before, "bytes_after": after,
            "spliced": tensor_list::to_json(self.changes())})
    }

    /// The tensors of the donor as a table, and totals.
    pub fn to_table(&self) -> String {
        let mut out = tensor_list::to_table(self.changes());
        let (count, all) = (self.changes().count(), self.tensors.len());
        let (before, after) = self.bytes();
        let (before, after) = (mib(before), mib(after));
        let _ = writeln!(
            out,
            "{count} of {all} tensors are those of the donor: {after:.1} MiB instead of {before:.1}"
        );
        out
    }

    /// Bytes of all tensors of the base, and of the result.
    fn bytes(&self) -> (usize, usize) {
        let before = self.tensors.iter().map(|it| it.base.bytes().len()).sum();
        (before, self.tensors.iter().map(|it| it.written().bytes().len()).sum())
    }

    fn changes(&self) -> impl Iterator<Item = TensorChange<'_>> {
        self.tensors.iter().filter_map(|SplicedTensor { base, donor }| {
            let donor = donor.as_ref()?;
            Some(TensorChange {
                name: &base.name,
                shape: &base.shape,
                from: base.ty,
                to: donor.ty,
                before: base.bytes().len(),
                after: donor.bytes().len(),
            })
        })
    }
}

impl SplicedTensor {
    fn written(&self) -> &TensorView {
        self.donor.as_ref().unwrap_or(&self.base)
    }
}

fn gguf(files: &ModelFiles) -> Result<&GgufFile> {
    let path = files.path().display();
    files.gguf().with_context(|| {
        format!("{path}: expected a GGUF file; `gannet quantize` writes one of other models")
    })
}

fn check_family(base: &GgufFile, donor: &GgufFile) -> Result<()> {
    const KEY: &str = "general.architecture";
    let family = |file: &GgufFile| -> Result<String> {
        Ok(file.metadata().opt_text(KEY)?.unwrap_or_default().escape_debug().to_string())
    };
    let (expected, found) = (family(base)?, family(donor)?);
    if expected != found {
        let (base, donor) = (base.path().display(), donor.path().display());
        bail!("{donor}: {KEY}: expected {expected} as in {base}, found {found}");
    }
    Ok(())
}

/// The tensor of the donor in the place of `tensor`.
fn replacement<'a>(
    tensor: &TensorView,
    donors: &HashMap<&str, &'a TensorView>,
    donor: &GgufFile,
) -> Result<&'a TensorView> {
    let (name, base) = (tensor.name.escape_debug(), tensor.path().display());
    let Some(found) = donors.get(tensor.name.as_str()) else {
        bail!("{}: tensor {name}: expected one as in {base}, found none", donor.path().display());
    };
    if found.shape != tensor.shape {
        let (path, expected, found) = (found.path().display(), &tensor.shape, &found.shape);
        bail!("{path}: tensor {name}: expected shape {expected:?} as in {base}, found {found:?}");
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_a_number_or_a_range_with_both_ends() {
        let check = |text: &str, expected: Option<RangeInclusive<usize>>| {
            assert_eq!(LayerRange::parse(text).ok(), expected.map(LayerRange), "{text}");
        };
        check("37-42", Some(37..=42));
        check("0", Some(0..=0));
        check("3-3", Some(3..=3));
        for bad in ["", "-", "4-3", "1-", "-1", "a", "1-2-3", "1,2"] {
            check(bad, None);
        }
    }
}
