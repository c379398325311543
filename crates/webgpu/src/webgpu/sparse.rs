//! Compressed rows, their choice, and attention over plain rows.
//!
//! Scores of many rows of the batch lie in a workspace of limited size, so rows are computed in
//! passes. What a row computes does not depend on its pass.

use crate::gpu::{Access, Kernel, Words};
use crate::parts::{EXP_TO_ONE, LANES, workgroups};
use crate::webgpu::held::cache::{CachedRows, KvCache, PlainPlaces};
use crate::webgpu::held::device::WebGpu;
use crate::webgpu::held::rotation::Rotation;
use crate::webgpu::held::selections::Choice;
use crate::webgpu::held::step::{Places, STEP};
use crate::webgpu::kv::{PLAIN_ROWS, ROUNDING, STORED, codes};
use crate::wgsl::params;
use backend::{
    Batch, Buffer, CacheSpec, Compression, Error, IndexSpec, Pairs, RowAttention, RowLayout,
};
use std::ops::Range;

/// Words of the inbox that rows to be compressed take at a time.
const LISTED: usize = 1 << 18;
/// Most values of a compressed row, as in `shaders/compress.wgsl`.
const MAX_COMPRESSED: usize = 2048;
/// Rows and columns of a tile of products (`shaders/tile.wgsl`).
const TILE: usize = 32;

/// Source of products of tiles.
const TILES: &str = include_str!("../shaders/tile.wgsl");
/// Source of what rows attend to.
const ENTRIES: &str = include_str!("../shaders/entries.wgsl");

static COMPRESS: Kernel = Kernel {
    name: "compress",
    source: &[
        CompressParams::WGSL,
        include_str!("../shaders/compress.wgsl"),
        Places::WGSL,
        STEP,
        STORED,
        PlainPlaces::WGSL,
        PLAIN_ROWS,
        ROUNDING,
        EXP_TO_ONE,
        LANES,
    ],
    bindings: &[
        Access::Read,
        Access::Write,
        Access::Write,
        Access::Write,
        Access::Read,
        Access::Read,
        Access::Read,
    ],
};
static INDEX_SCORES: Kernel = Kernel {
    name: "index_scores",
    source: &[
        IndexParams::WGSL,
        include_str!("../shaders/index_scores.wgsl"),
        TILES,
        Places::WGSL,
        STEP,
        STORED,
        PlainPlaces::WGSL,
        PLAIN_ROWS,
    ],
    bindings: &[Access::Read, Access::Write, Access::Write, Access::Write, Access::Write],
};
static CHOOSE: Kernel = Kernel {
    name: "choose",
    source: &[ChooseParams::WGSL, include_str!("../shaders/choose.wgsl"), Places::WGSL, STEP],
    bindings: &[Access::Read, Access::Write, Access::Write],
};
static ROW_SCORES: Kernel = Kernel {
    name: "row_scores",
    source: &[
        include_str!("../shaders/row_scores.wgsl"),
        EntryParams::WGSL,
        ENTRIES,
        TILES,
        Places::WGSL,
        STEP,
        STORED,
        PlainPlaces::WGSL,
        PLAIN_ROWS,
    ],
    bindings: &ENTRY_BINDINGS,
};
static ROW_SOFTMAX: Kernel = Kernel {
    name: "row_softmax",
    source: &[
        include_str!("../shaders/row_softmax.wgsl"),
        EntryParams::WGSL,
        ENTRIES,
        EXP_TO_ONE,
        LANES,
        Places::WGSL,
        STEP,
        STORED,
        PlainPlaces::WGSL,
        PLAIN_ROWS,
    ],
    bindings: &[
        Access::Read,
        Access::Write,
        Access::Write,
        Access::Write,
        Access::Write,
        Access::Read,
    ],
};
static ROW_VALUES: Kernel = Kernel {
    name: "row_values",
    source: &[
        include_str!("../shaders/row_values.wgsl"),
        EntryParams::WGSL,
        ENTRIES,
        TILES,
        Places::WGSL,
        STEP,
        STORED,
        PlainPlaces::WGSL,
        PLAIN_ROWS,
    ],
    bindings: &ENTRY_BINDINGS,
};
const ENTRY_BINDINGS: [Access; 6] =
    [Access::Read, Access::Write, Access::Write, Access::Write, Access::Write, Access::Write];

params! {
    struct CompressParams {
        places: Places,
        /// Values and gates of positions.
        pooled: PlainPlaces,
        out: PlainPlaces,
        /// The rows, in the inbox: sequence, number, cosines and sines of each.
        list_at: u32,
        count: u32,
        overlap: u32,
        /// Whether positions have gates, and rows a norm.
        gated: u32,
        normed: u32,
        /// The first value that is rotated.
        rotated: u32,
        pairs: u32,
        interleaved: u32,
        eps: f32,
        /// Values that are rounded, their kind of codes, and whether they are transformed before.
        rounded: u32,
        kind: u32,
        transform: u32,
        factor: f32,
    }
}

