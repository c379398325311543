//! A layer: sublayers that add to the residual stream.
//!
//! Each sublayer adds its output to the residual stream: norm, operation, norm, of which the norms
//! are optional, as is a norm of the stream after it. Encoders are computed so too.

use super::load::load;
use super::norm::Norm;
use super::operation::{ForeseenExperts, OpPlace, Operation};
use super::streams::{Residual, Stream};
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use backend::{Buffer, LayerCache, MapOp};
use formats::layers::{self, LAYER_SCALE, NormSpec};

/// One residual step of a layer: norm, operation, norm.
struct Sublayer {
    stream: Stream,
    /// Norm of the operation's input.
    before: Option<Norm>,
    op: Box<dyn Operation>,
    /// Norm of the operation's output, before it is added to the residual stream.
    after: Option<Norm>,
    /// Norm of the residual stream, after it.
    behind: Option<Norm>,
}

/// A layer: sublayers, and a factor of the residual stream after them.
pub(crate) struct Layer {
    sublayers: Vec<Sublayer>,
    scale: Option<f32>,
    /// Whether all that is kept of a sequence is of the first sublayer.
    first_keeps: bool,
}

impl Sublayer {
    fn load(
        loader: &mut Loader<'_>,
        place: OpPlace,
        spec: &layers::Sublayer,
    ) -> Result<Self, Error> {
        loader.enter(Some(place.layer), spec.loaded(loader.hidden()), spec.op.factors());
        let norm = |loader: &mut Loader<'_>, norm: &Option<NormSpec>| {
            norm.as_ref().map(|norm| Norm::of_stream(loader, norm)).transpose()
        };
        Ok(Self {
            stream: Stream::load(loader, &spec.stream)?,
            before: norm(loader, &spec.before)?,
            op: load(loader, place, &spec.op)?,
            after: norm(loader, &spec.after)?,
            behind: norm(loader, &spec.behind)?,
        })
    }
}

impl Layer {
    /// Loads the layer with this number, which has rows from the position `first` on, and tells
    /// what it keeps of a sequence.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, the layer cannot be divided among the ranks,
    /// or the device has no memory for it.
    pub fn load(
        loader: &mut Loader<'_>,
        (number, first): (usize, usize),
        spec: &layers::Layer,
    ) -> Result<(Self, LayerCache), Error> {
        let (mut sublayers, mut cache) = (Vec::new(), LayerCache::default());
        let mut first_keeps = true;
        for sublayer in &spec.sublayers {
            let place = OpPlace { layer: number, rows: cache.rows.len(), first };
            let sublayer = Sublayer::load(loader, place, sublayer)?;
            let kept = sublayer.op.cache();
            first_keeps &= sublayers.is_empty() || kept == LayerCache::default();
            cache.extend(kept);
            sublayers.push(sublayer);
        }
        loader.enter(Some(number), spec.scale_tensor().into_iter().collect(), Vec::new());
        let scale = match spec.scale {
            true => loader.require(LAYER_SCALE)?.to_f32()?.first().copied(),
            false => None,
        };
        Ok((Self { sublayers, scale, first_keeps }, cache))
    }

    /// Its experts, where they can be guessed before they are chosen.
    pub fn experts(&self) -> Option<&dyn ForeseenExperts> {
        self.sublayers.iter().find_map(|sublayer| sublayer.op.experts())
    }

    /// Begins what can be done before the layers of a step are computed.
    pub fn prepare(&self, pass: &mut ForwardPass<'_>) {
        self.sublayers.iter().for_each(|sublayer| sublayer.op.prepare(pass));
    }

    /// Stores what the layer, which has this number, keeps of the rows of the batch, whose outputs
    /// nothing reads. The arguments are those of [`forward`](Self::forward).
    ///
    /// # Errors
    /// If a rank fails or, with checking on, a value is not finite.
    pub fn keep(
        &self,
        pass: &mut ForwardPass<'_>,
        number: usize,
        residual: &Residual,
        [normed, delta]: [Buffer; 2],
    ) -> Result<(), Error> {
        if !self.first_keeps {
            self.prepare(pass);
            return self.forward(pass, number, residual, [normed, delta], None);
        }
        let (Sublayer { stream, before, op, .. }, rows) = (&self.sublayers[0], pass.rows());
        let x = residual.read(pass, stream);
        let input = before.map_or(x, |norm| norm.forward(pass, x, normed, rows));
        op.keep(pass, input, residual.output(stream, delta))
    }

    /// Takes the residual stream through the layer, which has this number. `normed` and `delta` are
    /// workspace, `[rows, hidden]`. Experts of the `next` layer are guessed from this one.
    ///
    /// # Errors
    /// If a rank fails or, with checking on, a value is not finite.
    pub fn forward(
        &self,
        pass: &mut ForwardPass<'_>,
        number: usize,
        residual: &Residual,
        [normed, delta]: [Buffer; 2],
        next: Option<&dyn ForeseenExperts>,
    ) -> Result<(), Error> {
        let rows = pass.rows();
        for Sublayer { stream, before, op, after, behind } in &self.sublayers {
            // x, normed: [rows, hidden]
            let x = residual.read(pass, stream);
            let input = before.map_or(x, |norm| norm.forward(pass, x, normed, rows));
            if op.experts().is_some()
                && let Some(next) = next
            {
                next.foresee(pass, input);
            }
            let delta = residual.output(stream, delta);
            // delta: [rows, hidden], where slices share the operation a summand of it
            op.forward(pass, input, delta)?;
            pass.sum_over_ranks(delta, op.split())?;
            pass.check(delta, || format!("{} of layer {number}", op.name()))?;
            // normed: [rows, hidden]
            let output = after.map_or(delta, |norm| norm.forward(pass, delta, normed, rows));
            residual.add(pass, stream, output);
            if let Some(norm) = behind {
                let stream = residual.buffer();
                norm.forward(pass, stream, stream, rows);
            }
        }
        let stream = residual.buffer();
        if let Some(scale) = self.scale {
            pass.backend.map(MapOp::Scale(scale), stream, rows);
        }
        pass.check(stream, || format!("residual stream after layer {number}"))
    }
}
