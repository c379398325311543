//! The head that scores a text: a projection of its pooled state to the labels, after another
//! where the model has one.
//!
//! Its sums are added in ascending order, in f64, on the calling thread: it takes one row for each
//! text.

use crate::error::Error;
use base::math;
use formats::Checkpoint;
use formats::layers::HeadActivation;

/// A head that scores texts.
#[derive(Clone, Debug)]
pub struct Classifier {
    dense: Option<(HeadProjection, HeadActivation)>,
    norm: Option<LayerNorm>,
    out: HeadProjection,
}

/// `x W^T + b`.
#[derive(Clone, Debug)]
struct HeadProjection {
    /// `[outputs, inputs]`.
    weight: Vec<f32>,
    /// `[outputs]`, or empty.
    bias: Vec<f32>,
    inputs: usize,
}

#[derive(Clone, Debug)]
struct LayerNorm {
    weight: Vec<f32>,
    bias: Vec<f32>,
    eps: f64,
}

impl Classifier {
    /// Loads `cls`, `cls.norm` and `cls.output`; `None` for models without such a head.
    ///
    /// # Errors
    /// If a tensor is missing, or of another shape or type.
    pub(crate) fn load(checkpoint: &Checkpoint) -> Result<Option<Self>, Error> {
        let config = checkpoint.config();
        let Some(head) = config.head.classifier else { return Ok(None) };
        let (hidden, eps) = (config.hidden, f64::from(config.head.eps));
        let dense = match head.dense {
            Some(function) => {
                Some((HeadProjection::load(checkpoint, "cls", hidden, hidden)?, function))
            }
            None => None,
        };
        let norm = match head.norm {
            true => {
                let weight = checkpoint.require("cls.norm.weight", &[hidden])?.to_f32()?;
                Some(LayerNorm { weight, bias: bias(checkpoint, "cls.norm", hidden)?, eps })
            }
            false => None,
        };
        let out = HeadProjection::load(checkpoint, "cls.output", head.labels, hidden)?;
        Ok(Some(Self { dense, norm, out }))
    }

    /// The score of each label, not normalised, of a pooled state `[hidden]`.
    pub fn scores(&self, state: &[f32]) -> Vec<f32> {
        let mut state = state.to_vec();
        if let Some((dense, function)) = &self.dense {
            state = dense.apply(&state);
            state.iter_mut().for_each(|value| *value = applied(*function, *value));
        }
        if let Some(norm) = &self.norm {
            norm.apply(&mut state);
        }
        self.out.apply(&state)
    }
}

fn bias(checkpoint: &Checkpoint, name: &str, len: usize) -> Result<Vec<f32>, Error> {
    let name = format!("{name}.bias");
    match checkpoint.tensor(&name) {
        Some(_) => Ok(checkpoint.require(&name, &[len])?.to_f32()?),
        None => Ok(Vec::new()),
    }
}

impl HeadProjection {
    fn load(
        checkpoint: &Checkpoint,
        name: &str,
        outputs: usize,
        inputs: usize,
    ) -> Result<Self, Error> {
        let weight = checkpoint.require(&format!("{name}.weight"), &[outputs, inputs])?;
        let (weight, bias) = (weight.to_f32()?, bias(checkpoint, name, outputs)?);
        Ok(Self { weight, bias, inputs })
    }

    fn apply(&self, x: &[f32]) -> Vec<f32> {
        let rows = self.weight.chunks_exact(self.inputs).enumerate();
        rows.map(|(output, row)| {
            let products = row.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
            let bias = self.bias.get(output).copied().unwrap_or(0.0);
            (products.sum::<f64>() + f64::from(bias)) as f32
        })
        .collect()
    }
}

impl LayerNorm {
    fn apply(&self, x: &mut [f32]) {
        let count = x.len() as f64;
        let mean = x.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
        let apart = x.iter().map(|value| f64::from(*value) - mean);
        let squares = apart.map(|it| it * it);
        let scale = 1.0 / (squares.sum::<f64>() / count + self.eps).sqrt();
        for (at, (value, weight)) in x.iter_mut().zip(&self.weight).enumerate() {
            let bias = self.bias.get(at).copied().unwrap_or(0.0);
            let normed = (f64::from(*value) - mean) * scale * f64::from(*weight);
            *value = (normed + f64::from(bias)) as f32;
        }
    }
}

/// A function of a value in a head.
fn applied(function: HeadActivation, x: f32) -> f32 {
    let wide = f64::from(x);
    let value = match function {
        HeadActivation::Identity => wide,
        HeadActivation::Tanh => math::tanh(wide),
        HeadActivation::Gelu => 0.5 * wide * erfc(-wide / std::f64::consts::SQRT_2),
        HeadActivation::GeluTanh => {
            let inner =
                (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044_715 * wide * wide * wide);
            0.5 * wide * (1.0 + math::tanh(inner))
        }
        HeadActivation::Silu => wide / (1.0 + math::exp(-wide)),
        HeadActivation::Relu => wide.max(0.0),
    };
    value as f32
}

/// `1 - erf(x)`, by the series of the error function near 0 and by the continued fraction far away.
fn erfc(x: f64) -> f64 {
    let root = std::f64::consts::PI.sqrt();
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    if x < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..100 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return 1.0 - 2.0 / root * sum;
    }
    let fraction = (1..100).rev().fold(x, |rest, n| x + f64::from(n) / 2.0 / rest);
    math::exp(-x * x) / fraction / root
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f32, want: f64) {
        assert!((f64::from(got) - want).abs() < 1e-6 * want.abs().max(1.0), "{got} is not {want}");
    }

    #[test]
    fn functions_have_known_values() {
        // erf(0.5) and erf(2), from tables.
        close(erfc(0.5) as f32, 1.0 - 0.520_499_877_8);
        close(erfc(-2.0) as f32, 1.0 + 0.995_322_265_0);
        close((erfc(4.0) * 1e8) as f32, 1.541_725_790_0);
        close(applied(HeadActivation::Gelu, 1.0), 0.841_344_746_1);
        close(applied(HeadActivation::Tanh, 1.0), 0.761_594_155_9);
        assert_eq!(applied(HeadActivation::Relu, -3.0), 0.0);
    }

    #[test]
    fn a_state_passes_projection_norm_and_projection() {
        let dense =
            HeadProjection { weight: vec![1.0, 2.0, 0.0, -1.0], bias: vec![0.5, 0.0], inputs: 2 };
        let out = HeadProjection { weight: vec![3.0, 1.0], bias: vec![0.25], inputs: 2 };
        let norm = LayerNorm { weight: vec![2.0, 4.0], bias: vec![1.0, 0.0], eps: 0.0 };
        let head = |norm| Classifier {
            dense: Some((dense.clone(), HeadActivation::Identity)),
            norm,
            out: out.clone(),
        };
        // dense: (1 + 4 + 0.5, -2); normed: (1, -1) times the weight, plus the bias.
        assert_eq!(head(None).scores(&[1.0, 2.0]), [3.0 * 5.5 - 2.0 + 0.25]);
        assert_eq!(head(Some(norm)).scores(&[1.0, 2.0]), [3.0 * 3.0 - 4.0 + 0.25]);
    }
}