params! {
    struct IndexParams {
        places: Places,
        cached: PlainPlaces,
        /// Rows of the batch, and words of scores of each.
        first: u32,
        rows: u32,
        stride: u32,
        heads: u32,
        top: u32,
        /// The first position that has a row.
        first_position: u32,
    }
}

params! {
    struct ChooseParams {
        places: Places,
        every: u32,
        first: u32,
        rows: u32,
        stride: u32,
        top: u32,
        /// Rows of a run, whether the run with the query's own position is not chosen among, and
        /// last runs that are chosen.
        run: u32,
        own: u32,
        last: u32,
        /// The first position that has a row.
        first_position: u32,
    }
}

params! {
    struct EntryParams {
        places: Places,
        compressed: PlainPlaces,
        window: PlainPlaces,
        /// Positions that the window has, and the first position that has a row.
        seen: u32,
        first_position: u32,
        /// Runs of compressed rows beyond which the chosen are listed; 0 if there are none, else as
        /// many as are complete where none are chosen. Rows of a run.
        limit: u32,
        run: u32,
        /// Whether the run with the query's own position is not chosen among.
        own: u32,
        heads: u32,
        scale: f32,
        first: u32,
        rows: u32,
        stride: u32,
        /// Whether heads have sinks.
        sinks: u32,
    }
}

fn unsupported(what: &str) -> Error {
    Error::Device(format!("device wgpu: {what} are not supported"))
}

/// The passes over `rows` rows with `stride` scores each, where there is space for `scores`.
fn passes(rows: usize, stride: usize, scores: usize) -> impl Iterator<Item = Range<usize>> {
    let most = (scores / stride.max(1)).max(1);
    (0..rows).step_by(most).map(move |first| first..(first + most).min(rows))
}

/// The last position of a batch, which sees most rows.
fn last_position(batch: &Batch) -> usize {
    batch.positions().iter().copied().max().unwrap_or(0) as usize
}

impl WebGpu {
    /// Computes and stores the compressed rows that the positions of the batch complete.
    pub(crate) fn compress_rows(&mut self, layer: usize, spec: &Compression, batch: &Batch) {
        let params = match self.compress_params(layer, spec) {
            Ok(params) => params,
            Err(error) => return self.note(Err(error)),
        };
        let every = self.kv.rows(layer, spec.out).rows.every;
        let mut complete = Vec::new();
        for (index, sequence) in batch.sequences().iter().enumerate() {
            let end = sequence.end();
            let numbers = sequence.position / every..end / every;
            complete.extend(numbers.map(|number| (index, number)));
        }
        let inbox = self.gpu.inbox();
        // What is missing is not read: something takes its place.
        let (gates, bias) = spec.gates.unzip();
        let weights = spec.norm.map(|(weights, _)| weights);
        let Some(any) = bias.or(weights) else {
            return self.note(Err(unsupported("rows without gates and without a norm")));
        };
        for listed in complete.chunks((LISTED / self.listed_words(spec)).max(1)) {
            let list = self.listed(spec, every, listed);
            let list_at = self.gpu.send(&list);
            let params = CompressParams { list_at, count: listed.len() as u32, ..params };
            let cached = |which| &self.kv.rows(layer, which).words;
            let bound = [
                self.step.words(),
                cached(spec.values),
                cached(gates.unwrap_or(spec.values)),
                cached(spec.out),
                &inbox,
                &self.vectors[bias.unwrap_or(any).0],
                &self.vectors[weights.unwrap_or(any).0],
            ];
            self.gpu.run(&COMPRESS, workgroups(listed.len()), &bound, &params);
        }
    }

    /// Words that tell a kernel about a compressed row.
    fn listed_words(&self, spec: &Compression) -> usize {
        2 + 2 * spec.rope.map_or(0, |(rope, _)| self.ropes[rope.0].frequencies.len())
    }

    /// Sequence, number, cosines and sines of each row.
    fn listed(&self, spec: &Compression, every: usize, rows: &[(usize, usize)]) -> Vec<u32> {
        let Some(Rotation { frequencies, magnitude, .. }) =
            spec.rope.map(|(rope, _)| &self.ropes[rope.0])
        else {
            return rows.iter().flat_map(|&(of, number)| [of as u32, number as u32]).collect();
        };
        let mut angles = vec![0.0; 2 * frequencies.len()];
        let mut list = Vec::with_capacity(rows.len() * self.listed_words(spec));
        for &(sequence, number) in rows {
            let (cos, sin) = angles.split_at_mut(frequencies.len());
            kernels::rope::angles(
                (number * every) as u32,
                frequencies,
                magnitude.at((number * every) as u32),
                cos,
                sin,
            );
            list.extend([sequence as u32, number as u32]);
            list.extend(angles.iter().map(|value| value.to_bits()));
        }
        list
    }

