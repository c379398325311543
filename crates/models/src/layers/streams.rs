//! The residual stream, or streams: hyper-connections (mHC; DeepSeek V4) keep several, from which a
//! sublayer reads a mixture and into which its output is mixed; gated streams (Qwen3.8) are read
//! and added to without mixing.

use super::gated_streams::GatedStreams;
use super::linear::Linear;
use super::norm::Norm;
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::Slice;
use backend::{Buffer, HyperSpec, MapOp, StreamFactors};
use dist::Split;
use formats::layers::HyperConfig;
use formats::layers::{HeadSpec, Mixing, MixtureSpec, StreamSpec};

/// What sublayers read from and add to.
pub(crate) struct Residual {
    /// The stream, or the mixture of several that a sublayer reads: `[rows, hidden]`.
    x: Buffer,
    /// The streams, where there are several.
    several: Option<Streams>,
}

/// Several streams.
struct Streams {
    /// `[rows, streams * hidden]`.
    streams: Buffer,
    /// Streams after their norm: `[rows, streams * hidden]`.
    normed: Buffer,
    /// Streams of the rows that the output head reads: `[rows, streams * hidden]`.
    gathered: Buffer,
    /// Norm of all streams together, without weights.
    norm: Norm,
    /// What the output head reads, on the last stage.
    head: Option<Collapsed>,
    /// What is added to all streams: `[rows, streams * hidden]`.
    added: Buffer,
}

/// How an output head reads the streams.
pub(crate) enum Collapsed {
    Mixture(Mixture),
    Gated(GatedStreams),
    /// Their mean: a buffer `[rows, streams]` of equal factors.
    Mean(Buffer),
}

/// The stream that a sublayer reads, and is added to.
pub(crate) enum Stream {
    /// One, to which the output is added times a factor.
    One {
        scale: f32,
    },
    Several(Mixture),
    /// Several, which are read through gates and added to.
    Gated(GatedStreams),
    /// Several, all of which are read and added to.
    All,
    /// One that is added to; pairs of an embedding and a state are read: `[rows, 2 * hidden]`.
    Pair(Buffer),
}

/// Name of the workspace of pairs of an embedding and a state.
pub(super) const PAIR: &str = "draft_pair";

impl Stream {
    /// Loads the mixture of a sublayer, where there are several streams.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, spec: &StreamSpec) -> Result<Self, Error> {
        match spec {
            StreamSpec::One { scale } => Ok(Self::One { scale: *scale }),
            StreamSpec::Several(mixture) => Mixture::load(loader, mixture).map(Self::Several),
            StreamSpec::Gated(gated) => GatedStreams::load(loader, gated).map(Self::Gated),
            StreamSpec::All => Ok(Self::All),
            StreamSpec::Pair => loader.shared(PAIR, 2 * loader.hidden()).map(Self::Pair),
        }
    }
}

/// How one sublayer mixes the streams.
pub(crate) struct Mixture {
    /// `[products, streams * hidden]`.
    products: Linear,
    /// `[rows, products]`, and the factors that are made of them, `[rows, factors]`.
    z: Buffer,
    factors: Buffer,
    spec: HyperSpec,
}

impl Mixture {
    /// Loads `name_fn`, `name_base` and `name_scale`. The head has factors of what is read only.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, spec: &MixtureSpec) -> Result<Self, Error> {
        let HyperConfig { streams, iterations, eps, magnitude } = spec.streams;
        let (name, products) = (spec.name, spec.products());
        let weight = loader.exact_matrix(&format!("{name}_fn.weight"), &Slice::Whole)?;
        let (bias, split) = (None, Split::Whole);
        let linear = Linear { weight, bias, factor: 1.0, split, number: None };
        let base = loader.vector(&format!("{name}_base.weight"))?;
        let scale = loader.vector(&format!("{name}_scale.weight"))?;
        let kind = match spec.mixing {
            Mixing::All => StreamFactors::All,
            Mixing::Apart => StreamFactors::Apart { magnitude: magnitude.unwrap_or(1.0) },
            Mixing::Reads | Mixing::Mean => StreamFactors::Head,
        };
        let count = if kind == StreamFactors::Head { streams } else { (2 + streams) * streams };
        let spec = HyperSpec { streams, iterations, eps, base, scale, kind };
        let z = loader.shared("stream_products", products)?;
        let factors = loader.shared("stream_factors", count)?;
        Ok(Self { products: linear, z, factors, spec })
    }
}

