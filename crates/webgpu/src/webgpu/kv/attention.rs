//! Attention over rows of heads.
//!
//! Positions form spans of [`SPAN`], aligned to absolute positions. For each row, head and span a
//! kernel computes the largest score, the sum of weights and the weighted values; a second one
//! combines the spans in ascending order. How many vectors a workgroup takes at once, and how many
//! rows or spans are computed before they are combined, changes no bits.

use crate::gpu::{Access, Kernel};
use crate::parts::{EACH, EXP_TO_ONE, MAX_GROUPS, dealt};
use crate::webgpu::held::cache::{CachedRows, Form};
use crate::webgpu::held::device::WebGpu;
use crate::webgpu::held::step::{Places, STEP, StepBatch};
use crate::webgpu::kv::store::STORED;
use crate::wgsl::params;
use backend::{AttentionSpec, Buffer, Error, Window};
use std::ops::Range;

/// Positions of a span, as in `shaders/spans.wgsl`.
const SPAN: usize = 512;
/// Results of each row and head that are combined so far, where not all spans fit: what is
/// read, and what is written.
const CARRIED: usize = 2;
const SPANS: &str = include_str!("../../shaders/spans.wgsl");

/// The kernel of a form, with at most `$vectors` query vectors of `128 * $columns` values.
macro_rules! attend {
    ($form:literal, $per_word:literal, $vectors:literal, $columns:literal) => {
        Kernel {
            name: concat!("attend_", $form, "_", $vectors, "_", $columns),
            source: &[
                concat!("const FORM = ", $form, "u;\nconst PER_WORD = ", $per_word, "u;\n"),
                concat!("const VECTORS = ", $vectors, "u;\nconst COLUMNS = ", $columns, "u;\n"),
                AttendParams::WGSL,
                include_str!("../../shaders/attend.wgsl"),
                SPANS,
                Places::WGSL,
                STEP,
                STORED,
                EXP_TO_ONE,
            ],
            bindings: &[
                Access::Read,
                Access::Read,
                Access::Write,
                Access::Write,
                Access::Write,
                Access::Write,
            ],
        }
    };
}

/// The kernels of a form, in the order of [`SHAPES`].
macro_rules! shapes {
    ($form:literal, $per_word:literal) => {
        [
            attend!($form, $per_word, 4, 1),
            attend!($form, $per_word, 8, 1),
            attend!($form, $per_word, 16, 1),
            attend!($form, $per_word, 4, 2),
            attend!($form, $per_word, 8, 2),
            attend!($form, $per_word, 4, 5),
        ]
    };
}

/// Kernels by form and shape.
static ATTEND: [[Kernel; 6]; 4] = [shapes!(0, 1), shapes!(1, 2), shapes!(2, 2), shapes!(3, 4)];

/// Most vectors and values of a vector.
const SHAPES: [(usize, usize); 6] = [(4, 128), (8, 128), (16, 128), (4, 256), (8, 256), (4, 640)];

static COMBINE: Kernel = Kernel {
    name: "combine_spans",
    source: &[
        CombineParams::WGSL,
        include_str!("../../shaders/combine_spans.wgsl"),
        SPANS,
        Places::WGSL,
        STEP,
        EXP_TO_ONE,
        EACH,
    ],
    bindings: &[Access::Read, Access::Read, Access::Write, Access::Write],
};

params! {
    struct AttendParams {
        places: Places,
        /// Number of tiles, and where they begin in the inbox: first vector and number of vectors
        /// each.
        tiles: u32,
        tiles_at: u32,
        /// Row of the first partial results, and spans of each row, from the first on that it sees.
        first_row: u32,
        first_span: u32,
        last_span: u32,
        /// Results for which each row and head has space.
        space: u32,
        heads: u32,
        kv_heads: u32,
        dim: u32,
        value_dim: u32,
        row_words: u32,
        group: u32,
        block: u32,
        window: u32,
        is_chunk: u32,
        first_position: u32,
        scale: f32,
    }
}