    /// Parameters of the kernel of compressed rows, except which they are.
    fn compress_params(&self, layer: usize, spec: &Compression) -> Result<CompressParams, Error> {
        let gates = spec.gates.map_or(spec.values, |(gates, _)| gates);
        let [values, gates, out] =
            [spec.values, gates, spec.out].map(|which| self.kv.rows(layer, which));
        let rotation = spec.rope.map(|(rope, _)| &self.ropes[rope.0]);
        let pairs = rotation.map_or(0, |rotation| rotation.frequencies.len());
        let interleaved = rotation.is_some_and(|rotation| rotation.pairs == Pairs::Interleaved);
        let rotated = spec.rope.map_or(0, |(_, first)| first);
        let RowLayout::Plain(rounding) = out.rows.layout else {
            return Err(unsupported("compressed rows of heads"));
        };
        if bytemuck::bytes_of(&values.plain()) != bytemuck::bytes_of(&gates.plain()) {
            return Err(unsupported("values and gates of different layouts"));
        }
        if rotated + 2 * pairs > out.rows.dim
            || out.rows.dim > MAX_COMPRESSED
            || !rounding.fits(out.rows.dim)
        {
            return Err(unsupported("compressed rows of this size, rotation and rounding"));
        }
        let (rounded, kind, factor) = codes(rounding, out.rows.dim);
        Ok(CompressParams {
            places: self.step.places(),
            pooled: values.plain(),
            out: out.plain(),
            list_at: 0,
            count: 0,
            overlap: u32::from(spec.overlap),
            gated: u32::from(spec.gates.is_some()),
            normed: u32::from(spec.norm.is_some()),
            rotated: rotated as u32,
            pairs: pairs as u32,
            interleaved: u32::from(interleaved),
            eps: spec.norm.map_or(0.0, |(_, eps)| eps),
            rounded: rounded as u32,
            kind,
            transform: u32::from(factor.is_some()),
            factor: factor.unwrap_or(1.0),
        })
    }

