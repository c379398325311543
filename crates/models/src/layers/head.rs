//! The output head: a norm and a projection to the vocabulary, which ranks may share.

use super::linear::Linear;
use super::norm::Norm;
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::{Slice, part};
use backend::{Buffer, MapOp};
use dist::Shard;
use formats::layers::{HeadSpec, OutputSpec};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Preferred unit in which rows of the projection are divided among ranks.
const UNIT: usize = 16;

pub(crate) struct Head {
    /// `None` where the last layer ends with a norm.
    norm: Option<Norm>,
    /// `None` in models that do not generate.
    linear: Option<Linear>,
    vocab: usize,
    /// Factor of the logits, and their bound.
    scale: f32,
    cap: Option<f32>,
    others: Option<Others>,
}

/// State of a head that ranks share.
struct Others {
    /// Each rank's columns of the logits.
    parts: Vec<Range<usize>>,
    /// `[logit rows, own columns]`.
    own: Buffer,
    /// Kept, so that a step allocates nothing.
    work: Mutex<GatherWork>,
}

/// What gathering the logits on the first rank needs.
#[derive(Default)]
struct GatherWork {
    /// Number of values of each rank.
    lengths: Vec<usize>,
    /// The parts of all ranks in sequence: `[logit rows, vocab]` values.
    all: Vec<f32>,
}

impl Head {
    /// Loads the norm, and `output` or, where they are tied, `token_embd`, in models that generate.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, the vocabulary cannot be divided among the
    /// ranks, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, spec: &HeadSpec) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let (hidden, vocab) = (config.hidden, config.vocab);
        let columns = |shard| part(shard, (vocab, "words of the vocabulary"), &[UNIT, 1]);
        let slice = Slice::Outputs(columns(loader.slice)?);
        let linear = match spec.output {
            None => None,
            Some(OutputSpec { tied: true, .. }) => {
                let embed = loader.checkpoint.require("token_embd.weight", &[vocab, hidden])?;
                let weight = loader.part_of("output.weight", &slice.of(embed)?)?;
                let split = slice.split();
                let number = Some(loader.projections.add("output", [vocab, hidden], slice, 1.0));
                Some(Linear { weight, bias: None, factor: 1.0, split, number })
            }
            Some(OutputSpec { tied: false, .. }) => Some(Linear::load(loader, "output", slice)?),
        };
        let norm = spec.norm.as_ref().map(|norm| Norm::of_stream(loader, norm)).transpose()?;
        let others = match loader.slice.ranks() {
            1 => None,
            ranks => Some(Others {
                parts: (0..ranks)
                    .map(|rank| columns(Shard::new(rank, ranks)?))
                    .collect::<Result<_, Error>>()?,
                own: loader
                    .backend
                    .buffer(loader.limits.logit_rows, columns(loader.slice)?.len())?,
                work: Mutex::default(),
            }),
        };
        let (scale, cap) = spec.output.map_or((1.0, None), |output| (output.scale, output.cap));
        Ok(Self { norm, linear, vocab, scale, cap, others })
    }

    /// The first `words` outputs of the head with this specification, without a norm, on a rank
    /// that has all. Ids of byte-pair encodings follow frequency.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn of_first(loader: &mut Loader<'_>, spec: &HeadSpec, words: usize) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let output = spec.output.expect("a head of a model that generates");
        let name = if output.tied { "token_embd.weight" } else { "output.weight" };
        let view = loader.checkpoint.require(name, &[config.vocab, config.hidden])?;
        let weight = loader.part_of("output.weight", &view.rows(0..words))?;
        let split = Slice::Whole.split();
        let linear = Some(Linear { weight, bias: None, factor: 1.0, split, number: None });
        let (scale, cap) = (output.scale, output.cap);
        Ok(Self { norm: None, linear, vocab: words, scale, cap, others: None })
    }

    /// The output of a head that drafts tokens, without a norm: the projection with this name to
    /// so many words.
    ///
    /// # Errors
    /// If the tensor is missing or has another shape, or the device has no memory for it.
    pub fn of_drafter(
        loader: &mut Loader<'_>,
        (name, words): (&str, usize),
        cap: Option<f32>,
    ) -> Result<Self, Error> {
        let linear = Some(Linear::load(loader, name, Slice::Whole)?);
        Ok(Self { norm: None, linear, vocab: words, scale: 1.0, cap, others: None })
    }

    /// The norm alone, if there is one.
    pub fn normalise(
        &self,
        pass: &mut ForwardPass<'_>,
        (x, normed): (Buffer, Buffer),
        rows: usize,
    ) {
        if let Some(norm) = self.norm {
            norm.forward(pass, x, normed, rows);
        }
    }

    /// The hidden states of rows of the stream `x`: after the norm, in `out`, or `x` if there is
    /// none.
    pub fn states(
        &self,
        pass: &mut ForwardPass<'_>,
        (x, out): (Buffer, Buffer),
        rows: usize,
    ) -> Buffer {
        self.normalise(pass, (x, out), rows);
        if self.has_norm() { out } else { x }
    }

    /// Whether there is a norm.
    pub fn has_norm(&self) -> bool {
        self.norm.is_some()
    }

    /// `[rows, hidden]` to `[rows, vocab]`, on the first of the ranks that share the head; `normed`
    /// is workspace of the shape of `x`.
    ///
    /// # Errors
    /// If a rank fails, or, with checking on, a logit is not finite.
    pub fn forward(
        &self,
        pass: &mut ForwardPass<'_>,
        (x, normed): (Buffer, Buffer),
        logits: Buffer,
        rows: usize,
    ) -> Result<(), Error> {
        let hidden = self.states(pass, (x, normed), rows);
        self.project(pass, hidden, logits, rows)
    }

    /// `[rows, hidden]`, after the norm, to `[rows, vocab]`.
    ///
    /// # Errors
    /// If a rank fails.
    pub fn project(
        &self,
        pass: &mut ForwardPass<'_>,
        hidden: Buffer,
        logits: Buffer,
        rows: usize,
    ) -> Result<(), Error> {
        let own = self.others.as_ref().map_or(logits, |others| others.own);
        let linear = self.linear.expect("logits are computed of models that generate");
        linear.forward_logits(pass, hidden, own, rows);
        if self.scale != 1.0 {
            pass.backend.map(MapOp::Scale(self.scale), own, rows);
        }
        if let Some(cap) = self.cap {
            pass.backend.map(MapOp::SoftCap(cap), own, rows);
        }
        match (&self.others, pass.slices) {
            (Some(others), Some(comm)) => {
                let mut work = others.work.lock().unwrap_or_else(PoisonError::into_inner);
                let GatherWork { lengths, all } = &mut *work;
                lengths.clear();
                lengths.extend(others.parts.iter().map(|part| rows * part.len()));
                pass.backend.fetch(own, rows);
                let leads = comm.rank() == 0;
                all.resize(if leads { rows * self.vocab } else { 0 }, 0.0);
                comm.gather(0, pass.backend.read(own, rows), (lengths, all))?;
                if leads {
                    pass.backend.update(logits, rows, &mut |logits| {
                        others.put(all, logits, self.vocab);
                    });
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Others {
    /// Copies the parts of all ranks, `[rows, columns]` each, into `[rows, vocab]`.
    fn put(&self, mut all: &[f32], logits: &mut [f32], vocab: usize) {
        for columns in &self.parts {
            for row in logits.chunks_exact_mut(vocab) {
                let (values, rest) = all.split_at(columns.len());
                row[columns.clone()].copy_from_slice(values);
                all = rest;
            }
        }
    }
}
