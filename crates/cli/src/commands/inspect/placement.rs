//! `--placement`: the decisions of placement rules for a model that is not loaded.

mod groups;
mod memory;
mod table;

use crate::output;
use crate::weights::MemoryArgs;
use anyhow::{Context, Result};
use backend::{Backend, Bits, Cpu, Mode};
use engine::{LoadOptions, Runner, WeightsPlan};
use formats::layers::NGRAM_TABLE;
use formats::{Checkpoint, Error, ModelFiles, OpenOptions};
use groups::PlacementGroup;
use indexmap::IndexMap;
use kernels::{Arithmetic, Isa};
use models::placement::{Placed, Placement, TensorInfo, decide_arithmetic};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;

/// The tensors of a model with the placement of each.
#[derive(Debug)]
pub(super) struct PlacementPlan {
    mode: Mode,
    /// Name of what computes.
    isa: String,
    /// Name of the arithmetic.
    arithmetic: String,
    tensors: Vec<TensorInfo>,
    placed: Vec<Placed>,
    /// What of it is in memory, where that was asked.
    weights: Option<WeightsPlan>,
}

/// Applies the rules in `file`, or the built-in ones alone, to the model at `path`; with `weights`
/// in the memory that these arguments give.
pub(super) fn plan(
    path: &Path,
    file: Option<&Path>,
    mode: Mode,
    bits: Bits,
    weights: Option<&MemoryArgs>,
) -> Result<PlacementPlan> {
    let rules = file.map_or_else(|| Ok(Placement::default()), Placement::open)?;
    match weights {
        None => {
            let isa = bits.limit(Isa::detect().map_err(backend::Error::Isa)?);
            PlacementPlan::new(&rules, tensors(path)?, &mut Cpu::with_isa(1, mode, isa)?)
        }
        Some(weights) => {
            let placement = Some(Arc::new(rules));
            let options =
                LoadOptions { mode, bits, placement, threads: 1, ..LoadOptions::default() };
            PlacementPlan::loaded(path, &weights.add_to(options))
        }
    }
}

/// All tensors under canonical names, which GGUF files have for every architecture.
fn tensors(path: &Path) -> Result<Vec<TensorInfo>> {
    match Checkpoint::open(path, &OpenOptions::default()) {
        Ok(checkpoint) => Ok(TensorInfo::all(&checkpoint)),
        Err(error @ Error::Architecture { .. }) => {
            let files = ModelFiles::open(path)?;
            let gguf = files.gguf().ok_or(error);
            let gguf = gguf.context("canonical names are needed for placement")?;
            Ok(gguf.tensors().iter().map(TensorInfo::from).collect())
        }
        Err(error) => Err(error.into()),
    }
}

impl PlacementPlan {
    fn new(rules: &Placement, tensors: Vec<TensorInfo>, backend: &mut dyn Backend) -> Result<Self> {
        let placed = rules.resolve(&tensors, backend)?;
        let arithmetic = decide_arithmetic(&placed, backend);
        let (mode, isa) = (backend.mode(), backend.identity());
        Ok(Self { mode, isa, arithmetic, tensors, placed, weights: None })
    }

    /// Loads the model, which decides; its weights stay in the files until they are used.
    fn loaded(path: &Path, options: &LoadOptions) -> Result<Self> {
        let checkpoint = Checkpoint::open(path, &OpenOptions::default())?;
        let runner = Runner::load(&checkpoint, options);
        let runner = runner.with_context(|| format!("cannot load {}", path.display()))?;
        let (tensors, weights) = (TensorInfo::all(&checkpoint), runner.weights_plan().clone());
        let (mode, isa) = (options.mode, runner.isa());
        let arithmetic = runner.settings().arithmetic.clone();
        let placed = weights.placed.clone();
        Ok(Self { mode, isa, arithmetic, tensors, placed, weights: Some(weights) })
    }

    fn groups(&self) -> Vec<PlacementGroup<'_>> {
        groups::groups(self.tensors.iter().zip(&self.placed))
    }

    /// Bytes of memory summed by `name`, in the order of first use.
    fn totals(&self, name: impl Fn(&Placed) -> &'static str) -> IndexMap<&'static str, usize> {
        let mut totals = IndexMap::<_, usize>::new();
        for placed in &self.placed {
            let bytes = totals.entry(name(placed)).or_default();
            *bytes = bytes.saturating_add(placed.bytes);
        }
        totals
    }

    /// The placement as a table.
    pub fn to_text(&self) -> String {
        let (mode, bits) = (self.mode.name(), output::bits(&self.arithmetic));
        let mut out = format!("mode {mode}, {}, {bits}\n\n", self.isa);
        out += &table::table(&self.groups());
        out += "\n";
        let memory = self.totals(|placed| placed.memory.name());
        let device = self.totals(|placed| placed.device.name);
        for (name, bytes) in memory.into_iter().chain(device) {
            out += &format!("{name:<8} {:>10}\n", super::report::size(bytes));
        }
        for (info, [rows, bytes]) in self.ngram_tables() {
            let [table, read] = [info.bytes, bytes].map(super::report::size);
            out +=
                &format!("{} {table} in the file; a token reads {rows} rows, {read}\n", info.name);
        }
        if let Some(weights) = &self.weights {
            out += "\n";
            out += &memory::text(weights);
        }
        out
    }

    /// Tables of n-grams, with the rows and bytes of them that a token reads.
    fn ngram_tables(&self) -> impl Iterator<Item = (&TensorInfo, [usize; 2])> {
        self.tensors.iter().filter(|info| info.is_ngram_table()).filter_map(|info| {
            let layer = info.name.strip_suffix(NGRAM_TABLE)?;
            let is_value = |it: &&TensorInfo| it.name == format!("{layer}ple_value.weight");
            let (&[all, width], value) = (&info.shape[..], self.tensors.iter().find(is_value)?)
            else {
                return None;
            };
            let rows = value.shape.last()?.checked_div(width)?;
            Some((info, [rows, info.bytes.checked_div(all)? * rows]))
        })
    }

    /// The placement as JSON.
    pub fn to_json(&self) -> Json {
        let tensors = self.tensors.iter().zip(&self.placed);
        let mut plan = json!({
            "mode": self.mode.name(),
            "isa": self.isa,
            "arithmetic": self.arithmetic,
            "portable": Arithmetic::is_portable_name(&self.arithmetic),
            "groups": self.groups().iter().map(PlacementGroup::to_json).collect::<Json>(),
            "memory_bytes": self.totals(|placed| placed.memory.name()),
            "device_bytes": self.totals(|placed| placed.device.name),
            "tensors": tensors.map(|(info, placed)| tensor_json(info, placed)).collect::<Json>(),
        });
        let table = |(info, [rows, bytes]): (&TensorInfo, [usize; 2])| json!({"name": info.name, "bytes": info.bytes, "token_rows": rows, "token_bytes": bytes});
        plan["ngram_tables"] = self.ngram_tables().map(table).collect();
        if let Some(weights) = &self.weights {
            plan["weights"] = memory::json(weights);
        }
        plan
    }
}

fn tensor_json(info: &TensorInfo, placed: &Placed) -> Json {
    let tensor = json!({"name": info.name, "kind": info.kind.name(), "layer": info.layer});
    groups::with_placement(tensor, info.ty, placed, (info.bytes, placed.bytes))
}

#[cfg(test)]
mod tests;