    /// Makes space for the choice of up to `top` rows for each of `rows` rows.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn new_choice(&mut self, rows: usize, top: usize) -> Result<usize, Error> {
        let numbers = self.workspace(rows.saturating_mul(top))?;
        self.selections.push(Choice { top, numbers });
        Ok(self.selections.len() - 1)
    }

    /// Makes the workspace of scores where layers have compressed rows, so that no step lacks it.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn reserve_scores(&mut self, spec: &CacheSpec<'_>) -> Result<(), Error> {
        let mut rows = spec.layers.iter().flat_map(|layer| &layer.rows);
        if rows.any(|rows| rows.every > 1) {
            self.scores(0)?;
        }
        Ok(())
    }

    /// The workspace of scores of a pass, `stride` of a row.
    fn scores(&mut self, stride: usize) -> Result<Words, Error> {
        if let Some(scores) = &self.sparse.scores
            && scores.len() >= stride
        {
            return Ok(scores.clone());
        }
        if let Some(scores) = self.sparse.scores.take() {
            self.gpu.free(scores);
        }
        let scores = self.gpu.zeroed(stride.max(self.sparse.most))?;
        self.sparse.scores = Some(scores.clone());
        Ok(scores)
    }

    /// Chooses the compressed rows that each row of the batch attends to: `q` is
    /// `[rows, heads * dim]`, `weights` `[rows, heads]`.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn choose_rows(
        &mut self,
        layer: usize,
        q: Buffer,
        weights: Buffer,
        spec: &IndexSpec,
        batch: &Batch,
    ) -> Result<(), Error> {
        let (cached, top) = (self.kv.rows(layer, spec.rows), self.selections[spec.selection.0].top);
        let stride = cached.rows.complete(last_position(batch));
        if spec.runs.candidates(stride) <= top {
            return Ok(());
        }
        let scores = self.scores(stride)?;
        let (places, cached) = (self.step.places(), self.kv.rows(layer, spec.rows));
        let numbers = &self.selections[spec.selection.0].numbers;
        let [q, weights] = [q, weights].map(|buffer| &self.buffers[buffer.0].words);
        let scored = [self.step.words(), &cached.words, q, weights, &scores];
        let chosen = [self.step.words(), &scores, numbers];
        for pass in passes(batch.rows(), stride, scores.len()) {
            let [first, rows, stride, top] =
                [pass.start, pass.len(), stride, top].map(|value| value as u32);
            let (heads, every) = (spec.heads as u32, cached.rows.every as u32);
            let cached = cached.plain();
            let first_position = spec.first as u32;
            let params =
                IndexParams { places, cached, first, rows, stride, heads, top, first_position };
            let tiles = pass.len() * (stride as usize).div_ceil(TILE);
            self.gpu.run(&INDEX_SCORES, workgroups(tiles), &scored, &params);
            let [run, last] = [spec.runs.len, spec.last].map(|value| value as u32);
            let own = u32::from(spec.runs.own);
            let params = ChooseParams {
                places,
                every,
                first,
                rows,
                stride,
                top,
                run,
                own,
                last,
                first_position,
            };
            self.gpu.run(&CHOOSE, workgroups(pass.len()), &chosen, &params);
        }
        Ok(())
    }

    /// Attention of all heads over compressed rows, all or the chosen, then the rows of the
    /// window: `q` and `out` are `[rows, heads * dim]`.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn attend_plain(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &RowAttention,
        batch: &Batch,
    ) -> Result<(), Error> {
        let params = self.entry_params(layer, spec, batch);
        let (heads, stride) = (spec.heads, params.stride as usize);
        let scores = self.scores(heads * stride)?;
        let [compressed, window] = attended(&self.kv, layer, spec);
        let numbers = spec.selection.map(|selection| &self.selections[selection.0].numbers);
        let sinks = spec.sinks.map(|sinks| &self.vectors[sinks.0]);
        let bound = |last| {
            let numbers = numbers.unwrap_or(&window.words);
            [self.step.words(), &compressed.words, &window.words, numbers, &scores, last]
        };
        let (q, out) = (&self.buffers[q.0].words, &self.buffers[out.0].words);
        let (scored, weighed) = (bound(q), bound(out));
        // A kernel without sinks is given something that it only reads elsewhere too.
        let softened = bound(sinks.unwrap_or(self.step.words()));
        for pass in passes(batch.rows(), heads * stride, scores.len()) {
            let params =
                EntryParams { first: pass.start as u32, rows: pass.len() as u32, ..params };
            let tiles = pass.len() * heads.div_ceil(TILE);
            let over_entries = workgroups(tiles * stride.div_ceil(TILE));
            self.gpu.run(&ROW_SCORES, over_entries, &scored, &params);
            self.gpu.run(&ROW_SOFTMAX, workgroups(pass.len() * heads), &softened, &params);
            let over_channels = workgroups(tiles * window.rows.dim.div_ceil(TILE));
            self.gpu.run(&ROW_VALUES, over_channels, &weighed, &params);
        }
        Ok(())
    }

    /// Parameters of the kernels of attention, except the rows of a pass.
    fn entry_params(&self, layer: usize, spec: &RowAttention, batch: &Batch) -> EntryParams {
        let [compressed, window] = attended(&self.kv, layer, spec);
        let last = last_position(batch);
        let seen = spec.window.map_or(0, |_| window.rows.window.unwrap_or(usize::MAX));
        let limit = match (spec.compressed, spec.selection) {
            (None, _) => 0,
            (_, Some(selection)) => self.selections[selection.0].top,
            (_, None) => usize::MAX,
        };
        let complete = spec.compressed.map_or(0, |_| compressed.rows.complete(last));
        // A row of fewer runs has them all, and up to a run of rows after them.
        let most = limit.saturating_add(1).saturating_mul(spec.runs.len);
        let word = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        EntryParams {
            places: self.step.places(),
            compressed: compressed.plain(),
            window: window.plain(),
            seen: word(seen),
            first_position: word(spec.first),
            limit: word(limit),
            heads: word(spec.heads),
            scale: spec.scale,
            first: 0,
            rows: 0,
            stride: word(complete.min(most) + seen.min(last + 1)),
            sinks: u32::from(spec.sinks.is_some()),
            run: word(spec.runs.len),
            own: u32::from(spec.runs.own),
        }
    }
}

/// Rows that are chosen among, and rows of the window; the same rows twice where the layer has only
/// one kind.
fn attended<'a>(kv: &'a KvCache, layer: usize, spec: &RowAttention) -> [&'a CachedRows; 2] {
    let rows = |which: Option<usize>| which.map(|which| kv.rows(layer, which));
    let (compressed, window) = (rows(spec.compressed), rows(spec.window));
    [compressed.or(window), window.or(compressed)].map(|rows| rows.expect("rows to attend to"))
}

#[cfg(test)]
mod tests;
