//! Embeddings of n-grams, which a layer adds to all residual streams (Qwen3.8's per-layer
//! embeddings).
//!
//! Rows of a table follow from the last tokens alone. A convolution along positions follows, whose
//! inputs are rows of the cache.

use super::linear::Linear;
use super::norm::Norm;
use super::operation::{OpPlace, Operation};
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::Slice;
use backend::{Batch, Buffer, LayerCache, MapOp, ShortConv, Table};
use dist::Split;
use formats::layers::{NGRAM_TABLE, NgramHash, NgramSpec};
use std::sync::{Mutex, PoisonError};

/// Workspace of the operation.
#[derive(Clone, Copy, Debug)]
struct NgramBuffers {
    /// Rows of the table: `[rows, width]`.
    embedded: Buffer,
    /// `[rows, streams * hidden]`, before and after the norm.
    keys: [Buffer; 2],
    /// `[rows, hidden]`.
    values: Buffer,
    /// Streams after their norm, then inputs of the convolution: `[rows, streams * hidden]`.
    normed: Buffer,
}

#[derive(Debug)]
pub(crate) struct NgramEmbeddings {
    /// Index of the layer in this rank's cache, and which of its rows are the convolution's.
    place: (usize, usize),
    hash: NgramHash,
    table: Table,
    key: Linear,
    value: Linear,
    key_norm: Norm,
    query_norm: Norm,
    conv_norm: Norm,
    conv: ShortConv,
    work: NgramBuffers,
    cache: LayerCache,
    /// Rows of the table that a batch reads. Kept, so that a step allocates nothing.
    wanted: Mutex<Vec<u32>>,
}

impl NgramEmbeddings {
    /// Loads `ple_embd`, `ple_key`, `ple_value`, `ple_conv1d` and the norms. Every rank has all of
    /// it.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, place: OpPlace, spec: &NgramSpec) -> Result<Self, Error> {
        let (all, eps) = (spec.streams * spec.hidden, spec.eps);
        let weight = dilated(loader, spec)?;
        let mut norm = |name| Norm::of_units(loader, name, (spec.hidden, eps), 0..all);
        let [key_norm, query_norm, conv_norm] =
            [norm("ple_key_norm")?, norm("ple_query_norm")?, norm("ple_conv_norm")?];
        let most = loader.limits.rows * spec.hash.count();
        let mut buffer = |name, width| loader.shared(name, width);
        let work = NgramBuffers {
            embedded: buffer("ngram_rows", spec.width)?,
            keys: [buffer("ngram_keys", all)?, buffer("ngram_keys_normed", all)?],
            values: buffer("ngram_values", spec.hidden)?,
            normed: buffer("ngram_normed", all)?,
        };
        let out = buffer("ngram_convolved", all)?;
        Ok(Self {
            place: (place.of_rank(loader), place.rows),
            hash: spec.hash.clone(),
            table: loader.table(NGRAM_TABLE)?,
            key: Linear::load(loader, "ple_key", Slice::Whole)?,
            value: Linear::load(loader, "ple_value", Slice::Whole)?,
            key_norm,
            query_norm,
            conv_norm,
            conv: ShortConv { silu: true, weight, bias: None, out },
            work,
            cache: spec.cache(),
            wanted: Mutex::new(Vec::with_capacity(most)),
        })
    }

    /// Lists the rows of the table that the batch reads, those of a row of the batch together.
    fn list(&self, batch: &Batch, wanted: &mut Vec<u32>) {
        wanted.clear();
        for sequence in batch.sequences() {
            let before = batch.before(sequence);
            let reach = self.hash.size.min(sequence.position + 1) - 1;
            assert!(before.len() >= reach, "the tokens before a sequence's rows");
            let tokens = &batch.tokens()[sequence.rows.clone()];
            for end in 1..=tokens.len() {
                let own = &tokens[end.saturating_sub(self.hash.size)..end];
                if own.len() == self.hash.size {
                    self.hash.rows(own, wanted);
                    continue;
                }
                let mut last = [0; Batch::MAX_BEFORE + 1];
                let reach = before.len().min(self.hash.size - own.len());
                last[..reach].copy_from_slice(&before[before.len() - reach..]);
                last[reach..reach + own.len()].copy_from_slice(own);
                self.hash.rows(&last[..reach + own.len()], wanted);
            }
        }
    }
}

impl Operation for NgramEmbeddings {
    fn name(&self) -> &'static str {
        "n-gram embeddings"
    }

    fn split(&self) -> Split {
        Split::Whole
    }

    fn cache(&self) -> LayerCache {
        self.cache.clone()
    }

    /// Rows of the table follow from tokens: they are read while earlier layers are computed.
    fn prepare(&self, pass: &mut ForwardPass<'_>) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        self.list(pass.batch, &mut wanted);
        if let Some(tables) = pass.backend.cached_tables() {
            tables.foresee_rows(self.table, &wanted);
        }
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        let NgramBuffers { embedded, keys: [keys, keys_normed], values, normed } = self.work;
        let (rows, (layer, which)) = (pass.rows(), self.place);
        {
            let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            pass.backend.embed(self.table, &wanted, embedded);
        }
        Linear::forward_each(pass, embedded, [(&self.key, keys), (&self.value, values)], rows);
        self.key_norm.forward(pass, keys, keys_normed, rows);
        self.query_norm.forward(pass, x, normed, rows);
        // out: [rows, streams * hidden]
        pass.backend.gate_streams(keys_normed, normed, values, out, rows);
        self.conv_norm.forward(pass, out, normed, rows);
        pass.backend.short_conv(layer, which, normed, &self.conv, pass.batch);
        pass.backend.map(MapOp::Add(self.conv.out), out, rows);
        Ok(())
    }
}

/// The weights of the convolution, `[reach, channels]`, with zeros for the positions that it skips.
fn dilated(loader: &mut Loader<'_>, spec: &NgramSpec) -> Result<backend::Vector, Error> {
    let (kernel, all) = (spec.kernel, spec.streams * spec.hidden);
    let taps = loader.require("ple_conv1d.weight")?.to_f32()?;
    let mut weights = vec![0.0; spec.reach() * all];
    for (tap, row) in weights.chunks_exact_mut(all).step_by(spec.hash.size).enumerate() {
        let of_tap = taps.iter().skip(tap).step_by(kernel);
        row.iter_mut().zip(of_tap).for_each(|(weight, tap)| *weight = *tap);
    }
    Ok(loader.backend.vector(weights))
}
