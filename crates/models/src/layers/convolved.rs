//! Projections whose outputs pass a short convolution along positions, and layers that are little
//! else (LFM2).

use super::{ForwardPass, Linear};
use crate::Error;
use crate::loader::Loader;
use crate::ranks::{Slice, part};
use backend::{Buffer, Gate, LayerCache, Rows, ShortConv};
use formats::config::ConvConfig;
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
    /// Tensor of the projection, its rows, and those of them that are taken.
    pub matrix: (&'a str, usize, Range<usize>),
    /// Name under which the inputs are counted; empty where they are those of another part.
    pub noted: &'a str,
    /// Name of the factor of what the projection gives.
    pub part: &'a str,
    /// Tensor of the convolution without its suffix, its channels, and those of them that are
    /// taken.
    pub conv: (&'a str, usize, Range<usize>),
    /// Positions that the convolution covers.
    pub kernel: usize,
    /// Names of the buffers of what the projection and the convolution give.
    pub buffers: [&'static str; 2],
}

impl ConvolvedLinear {
    /// Loads a projection with its convolution, whose outputs are gated by themselves.
    pub fn load(loader: &mut Loader<'_>, source: &ConvolvedSource<'_>) -> Result<Self, Error> {
        let (name, outputs, rows) = &source.matrix;
        let (projected, out) = (source.buffers[0], source.buffers[1]);
        let linear =
            Linear::part(loader, (name, source.noted, source.part), *outputs, rows.clone())?;
        let (conv, channels, taken) = &source.conv;
        let sizes = (*channels, source.kernel);
        let conv = ShortConv { silu: true, ..short_conv(loader, conv, sizes, taken, out)? };
        Ok(Self { linear, projected: loader.shared(projected, rows.len())?, conv })
    }
}

/// Loads channels of the convolution `name.weight`, `[channels, kernel]`, with its bias if there is
/// one.
fn short_conv(
    loader: &mut Loader<'_>,
    name: &str,
    (channels, kernel): (usize, usize),
    taken: &Range<usize>,
    out: &'static str,
) -> Result<ShortConv, Error> {
    let weight = format!("{name}.weight");
    let taps = loader.checkpoint.require(&weight, &[channels, kernel])?.to_f32()?;
    let of = |tap: usize, channel: usize| taps[channel * kernel + tap];
    let turned = (0..kernel).flat_map(|tap| taken.clone().map(move |channel| (tap, channel)));
    let turned = turned.map(|(tap, channel)| of(tap, channel)).collect();
    let bias = loader.optional_part(&format!("{name}.bias"), &[channels], taken.clone())?;
    let weight = loader.backend.vector(turned);
    Ok(ShortConv { silu: false, weight, bias, out: loader.shared(out, taken.len())? })
}

/// The layer of LFM2: `out(c * conv(b * x))`, where `b`, `c` and `x` are projections of the input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortConvolution {
    /// Index of the layer in this rank's cache.
    layer: usize,
    /// `b`, `c` and `x` with their buffers, `[rows, channels]` each.
    inputs: [(Linear, Buffer); 3],
    conv: ShortConv,
    pub out: Linear,
}

/// Preferred unit in which channels are divided among ranks: a block of the kernels.
const UNIT: usize = 32;

/// What a layer keeps of some channels.
pub(super) fn cache(config: &ConvConfig, channels: usize) -> LayerCache {
    LayerCache { rows: vec![Rows::plain(channels, Some(config.kernel))], state: None }
}

/// This rank's channels.
pub(super) fn own_channels(loader: &Loader<'_>) -> Result<Range<usize>, Error> {
    let hidden = loader.checkpoint.config().hidden_size;
    part(loader.slice, (hidden, "channels of convolutions"), &[UNIT, 1])
}

impl ShortConvolution {
    /// Loads `shortconv.in_proj`, `shortconv.conv` and `shortconv.out_proj` of a layer: this rank's
    /// channels.
    pub fn load(loader: &mut Loader<'_>, layer: usize, config: &ConvConfig) -> Result<Self, Error> {
        let hidden = loader.checkpoint.config().hidden_size;
        let own = own_channels(loader)?;
        let name = |part: &str| format!("blk.{layer}.shortconv.{part}");
        let source = name("in_proj.weight");
        let mut input = |which: usize, buffer: &'static str| {
            let first = which * hidden;
            let rows = own.start + first..own.end + first;
            let noted = if which == 0 { &source[..] } else { "" };
            let linear = Linear::part(loader, (&source, noted, ""), 3 * hidden, rows)?;
            Ok::<_, Error>((linear, loader.shared(buffer, own.len())?))
        };
        let inputs = [input(0, "conv_b")?, input(1, "conv_c")?, input(2, "conv_x")?];
        let sizes = (hidden, config.kernel);
        let conv = short_conv(loader, &name("conv"), sizes, &own, "conv_out")?;
        let out = Slice::Inputs(own);
        Ok(Self {
            layer: layer - loader.layers.start,
            inputs,
            conv,
            out: Linear::load(loader, &name("out_proj"), hidden, hidden, out)?,
        })
    }

    /// `[rows, hidden]` to `[rows, hidden]`; stores what is convolved of the rows.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) {
        let rows = pass.rows();
        let [(_, b), (_, c), (_, inner)] = self.inputs;
        let outputs = self.inputs.each_ref().map(|(linear, buffer)| (linear, *buffer));
        Linear::forward_each(pass, x, outputs, rows);
        // b: [rows, channels], what is convolved
        pass.backend.apply_gate(Gate::Product, b, inner, rows);
        pass.backend.short_conv(self.layer, 0, b, &self.conv, pass.batch);
        pass.backend.apply_gate(Gate::Product, c, self.conv.out, rows);
        self.out.forward(pass, c, out, rows);
    }
}