impl Residual {
    /// The stream, or the streams that the head reads, whose mixture is `x`, `[rows, hidden]`.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, head: &HeadSpec, x: Buffer) -> Result<Self, Error> {
        if head.mixture.is_none() && head.gated.is_none() {
            return Ok(Self { x, several: None });
        }
        let width = head.streams() * loader.hidden();
        let rows = loader.limits.rows.max(loader.limits.logit_rows);
        let several = Streams {
            streams: loader.backend.buffer(rows, width)?,
            normed: loader.backend.buffer(rows, width)?,
            gathered: loader.backend.buffer(rows, width)?,
            norm: Norm::without_weight(loader, width, head.eps),
            head: if loader.is_first() { Collapsed::load(loader, head, rows)? } else { None },
            added: loader.shared("added_to_streams", width)?,
        };
        Ok(Self { x, several: Some(several) })
    }

    /// The buffer that stages hand on.
    pub fn buffer(&self) -> Buffer {
        self.several.as_ref().map_or(self.x, |several| several.streams)
    }

    /// The buffer `[rows, hidden]` of embeddings.
    pub fn embeddings(&self) -> Buffer {
        self.x
    }

    /// Begins with the embeddings.
    pub fn start(&self, pass: &mut ForwardPass<'_>) {
        if let Some(several) = &self.several {
            pass.backend.spread_streams(self.x, several.streams, pass.rows());
        }
    }

    /// What a sublayer reads: `[rows, hidden]`, or all streams.
    pub fn read(&self, pass: &mut ForwardPass<'_>, stream: &Stream) -> Buffer {
        if let Stream::Pair(pair) = stream {
            return *pair;
        }
        let Some(several) = &self.several else { return self.x };
        if let Stream::All = stream {
            return several.streams;
        }
        let rows = pass.rows();
        match stream {
            Stream::Several(mixture) => {
                several.mix(pass, (several.streams, self.x), mixture, rows);
            }
            Stream::Gated(gated) => {
                gated.read(pass, [several.streams, several.normed], self.x, rows);
            }
            Stream::One { .. } | Stream::All | Stream::Pair(_) => {}
        }
        self.x
    }

    /// Where a sublayer writes what is added: `delta`, `[rows, hidden]`, or for all streams.
    pub fn output(&self, stream: &Stream, delta: Buffer) -> Buffer {
        match (&self.several, stream) {
            (Some(several), Stream::All) => several.added,
            _ => delta,
        }
    }

    /// Adds the output of a sublayer, `[rows, hidden]`, or for all streams.
    pub fn add(&self, pass: &mut ForwardPass<'_>, stream: &Stream, y: Buffer) {
        let rows = pass.rows();
        match (&self.several, stream) {
            (Some(several), Stream::Several(mixture)) => {
                pass.backend.write_streams(several.streams, mixture.factors, y, rows);
            }
            (Some(several), Stream::Gated(gated)) => gated.add(pass, several.streams, y, rows),
            (Some(several), Stream::All) => {
                pass.backend.map(MapOp::Add(y), several.streams, rows);
            }
            (_, Stream::One { scale }) if *scale != 1.0 => {
                pass.backend.map(MapOp::Scale(*scale), y, rows);
                pass.backend.map(MapOp::Add(y), self.x, rows);
            }
            _ => pass.backend.map(MapOp::Add(y), self.x, rows),
        }
    }

    /// What the output head reads of `rows`: `[rows.len(), hidden]` of `out`.
    pub fn gather(&self, pass: &mut ForwardPass<'_>, rows: &[u32], out: Buffer) {
        self.gather_as(pass, self.several.as_ref().and_then(|all| all.head.as_ref()), rows, out);
    }

    /// What another output head, which reads the streams as `head`, reads of `rows`:
    /// `[rows.len(), hidden]` of `out`.
    pub fn gather_as(
        &self,
        pass: &mut ForwardPass<'_>,
        head: Option<&Collapsed>,
        rows: &[u32],
        out: Buffer,
    ) {
        match (&self.several, head) {
            (Some(all @ Streams { streams, gathered, .. }), Some(head)) => {
                pass.backend.gather(*streams, rows, *gathered);
                match head {
                    Collapsed::Mixture(head) => all.mix(pass, (*gathered, out), head, rows.len()),
                    Collapsed::Gated(head) => {
                        head.read(pass, [*gathered, all.normed], out, rows.len());
                    }
                    Collapsed::Mean(factors) => {
                        pass.backend.read_streams(*gathered, *factors, out, rows.len());
                    }
                }
            }
            _ => pass.backend.gather(self.buffer(), rows, out),
        }
    }
}

impl Collapsed {
    /// Loads what the output head reads of up to `rows` rows.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(
        loader: &mut Loader<'_>,
        head: &HeadSpec,
        rows: usize,
    ) -> Result<Option<Self>, Error> {
        if let Some(gated) = &head.gated {
            return GatedStreams::load(loader, gated).map(Self::Gated).map(Some);
        }
        let Some(spec) = &head.mixture else { return Ok(None) };
        if spec.mixing != Mixing::Mean {
            return Mixture::load(loader, spec).map(Self::Mixture).map(Some);
        }
        let streams = spec.streams.streams;
        let factors = loader.backend.buffer(rows, streams)?;
        loader.backend.update(factors, rows, &mut |factors| factors.fill(1.0 / streams as f32));
        Ok(Some(Self::Mean(factors)))
    }
}

impl Streams {
    /// Computes the factors of a mixture of `from`, and what they read.
    fn mix(
        &self,
        pass: &mut ForwardPass<'_>,
        (from, out): (Buffer, Buffer),
        mixture: &Mixture,
        rows: usize,
    ) {
        let Mixture { products, z, factors, spec } = mixture;
        self.norm.forward(pass, from, self.normed, rows);
        products.forward(pass, self.normed, *z, rows);
        pass.backend.stream_factors(*z, spec, *factors, rows);
        pass.backend.read_streams(from, *factors, out, rows);
    }
}