params! {
    struct CombineParams {
        places: Places,
        count: u32,
        first_row: u32,
        first_span: u32,
        last_span: u32,
        /// Results for which each row and head has space. Where there are more spans, the last two
        /// are what is combined so far: read and written, one after the other.
        space: u32,
        heads: u32,
        value_dim: u32,
        window: u32,
        is_chunk: u32,
        first_position: u32,
        has_sinks: u32,
    }
}

/// What is combined at once.
struct Piece {
    rows: Range<usize>,
    /// Spans, from the first on that a row sees something of.
    spans: Range<usize>,
    /// Results for which each row and head has space.
    space: usize,
}

/// Rows and positions of the batch as the host knows them.
struct Seen<'a> {
    step: &'a StepBatch,
    window: Window,
}

impl Seen<'_> {
    /// The spans that a row at `position` sees something of.
    fn spans(&self, position: usize) -> Range<usize> {
        let first = self.window.first_seen(position);
        first / SPAN..position / SPAN + 1
    }

    /// The rows from `start` on that have space for `most` results, and the most spans of a row.
    fn rows(&self, start: usize, most: usize) -> (Range<usize>, usize) {
        let (mut rows, mut spans) = (start..start, 1);
        for row in start..self.step.places().rows as usize {
            let longest = spans.max(self.spans(self.step.row(row).0).len());
            if row > start && (row + 1 - start) * longest > most {
                break;
            }
            (rows.end, spans) = (row + 1, longest);
        }
        (rows, spans)
    }

    /// The rows of the piece by sequence.
    fn runs(&self, piece: &Piece) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for row in piece.rows.clone() {
            match runs.last_mut() {
                Some(run) if self.step.row(run.start).1 == self.step.row(row).1 => {
                    run.end = row + 1;
                }
                _ => runs.push(row..row + 1),
            }
        }
        runs
    }

    /// First vector and number of vectors of each tile of up to `most`, and the most spans of one;
    /// a row has `ratio` vectors.
    fn tiles(&self, runs: &[Range<usize>], ratio: usize, most: usize) -> (Vec<u32>, usize) {
        let (mut tiles, mut depth) = (Vec::new(), 1);
        for run in runs {
            let vectors = run.start * ratio..run.end * ratio;
            for first in vectors.clone().step_by(most) {
                let count = most.min(vectors.end - first);
                tiles.extend([first as u32, count as u32]);
                let spans = |vector: usize| self.spans(self.step.row(vector / ratio).0);
                depth = depth.max(spans(first + count - 1).end - spans(first).start);
            }
        }
        (tiles, depth)
    }
}

/// The kernel for keys of `dim` values and tiles of up to `vectors` vectors, and its most vectors.
fn kernel(form: Form, dim: usize, vectors: usize) -> (&'static Kernel, usize) {
    let mut chosen = None;
    for (kernel, (most, width)) in ATTEND[form as usize].iter().zip(SHAPES) {
        // Of the shortest that are long enough, the first with space for all vectors.
        let better = chosen.is_none_or(|(_, before, len)| width == len && before < vectors);
        if width >= dim && better {
            chosen = Some((kernel, most, width));
        }
    }
    let (kernel, most, _) = chosen.expect("a head size that was checked with the cache");
    (kernel, most)
}

impl WebGpu {
    /// Attention of the batch's queries `q`, `[rows, heads * key]`, over the first rows of `layer`;
    /// `out` is `[rows, heads * value]`.
    ///
    /// # Errors
    /// If there is no space for results of all heads.
    pub(crate) fn attend(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &AttentionSpec,
    ) -> Result<(), Error> {
        let len = self.kv.rows(layer, 0).rows.value_dim() + 2;
        let words = self.kv.workspace_bytes() / 4;
        let most = words / (len * spec.heads);
        if most <= CARRIED {
            return Err(Error::Device(format!("{} heads are too many", spec.heads)));
        }
        let (all, mut start) = (self.step.places().rows as usize, 0);
        while start < all {
            let seen = Seen { step: &self.step, window: spec.window };
            let (rows, spans) = seen.rows(start, most);
            start = rows.end;
            let (at_once, space) =
                if rows.len() * spans <= most { (spans, spans) } else { (most - CARRIED, most) };
            for first in (0..spans).step_by(at_once) {
                let spans = first..spans.min(first + at_once);
                let piece = Piece { rows: rows.clone(), spans, space };
                self.attend_piece(layer, q, spec, &piece);
                self.combine_piece(layer, out, spec, &piece);
            }
        }
        Ok(())
    }

