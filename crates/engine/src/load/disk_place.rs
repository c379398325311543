//! Where the blocks of a runner are in a store: below which root, and what they consist of.

use super::block_root::{adapted_space, block_root, disk_root, of_slice};
use super::cache_bytes::LayerBytes;
use super::runner::Runner;
use super::settings::Settings;
use super::trace_settings::TraceSettings;
use crate::disk::CacheMemory;
use base::Name;
use store::{Keyspace, Layout, Store};

/// Where the blocks of a runner are in a store.
#[derive(Clone, Debug)]
pub struct DiskPlace {
    settings: Settings,
    /// As [`backend::StoredBlocks::fingerprint`].
    machine: Vec<f32>,
    /// Which slice of the layers this rank holds, where there are several.
    slice: Option<usize>,
    layout: Layout,
    /// The part of the cache of sequences with the adapters that the model was loaded with.
    space: [u8; 16],
    about: String,
}

impl DiskPlace {
    /// The place of a runner's blocks.
    ///
    /// # Errors
    ///
    /// Why its blocks cannot be stored.
    pub fn of(runner: &Runner) -> Result<Self, &'static str> {
        let machine = runner.stored()?.fingerprint();
        let LayerBytes { groups, states, own } = runner.layer_bytes();
        let kinds = runner.parts()?.kinds(groups, states);
        let layout = Layout { positions: runner.block(), layers: own.clone(), kinds };
        let settings = TraceSettings::of(runner);
        let about = serde_json::json!({ "model": runner.info().name, "settings": settings });
        let about = format!("{about:#}\n");
        let settings = runner.settings().clone();
        let space = adapted_space([0; 16], runner.adapters());
        let slice = runner.ranks().slice_number();
        Ok(Self { settings, machine, slice, layout, space, about })
    }

    /// The root on disk, where `digest` is that of all bytes of the weights.
    pub fn root(&self, digest: &str) -> Name {
        let root = disk_root(&self.settings, self.layout.positions, digest, &self.machine);
        self.slice.map_or(root, |slice| of_slice(root, slice, &self.layout.layers))
    }

    /// The parent of the first blocks of requests that share the prefix cache with all others and
    /// name no adapters.
    pub fn parent(&self) -> Name {
        block_root(&self.settings, self.layout.positions).in_space(self.space)
    }

    /// What the root stands for, as JSON.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Opens what a store has below the root.
    pub fn open(&self, store: &Store, digest: &str) -> Keyspace {
        store.keyspace(self.root(digest), self.layout.clone(), &self.about)
    }
}
