//! Projections whose outputs pass a short convolution along positions, and the layer of LFM2,
//! which consists of them.

use super::linear::{Linear, PartOf};
use super::operation::{OpPlace, Operation};
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::{Slice, part};
use backend::{Buffer, Gate, LayerCache, MapOp, ShortConv};
use dist::Split;
use formats::layers::ConvolutionSpec;
use std::ops::Range;

/// A projection with the convolution of its outputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConvolvedLinear {
    pub linear: Linear,
    /// Outputs of the projection: `[rows, channels]`.
    pub projected: Buffer,
    pub conv: ShortConv,
}

/// Where the weights of a projection and of its convolution are.
pub(super) struct ConvolvedSource<'a> {
    /// The projection, and those of its rows that are taken.
    pub matrix: PartOf<'a>,
    pub rows: Range<usize>,
    /// Tensor of the convolution without its suffix, and those of its channels that are taken.
    pub conv: (&'a str, Range<usize>),
    /// Names of the buffers for the outputs of the projection and of the convolution.
    pub buffers: [&'static str; 2],
}

impl ConvolvedLinear {
    /// Loads a projection with its convolution, followed by SiLU.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, source: &ConvolvedSource<'_>) -> Result<Self, Error> {
        let (rows, [projected, out]) = (&source.rows, source.buffers);
        let linear = Linear::part(loader, source.matrix, rows.clone())?;
        let (conv, taken) = &source.conv;
        let conv = ShortConv { silu: true, ..short_conv(loader, conv, taken, out)? };
        Ok(Self { linear, projected: loader.shared(projected, rows.len())?, conv })
    }
}

/// Loads channels of the convolution `name.weight`, `[channels, kernel]`, with its bias if there is
/// one.
fn short_conv(
    loader: &mut Loader<'_>,
    name: &str,
    taken: &Range<usize>,
    out: &'static str,
) -> Result<ShortConv, Error> {
    let weight = loader.require(&format!("{name}.weight"))?;
    let (kernel, taps) = (weight.shape[1], weight.to_f32()?);
    let of = |tap: usize, channel: usize| taps[channel * kernel + tap];
    let transposed = (0..kernel).flat_map(|tap| taken.clone().map(move |channel| (tap, channel)));
    let transposed = transposed.map(|(tap, channel)| of(tap, channel)).collect();
    let bias = loader.optional_part(&format!("{name}.bias"), taken.clone())?;
    let weight = loader.backend.vector(transposed);
    Ok(ShortConv { silu: false, weight, bias, out: loader.shared(out, taken.len())? })
}

/// The layer of LFM2: `out(c * conv(b * x))`, where `b`, `c` and `x` are projections of the input.
#[derive(Debug)]
pub(crate) struct ShortConvolution {
    /// Index of the layer in this rank's cache.
    layer: usize,
    /// `b`, `c` and `x` with their buffers, `[rows, channels]` each.
    inputs: [(Linear, Buffer); 3],
    conv: ShortConv,
    out: Linear,
    cache: LayerCache,
}

/// Preferred unit in which channels are divided among ranks: a block of the kernels.
const UNIT: usize = 32;

impl ShortConvolution {
    /// Loads `shortconv.in_proj`, `shortconv.conv` and `shortconv.out_proj`: this rank's channels.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, the channels cannot be divided among the ranks,
    /// or the device has no memory for it.
    pub fn load(
        loader: &mut Loader<'_>,
        place: OpPlace,
        spec: &ConvolutionSpec,
    ) -> Result<Self, Error> {
        let channels = spec.channels;
        let own = part(loader.slice, (channels, "channels of convolutions"), &[UNIT, 1])?;
        let mut input = |which: usize, buffer: &'static str| {
            let rows = own.start + which * channels..own.end + which * channels;
            let (name, noted) = ("shortconv.in_proj", which == 0);
            let linear = Linear::part(loader, PartOf { name, noted, factor: name }, rows)?;
            Ok::<_, Error>((linear, loader.shared(buffer, own.len())?))
        };
        let inputs = [input(0, "conv_b")?, input(1, "conv_c")?, input(2, "conv_x")?];
        let conv = short_conv(loader, "shortconv.conv", &own, "conv_out")?;
        let of_rank = ConvolutionSpec { channels: own.len(), ..*spec };
        Ok(Self {
            layer: place.of_rank(loader),
            inputs,
            conv,
            out: Linear::load(loader, "shortconv.out_proj", Slice::Inputs(own))?,
            cache: of_rank.cache(),
        })
    }
}

impl Operation for ShortConvolution {
    fn name(&self) -> &'static str {
        "convolution"
    }

    fn split(&self) -> Split {
        self.out.split
    }

    fn cache(&self) -> LayerCache {
        self.cache.clone()
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        let rows = pass.rows();
        let [(_, b), (_, c), (_, inner)] = self.inputs;
        let outputs = self.inputs.each_ref().map(|(linear, buffer)| (linear, *buffer));
        Linear::forward_each(pass, x, outputs, rows);
        // b: [rows, channels], what is convolved
        pass.backend.map(MapOp::Gate(Gate::Product, inner), b, rows);
        pass.backend.short_conv(self.layer, 0, b, &self.conv, pass.batch);
        pass.backend.map(MapOp::Gate(Gate::Product, self.conv.out), c, rows);
        self.out.forward(pass, c, out, rows);
        Ok(())
    }
}