    fn attend_piece(&mut self, layer: usize, q: Buffer, spec: &AttentionSpec, piece: &Piece) {
        let partials = self.kv.partials.as_ref().expect("space for rows of heads");
        let seen = Seen { step: &self.step, window: spec.window };
        let cached = self.kv.rows(layer, 0);
        let CachedRows { rows, form, group, block, .. } = cached;
        let (ratio, runs) = (spec.heads / rows.heads, seen.runs(piece));
        let longest = runs.iter().map(|run| run.len() * ratio).max().unwrap_or(0);
        let (kernel, most) = kernel(*form, rows.dim, longest);
        let (tiles, depth) = seen.tiles(&runs, ratio, most);
        let count = tiles.len() / 2;
        // Tiles of several rows may reach over more spans than each row does.
        let depth = if piece.rows.len() == 1 { piece.spans.len() } else { depth };
        let params = AttendParams {
            places: self.step.places(),
            tiles: count as u32,
            tiles_at: self.gpu.send(&tiles),
            first_row: piece.rows.start as u32,
            first_span: piece.spans.start as u32,
            last_span: piece.spans.end as u32,
            space: piece.space as u32,
            heads: spec.heads as u32,
            kv_heads: rows.heads as u32,
            dim: rows.dim as u32,
            value_dim: rows.value_dim() as u32,
            row_words: cached.row_words() as u32,
            group: *group as u32,
            block: *block as u32,
            window: window(spec),
            is_chunk: u32::from(spec.window.is_chunk),
            first_position: first_position(spec),
            scale: spec.scale,
        };
        let values = cached.values.as_ref().unwrap_or(&cached.words);
        let (batch, inbox, q) = (self.step.words(), self.gpu.inbox(), &self.buffers[q.0].words);
        let bound = [batch, &inbox, q, &cached.words, values, partials];
        self.gpu.run(kernel, [count.min(MAX_GROUPS), rows.heads, depth], &bound, &params);
    }

    fn combine_piece(&mut self, layer: usize, out: Buffer, spec: &AttentionSpec, piece: &Piece) {
        let partials = self.kv.partials.as_ref().expect("space for rows of heads");
        let value_dim = self.kv.rows(layer, 0).rows.value_dim();
        let count = piece.rows.len() * spec.heads * value_dim;
        let params = CombineParams {
            places: self.step.places(),
            count: count as u32,
            first_row: piece.rows.start as u32,
            first_span: piece.spans.start as u32,
            last_span: piece.spans.end as u32,
            space: piece.space as u32,
            heads: spec.heads as u32,
            value_dim: value_dim as u32,
            window: window(spec),
            is_chunk: u32::from(spec.window.is_chunk),
            first_position: first_position(spec),
            has_sinks: u32::from(spec.sinks.is_some()),
        };
        let inbox = self.gpu.inbox();
        let sinks = spec.sinks.map_or(&inbox, |sinks| &self.vectors[sinks.0]);
        let bound = [self.step.words(), sinks, partials, &self.buffers[out.0].words];
        self.gpu.run(&COMBINE, dealt(count), &bound, &params);
    }
}

/// The first position that has a row as kernels take it.
fn first_position(spec: &AttentionSpec) -> u32 {
    spec.window.first.min(u32::MAX as usize) as u32
}

/// The window as kernels take it.
fn window(spec: &AttentionSpec) -> u32 {
    spec.window.positions.clamp(1, u32::MAX as usize) as u32
}
