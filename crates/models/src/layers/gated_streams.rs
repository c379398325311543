//! Gated residual streams (Qwen3.8): what a sublayer reads of several streams, and how its output
//! is added to them.

use super::linear::Linear;
use super::norm::Norm;
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::Slice;
use backend::{Buffer, Gate, HeadColumns, MapOp};
use formats::layers::{GatedStreamsConfig, GatedStreamsSpec};

/// How one sublayer, or the output head, reads and changes the streams.
pub(crate) struct GatedStreams {
    norm: Norm,
    down: Linear,
    up: Linear,
    /// `None` where the streams are read only.
    inject: Option<Linear>,
    work: GatedBuffers,
    streams: usize,
}

/// Workspace shared by all sublayers.
#[derive(Clone, Copy)]
struct GatedBuffers {
    /// `[rows, rank]`.
    low: Buffer,
    /// Gates, and then what passes them: `[rows, streams * hidden]`.
    gated: Buffer,
    /// `[rows, streams]`.
    strengths: Buffer,
    /// Factors as of hyper-connections, `[rows, (2 + streams) * streams]`: the mean of what is
    /// read, strengths of what is written, and streams that stay as they are.
    factors: Buffer,
}

impl GatedStreams {
    /// Loads `name_norm`, `name_down`, `name_up` and, unless streams are read only, `name_inject`.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, spec: &GatedStreamsSpec) -> Result<Self, Error> {
        let GatedStreamsConfig { streams, rank } = spec.streams;
        let (name, all) = (spec.name, streams * loader.hidden());
        let norm_name = format!("{name}_norm");
        let norm = Norm::of_units(loader, &norm_name, (loader.hidden(), spec.eps), 0..all)?;
        let inject = match spec.reads_only {
            true => None,
            false => Some(Linear::load_exact(loader, &format!("{name}_inject"), Slice::Whole)?),
        };
        Ok(Self {
            norm,
            down: Linear::load(loader, &format!("{name}_down"), Slice::Whole)?,
            up: Linear::load(loader, &format!("{name}_up"), Slice::Whole)?,
            inject,
            work: GatedBuffers {
                low: loader.shared("stream_low", rank)?,
                gated: loader.shared("stream_gates", all)?,
                strengths: loader.shared("stream_strengths", streams)?,
                factors: loader.filled("stream_mean", &mean_factors(streams))?,
            },
            streams,
        })
    }

    /// Reads the streams `from` into `out`, `[rows, hidden]`, and computes the strengths of what is
    /// added; `normed` is workspace of the shape of `from`.
    pub fn read(
        &self,
        pass: &mut ForwardPass<'_>,
        [from, normed]: [Buffer; 2],
        out: Buffer,
        rows: usize,
    ) {
        let GatedBuffers { low, gated, strengths, factors } = self.work;
        let share = MapOp::Scale(1.0 / self.streams as f32);
        self.norm.forward(pass, from, normed, rows);
        self.down.forward(pass, normed, low, rows);
        pass.backend.map(share, low, rows);
        pass.backend.map(MapOp::Activate(Gate::Silu), low, rows);
        self.up.forward(pass, low, gated, rows);
        pass.backend.map(MapOp::Gate(Gate::Sigmoid, normed), gated, rows);
        pass.backend.read_streams(gated, factors, out, rows);
        let Some(inject) = &self.inject else { return };
        inject.forward(pass, normed, strengths, rows);
        pass.backend.map(share, strengths, rows);
        pass.backend.map(MapOp::Activate(Gate::Sigmoid), strengths, rows);
        pass.backend.map(MapOp::Scale(2.0), strengths, rows);
        let whole = HeadColumns { buffer: strengths, first: 0, stride: self.streams };
        let stride = (2 + self.streams) * self.streams;
        let written = HeadColumns { buffer: factors, first: self.streams, stride };
        pass.backend.copy_heads(whole, self.streams, written, rows);
    }

    /// Adds `y`, `[rows, hidden]`, to the streams `to` that were read last.
    pub fn add(&self, pass: &mut ForwardPass<'_>, to: Buffer, y: Buffer, rows: usize) {
        pass.backend.write_streams(to, self.work.factors, y, rows);
    }
}

/// The factors of a row before strengths are known.
fn mean_factors(streams: usize) -> Vec<f32> {
    let mean = std::iter::repeat_n(1.0 / streams as f32, streams);
    let kept = (0..streams * streams).map(|at| match at / streams == at % streams {
        true => 1.0,
        false => 0.0,
    });
    mean.chain(std::iter::repeat_n(0.0, streams)).chain(kept).collect()
}
