//! The header of a trace of routes.

use serde::{Deserialize, Serialize};

/// Version of the format.
pub(crate) const VERSION: u32 = 1;
/// Most layers, and experts of a layer.
const MAX_COUNT: usize = 1 << 16;
/// Most experts of all layers.
const MAX_EXPERTS: usize = 1 << 22;
/// Most bytes of an expert. Sums over all experts, and over all entries, do not overflow.
const MAX_BYTES: u64 = 1 << 36;

/// The model of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteHeader {
    /// Version of the format.
    pub gannet_routes: u32,
    /// Digest of the checkpoint.
    pub checkpoint: String,
    /// Name of the model.
    pub model: String,
    /// Numbers of the layers that have experts, ascending.
    pub layers: Vec<u32>,
    /// Experts of a layer.
    pub experts: u32,
    /// Experts that a row chooses in a layer.
    pub chosen: u32,
    /// Bytes of an expert of each layer in memory.
    pub slot_bytes: Vec<u64>,
    /// Bytes of an expert of each layer that are read from disk.
    pub read_bytes: Vec<u64>,
}

impl RouteHeader {
    /// Checks that the numbers agree with each other, or says what is wrong.
    ///
    /// # Errors
    /// If a field differs.
    pub fn check(&self) -> Result<(), String> {
        let expected = |what: &str, expected: String, found: String| {
            Err(format!("{what}: expected {expected}, found {found}"))
        };
        if self.gannet_routes != VERSION {
            let found = self.gannet_routes.to_string();
            return expected("gannet_routes", VERSION.to_string(), found);
        }
        let layers = self.layers.len();
        if !(1..=MAX_COUNT).contains(&layers) || !self.layers.is_sorted_by(|a, b| a < b) {
            return expected("layers", "ascending numbers".into(), format!("{layers}"));
        }
        if !(1..=MAX_COUNT as u32).contains(&self.experts) {
            return expected("experts", format!("1 to {MAX_COUNT}"), self.experts.to_string());
        }
        if layers * self.experts as usize > MAX_EXPERTS {
            let found = (layers * self.experts as usize).to_string();
            return expected("experts", format!("at most {MAX_EXPERTS} in all layers"), found);
        }
        if !(1..=self.experts).contains(&self.chosen) {
            return expected("chosen", format!("1 to {}", self.experts), self.chosen.to_string());
        }
        for (name, bytes) in [("slot_bytes", &self.slot_bytes), ("read_bytes", &self.read_bytes)] {
            let is_size = |bytes: &u64| (1..=MAX_BYTES).contains(bytes);
            if bytes.len() != layers || !bytes.iter().all(is_size) {
                return expected(name, format!("{layers} sizes"), format!("{}", bytes.len()));
            }
        }
        Ok(())
    }
}
