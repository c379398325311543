//! The plan and the result of a quantisation, as JSON and as tables.

use super::plan::Target;
use crate::tensor_list::{self, TensorChange, mib};
use indexmap::IndexMap;
use serde_json::{Map, Value as Json, json};
use std::fmt::Write;
use std::path::PathBuf;

/// Totals of the tensors of one new type.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    tensors: usize,
    values: usize,
    before: usize,
    after: usize,
}

/// The tensors of a quantised model.
#[derive(Debug)]
pub struct QuantizePlan {
    /// The tensors in the order of the file.
    pub(super) targets: Vec<Target>,
}

/// The result of a quantisation.
#[derive(Debug)]
pub struct Quantized {
    /// What was written.
    pub plan: QuantizePlan,
    /// The file, or its parts.
    pub paths: Vec<PathBuf>,
    /// Seconds it took.
    pub seconds: f64,
}

impl Total {
    fn add(&mut self, target: &Target) {
        self.tensors += 1;
        self.values += target.tensor.shape.iter().product::<usize>();
        self.before += target.tensor.bytes.len();
        self.after += target.bytes();
    }

    fn bits(&self) -> f64 {
        self.after as f64 * 8.0 / self.values.max(1) as f64
    }

    fn json(&self) -> Json {
        let &Self { tensors, values, before, after } = self;
        json!({"tensors": tensors, "parameters": values, "bytes_before": before,
            "bytes_after": after, "bits_per_weight": self.bits()})
    }
}

impl Quantized {
    /// Totals, types, fallbacks and files as JSON.
    pub fn to_json(&self) -> Json {
        let mut json = self.plan.totals_json();
        json["files"] = self.paths.iter().map(|path| path.display().to_string()).collect();
        json["seconds"] = json!(self.seconds);
        json
    }
}

impl QuantizePlan {
    /// Totals, types, fallbacks and each tensor as JSON.
    pub fn to_json(&self) -> Json {
        let mut json = self.totals_json();
        json["plan"] = tensor_list::to_json(self.changes());
        json
    }

    /// Each tensor as a line of a table.
    pub fn tensors_table(&self) -> String {
        tensor_list::to_table(self.changes())
    }

    fn changes(&self) -> impl Iterator<Item = TensorChange<'_>> {
        self.targets.iter().map(|target| TensorChange {
            name: &target.tensor.name,
            shape: &target.tensor.shape,
            from: target.tensor.ty,
            to: target.ty,
            before: target.tensor.bytes.len(),
            after: target.bytes(),
        })
    }

    fn totals_json(&self) -> Json {
        let types = self.types().into_iter().map(|(name, total)| (name.to_owned(), total.json()));
        let fallbacks = self.fallbacks().map(|(target, wanted)| {
            json!({"tensor": target.tensor.name, "wanted": wanted, "used": target.ty.name})
        });
        let mut json = self.total().json();
        json["types"] = Json::Object(types.collect::<Map<_, _>>());
        json["fallbacks"] = fallbacks.collect();
        json
    }

    /// Totals by type as a table.
    pub fn to_table(&self) -> String {
        let mut out =
            String::from("type      tensors    parameters  MiB before  MiB after   bits\n");
        for (name, total) in self.types().into_iter().chain([("all", self.total())]) {
            let Total { tensors, values, before, after } = total;
            let (before, after, bits) = (mib(before), mib(after), total.bits());
            let _ = writeln!(
                out,
                "{name:8} {tensors:8} {values:13} {before:11.1} {after:10.1} {bits:6.2}"
            );
        }
        let mut pairs = IndexMap::<_, usize>::new();
        for (target, wanted) in self.fallbacks() {
            *pairs.entry((wanted, target.ty.name)).or_default() += 1;
        }
        for ((wanted, used), count) in pairs {
            let why = "their rows are not whole blocks";
            let tensors = if count == 1 { "tensor is" } else { "tensors are" };
            let _ = writeln!(out, "{count} {tensors} {used} instead of {wanted}: {why}");
        }
        out
    }

    fn types(&self) -> IndexMap<&'static str, Total> {
        let mut types = IndexMap::<_, Total>::new();
        for target in &self.targets {
            types.entry(target.ty.name).or_default().add(target);
        }
        types.sort_by(|_, a, _, b| b.after.cmp(&a.after));
        types
    }

    fn total(&self) -> Total {
        let mut total = Total::default();
        self.targets.iter().for_each(|target| total.add(target));
        total
    }

    fn fallbacks(&self) -> impl Iterator<Item = (&Target, &'static str)> {
        self.targets.iter().filter_map(|target| Some((target, target.instead_of?.name)))
    }
}
