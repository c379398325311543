//! The residual stream, or streams: hyper-connections (mHC; DeepSeek V4) keep several, from which a
//! sublayer reads a mixture and into which its output is mixed.

use super::{ForwardPass, Linear, Norm};
use crate::Error;
use crate::loader::Loader;
use crate::ranks::Slice;
use backend::{Buffer, HyperSpec};
use dist::Split;
use formats::config::HyperConfig;

/// What sublayers read from and add to.
pub(crate) enum Residual {
    /// One stream: outputs are added.
    Plain {
        /// `[rows, hidden]`.
        x: Buffer,
    },
    Hyper(Streams),
}

/// Several streams.
pub(crate) struct Streams {
    /// `[rows, streams * hidden]`.
    streams: Buffer,
    /// The mixture that a sublayer reads: `[rows, hidden]`.
    x: Buffer,
    /// Streams after their norm: `[rows, streams * hidden]`.
    normed: Buffer,
    /// Streams of the rows that the output head reads: `[rows, streams * hidden]`.
    gathered: Buffer,
    /// Norm of all streams together, without weights.
    norm: Norm,
    /// The mixture that the output head reads, on the last stage.
    head: Option<Mixture>,
}

/// How one sublayer mixes the streams.
pub(crate) struct Mixture {
    /// `[factors, streams * hidden]`.
    products: Linear,
    /// `[rows, factors]`.
    z: Buffer,
    factors: Buffer,
    spec: HyperSpec,
}

impl Mixture {
    /// Loads `name_fn`, `name_base` and `name_scale`. The head has factors of what is read only.
    fn load(
        loader: &mut Loader<'_>,
        name: &str,
        config: &HyperConfig,
        head: bool,
    ) -> Result<Self, Error> {
        let HyperConfig { streams, iterations, eps } = *config;
        let inputs = streams * loader.checkpoint.config().hidden_size;
        let count = if head { streams } else { (2 + streams) * streams };
        let parts = if head { 1 } else { 3 };
        let weight = format!("{name}_fn.weight");
        let weight = loader.exact_matrix(&weight, count, inputs, &Slice::Whole)?;
        let (bias, split) = (None, Split::Whole);
        let products = Linear { weight, bias, factor: 1.0, split, number: None };
        let base = loader.vector(&format!("{name}_base.weight"), &[count], 0..count)?;
        let scale = loader.vector(&format!("{name}_scale.weight"), &[parts], 0..parts)?;
        let spec = HyperSpec { streams, iterations, eps, base, scale, head };
        let z = loader.shared("stream_products", count)?;
        Ok(Self { products, z, factors: loader.shared("stream_factors", count)?, spec })
    }
}

impl Residual {
    /// The stream of width `hidden`, or the streams that the configuration describes.
    pub fn load(loader: &mut Loader<'_>, x: Buffer) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let Some(hyper) = &config.hyper else { return Ok(Self::Plain { x }) };
        let width = hyper.streams * config.hidden_size;
        let eps = config.rms_norm_eps;
        let last = loader.stage.rank() + 1 == loader.stage.ranks();
        let rows = loader.limits.rows.max(loader.limits.logit_rows);
        Ok(Self::Hyper(Streams {
            streams: loader.backend.buffer(rows, width)?,
            x,
            normed: loader.backend.buffer(rows, width)?,
            gathered: loader.backend.buffer(rows, width)?,
            norm: Norm::without_weight(loader, width, eps),
            head: match last {
                true => Some(Mixture::load(loader, "output_hc", hyper, true)?),
                false => None,
            },
        }))
    }

    /// Loads the mixture of a sublayer, `blk.N.hc_attn` or `blk.N.hc_ffn`, where there are several
    /// streams.
    pub fn mixture(loader: &mut Loader<'_>, name: &str) -> Result<Option<Mixture>, Error> {
        let config = loader.checkpoint.config();
        config.hyper.as_ref().map(|hyper| Mixture::load(loader, name, hyper, false)).transpose()
    }

    /// The buffer that stages hand on.
    pub fn buffer(&self) -> Buffer {
        match self {
            Self::Plain { x } => *x,
            Self::Hyper(streams) => streams.streams,
        }
    }

    /// The buffer `[rows, hidden]` of embeddings.
    pub fn embeddings(&self) -> Buffer {
        match self {
            Self::Plain { x } | Self::Hyper(Streams { x, .. }) => *x,
        }
    }

    /// Begins with the embeddings.
    pub fn start(&self, pass: &mut ForwardPass<'_>) {
        if let Self::Hyper(Streams { streams, x, .. }) = self {
            pass.backend.spread_streams(*x, *streams, pass.rows());
        }
    }

    /// What a sublayer reads: `[rows, hidden]`.
    pub fn read(&self, pass: &mut ForwardPass<'_>, mixture: Option<&Mixture>) -> Buffer {
        match (self, mixture) {
            (Self::Hyper(streams), Some(mixture)) => {
                streams.mix(pass, (streams.streams, streams.x), mixture, pass.rows());
                streams.x
            }
            _ => self.embeddings(),
        }
    }

    /// Adds the output of a sublayer, `[rows, hidden]`.
    pub fn add(&self, pass: &mut ForwardPass<'_>, mixture: Option<&Mixture>, y: Buffer) {
        let rows = pass.rows();
        match (self, mixture) {
            (Self::Hyper(streams), Some(mixture)) => {
                pass.backend.write_streams(streams.streams, mixture.factors, y, rows);
            }
            _ => pass.backend.add(self.embeddings(), y, rows),
        }
    }

    /// What the output head reads of `rows`: `[rows.len(), hidden]` of `out`.
    pub fn gather(&self, pass: &mut ForwardPass<'_>, rows: &[u32], out: Buffer) {
        match self {
            Self::Hyper(all @ Streams { streams, gathered, head: Some(head), .. }) => {
                pass.backend.gather(*streams, rows, *gathered);
                all.mix(pass, (*gathered, out), head, rows.len());
            }
            _ => pass.backend.gather(self.buffer(), rows, out),
        }
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
