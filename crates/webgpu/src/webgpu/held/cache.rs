//! Cached rows of all layers.

use crate::gpu::{Gpu, Words};
use crate::wgsl::shared_params;
use backend::{CacheSpec, Error, KvType, RowLayout, Rows};

/// Words of results that wait to be combined.
pub(in crate::webgpu) const PARTIALS: usize = 16 << 20;

/// Largest key of a head, as the CPU's.
const MAX_DIM: usize = kernels::kv::MAX_HEAD_DIM;

/// How the values of a row lie in words, as `shaders/stored.wgsl` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One value to a word.
    F32,
    /// Two values to a word, the first in the low bits.
    Bf16,
    /// As [`Bf16`](Self::Bf16).
    F16,
    /// Four bytes to a word, and after them the scales of every 32 values as BF16, two to a word.
    Q8_0,
}

impl Form {
    pub(in crate::webgpu) fn of(rows: &Rows, ty: KvType) -> Result<Self, Error> {
        let ty = match rows.layout {
            RowLayout::Heads { .. } => rows.ty.unwrap_or(ty),
            RowLayout::Plain(_) => rows.plain_rows(ty).ty,
        };
        match (ty, rows.layout) {
            (KvType::F32, _) => Ok(Self::F32),
            (KvType::Bf16, _) | (KvType::Fp8, RowLayout::Plain(_)) => Ok(Self::Bf16),
            (KvType::F16, _) => Ok(Self::F16),
            (KvType::Q8_0, RowLayout::Heads { .. }) => Ok(Self::Q8_0),
            _ => Err(Error::Device(format!("a KV cache of type {} does not fit", ty.name()))),
        }
    }

    /// Words of a row of `dim` values.
    pub(in crate::webgpu) fn row_words(self, dim: usize) -> usize {
        match self {
            Self::F32 => dim,
            Self::Bf16 | Self::F16 => dim.div_ceil(2),
            Self::Q8_0 => dim.div_ceil(4) + dim.div_ceil(64),
        }
    }
}

/// Rows of one kind of one layer.
pub(crate) struct CachedRows {
    pub rows: Rows,
    pub form: Form,
    /// The group of their blocks.
    pub group: usize,
    /// Positions of a block.
    pub block: usize,
    /// Keys, or plain rows.
    pub words: Words,
    /// Values of heads; `None` where they are part of the keys, and for plain rows.
    pub values: Option<Words>,
}

shared_params! {
    /// Parameters of kernels about plain rows (`shaders/plain_rows.wgsl`).
    struct PlainPlaces {
        /// Group of the block tables.
        group: u32,
        /// Positions of a block.
        block: u32,
        /// Positions to a row.
        every: u32,
        /// Rows of a block.
        places: u32,
        /// Words of a row.
        row_words: u32,
        /// Values of a row.
        dim: u32,
        /// Storage type.
        form: u32,
    }
}

impl CachedRows {
    /// Words of a row.
    pub fn row_words(&self) -> usize {
        self.form.row_words(self.rows.dim)
    }

    /// The parameters of kernels about these rows, which are plain.
    pub fn plain(&self) -> PlainPlaces {
        PlainPlaces {
            group: self.group as u32,
            block: self.block as u32,
            every: self.rows.every as u32,
            places: self.rows.places(self.block) as u32,
            row_words: self.row_words() as u32,
            dim: self.rows.dim as u32,
            form: self.form as u32,
        }
    }
}

/// Rows of all layers.
#[derive(Default)]
pub(crate) struct KvCache {
    /// By layer and number of the rows in it.
    pub(in crate::webgpu) layers: Vec<Vec<CachedRows>>,
    pub(in crate::webgpu) groups: usize,
    pub(in crate::webgpu) bytes: usize,
    /// Space for results of attention that are combined, where there are rows of heads. It is made
    /// with the cache, so that no step lacks memory.
    pub(in crate::webgpu) partials: Option<Words>,
}

impl KvCache {
    /// Allocates zeroed blocks for the rows of `spec`.
    ///
    /// # Errors
    /// If a head is too large, a storage type does not fit, the rows of a layer exceed what a
    /// kernel can see, or there is not enough memory.
    pub fn new(gpu: &mut Gpu, spec: &CacheSpec<'_>) -> Result<Self, Error> {
        let mut bytes = 0;
        let mut made = |rows: &Rows| {
            let made = Self::rows_of(gpu, spec, rows)?;
            bytes += 4 * (made.words.len() + made.values.as_ref().map_or(0, Words::len));
            Ok(made)
        };
        let layers = spec.layers.iter();
        let layers = layers
            .map(|layer| layer.rows.iter().map(&mut made).collect())
            .collect::<Result<_, Error>>()?;
        let mut rows = spec.layers.iter().flat_map(|layer| &layer.rows);
        let heads = rows.any(|rows| matches!(rows.layout, RowLayout::Heads { .. }));
        let partials = heads.then(|| gpu.zeroed(PARTIALS)).transpose()?;
        Ok(Self { layers, groups: spec.groups.len(), bytes, partials })
    }

    pub(in crate::webgpu) fn rows_of(
        gpu: &mut Gpu,
        spec: &CacheSpec<'_>,
        rows: &Rows,
    ) -> Result<CachedRows, Error> {
        let heads = matches!(rows.layout, RowLayout::Heads { .. });
        if rows.dim == 0 || heads && rows.dim > MAX_DIM {
            return Err(Error::HeadSize(rows.dim));
        }
        let (form, group) = (Form::of(rows, spec.ty)?, spec.group_of(rows));
        let blocks = spec.groups[group].blocks;
        let words = block_words(rows, spec.block, form).saturating_mul(blocks);
        if words > gpu.most_bound_words() {
            return Err(Error::Device(format!(
                "expected at most {} MiB of cached keys in a layer, found {} MiB: choose a \
                 smaller --kv-memory or a smaller type",
                gpu.most_bound_words() >> 18,
                words >> 18,
            )));
        }
        let of_values = matches!(rows.layout, RowLayout::Heads { latent: None });
        Ok(CachedRows {
            rows: *rows,
            form,
            group,
            block: spec.block,
            words: gpu.zeroed(words)?,
            values: of_values.then(|| gpu.zeroed(words)).transpose()?,
        })
    }

    /// Returns all memory.
    pub fn free(self, gpu: &mut Gpu) {
        let rows = self.layers.into_iter().flatten();
        let words = rows.flat_map(|rows| [Some(rows.words), rows.values]);
        words.chain([self.partials]).flatten().for_each(|words| gpu.free(words));
    }

    /// Number of groups of blocks.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the space of attention.
    pub fn workspace_bytes(&self) -> usize {
        self.partials.as_ref().map_or(0, |partials| 4 * partials.len())
    }

    /// Rows `which` of `layer`.
    pub fn rows(&self, layer: usize, which: usize) -> &CachedRows {
        &self.layers[layer][which]
    }
}

/// Words of a block of keys, or of plain rows.
pub(in crate::webgpu) fn block_words(rows: &Rows, block: usize, form: Form) -> usize {
    rows.heads * rows.places(block) * form.row_words(rows.dim)
}

/// Bytes of a block of `block` positions, as [`KvCache::new`] allocates them; 0 for types that it
/// refuses.
pub(crate) fn block_bytes(rows: &Rows, block: usize, ty: KvType) -> usize {
    let runs = if matches!(rows.layout, RowLayout::Heads { latent: None }) { 2 } else { 1 };
    Form::of(rows, ty).map_or(0, |form| 4 * runs * block_words(rows, block, form))
}
