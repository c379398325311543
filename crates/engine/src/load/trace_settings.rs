//! Settings as text, as traces and folders of stored blocks name them.

use super::cache_rounding::CacheRounding;
use super::identity::is_comparable;
use super::runner::Runner;
use super::settings::Settings;
use backend::{AdapterSet, ScaledAdapter};
use serde::{Deserialize, Serialize};

/// [`Settings`] as text, and sizes that do not matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSettings {
    /// Digest of the checkpoint.
    pub checkpoint: String,
    /// Compute mode.
    pub mode: String,
    /// Storage type of the KV cache.
    pub kv_type: String,
    /// Name of the arithmetic.
    pub arithmetic: String,
    /// What the machine contributes to it, as a name; empty for arithmetic that every CPU has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// [`kernels::ARITHMETIC`] of the version that computed.
    pub arithmetic_version: u32,
    /// Digest of what placement rules change; empty if they change nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub placement: String,
    /// How cached rows are rounded; empty where the model was not trained for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rounding: String,
    /// Digests and scales of the adapters that sequences were computed with; empty without any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub adapters: String,
    /// Number of ranks that hold a slice of each layer.
    #[serde(default = "alone", skip_serializing_if = "is_alone")]
    pub slices: usize,
    /// Threads, which do not matter.
    pub threads: usize,
    /// Positions of a KV block, which do not matter.
    pub block: usize,
    /// Maximum number of prompt tokens of a step, which does not matter.
    pub chunk: usize,
}

impl TraceSettings {
    /// The settings of a runner.
    pub fn of(runner: &Runner) -> Self {
        let Settings { checkpoint, mode, kv_type, arithmetic, placement, rounding, .. } =
            &runner.settings;
        Self {
            checkpoint: checkpoint.clone(),
            mode: mode.name().into(),
            kv_type: kv_type.name().into(),
            arithmetic: arithmetic.clone(),
            machine: runner.machine(),
            arithmetic_version: kernels::ARITHMETIC,
            placement: placement.clone(),
            rounding: rounding.map_or("", CacheRounding::name).into(),
            adapters: adapters_text(runner.adapters()),
            slices: runner.settings.slices,
            threads: runner.threads(),
            block: runner.block(),
            chunk: runner.chunk,
        }
    }

    /// The same for sequences with these adapters.
    pub fn adapted(&self, adapters: &AdapterSet) -> Self {
        Self { adapters: adapters_text(adapters), ..self.clone() }
    }

    /// Whether digests of checkpoints are of one version; others cannot be compared.
    pub fn names_its_checkpoint_as(&self, other: &Self) -> bool {
        is_comparable(&self.checkpoint, &other.checkpoint)
    }

    /// The first setting that decides bits and differs: its name and both values. Checkpoints are
    /// not compared where their digests are of different versions.
    pub fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let versions = [self, other].map(|it| it.arithmetic_version.to_string());
        let slices = [self, other].map(|it| it.slices.to_string());
        let pairs = [
            ("checkpoint", &self.checkpoint, &other.checkpoint),
            ("mode", &self.mode, &other.mode),
            ("kv_type", &self.kv_type, &other.kv_type),
            ("arithmetic", &self.arithmetic, &other.arithmetic),
            ("machine", &self.machine, &other.machine),
            ("arithmetic_version", &versions[0], &versions[1]),
            ("placement", &self.placement, &other.placement),
            ("rounding", &self.rounding, &other.rounding),
            ("adapters", &self.adapters, &other.adapters),
            ("slices", &slices[0], &slices[1]),
        ];
        let counts = |name: &str| name != "checkpoint" || self.names_its_checkpoint_as(other);
        pairs
            .into_iter()
            .find(|(name, a, b)| counts(name) && a != b)
            .map(|(name, a, b)| (name, a.clone(), b.clone()))
    }
}

/// The slices of a model that is not divided.
fn alone() -> usize {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_alone(slices: &usize) -> bool {
    *slices == 1
}

/// The digests of `adapters`, each with its scale.
fn adapters_text(adapters: &AdapterSet) -> String {
    let text = |it: &ScaledAdapter| format!("{}={}", it.adapter.digest(), it.scale);
    adapters.iter().map(text).collect::<Vec<_>>().join(" ")
}
