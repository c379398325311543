//! The states of a head of EAGLE-3: a projection of the residual streams before some layers of the
//! model.

use super::linear::Linear;
use super::norm::Norm;
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::Slice;
use backend::{Buffer, HeadColumns};
use formats::Eagle3Config;

/// Streams that a projection makes one state of.
pub(crate) struct FusedStreams {
    /// Layers before which the stream is read.
    taps: Vec<usize>,
    /// Their streams, one after the other: `[rows, taps * hidden]`.
    streams: Buffer,
    /// The norm, with a buffer for its output.
    norm: Option<(Norm, Buffer)>,
    projection: Linear,
    /// Values of a stream.
    hidden: usize,
}

impl FusedStreams {
    /// Loads the projection `fc` and its norm.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, head: &Eagle3Config) -> Result<Self, Error> {
        let (hidden, taps) = (loader.hidden(), head.taps.clone());
        let width = taps.len() * hidden;
        let names = head.stream_norm.names(taps.len());
        let norm = match names.is_empty() {
            true => None,
            false => {
                let norm = Norm::of_parts(loader, &names, head.layer.eps)?;
                Some((norm, loader.shared("draft_streams_normed", width)?))
            }
        };
        let projection = Linear::load(loader, "fc", Slice::Whole)?;
        let streams = loader.shared("draft_streams", width)?;
        Ok(Self { taps, streams, norm, projection, hidden })
    }

    /// Keeps the residual stream, `[rows, hidden]`, before the layer with this `number`, if the
    /// projection reads it.
    pub fn tap(&self, pass: &mut ForwardPass<'_>, number: usize, stream: Buffer) {
        let (hidden, rows) = (self.hidden, pass.rows());
        for (at, _) in self.taps.iter().enumerate().filter(|(_, tap)| **tap == number) {
            let from = HeadColumns { buffer: stream, first: 0, stride: hidden };
            let stride = self.taps.len() * hidden;
            let to = HeadColumns { buffer: self.streams, first: at * hidden, stride };
            pass.backend.copy_heads(from, hidden, to, rows);
        }
    }

    /// Computes the states, `[rows, width]`, in `out`, which it returns.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, out: Buffer) -> Buffer {
        let rows = pass.rows();
        let streams = match self.norm {
            Some((norm, normed)) => norm.forward(pass, self.streams, normed, rows),
            None => self.streams,
        };
        self.projection.forward(pass, streams, out, rows);
        out
    }
}
