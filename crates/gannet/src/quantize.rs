//! Smaller files from model files.

use crate::error::Error;
use convert::{Mixture, QuantizeOptions};
use std::path::Path;

/// Writes the model at `source`, a folder or a file, as the GGUF file `out`. `mixture` names the
/// storage types of its tensors, such as `q4_k_m` or `q8_0`.
///
/// ```
/// # let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("tiny-q8_0.gguf");
/// gannet::quantize(source, &out, "q8_0")?;
/// let answer = gannet::Engine::load(&out)?.chat("What is the capital of France?")?;
/// assert_eq!(answer.text, "The capital of France is Paris.");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// An unknown mixture, a model that cannot be read or whose weights are quantised already, and a
/// file that exists at `out`. No incomplete file is left there.
pub fn quantize(
    source: impl AsRef<Path>,
    out: impl AsRef<Path>,
    mixture: &str,
) -> Result<(), Error> {
    let (source, out) = (source.as_ref(), out.as_ref());
    let quantized = Mixture::named(mixture).map_err(anyhow::Error::msg).and_then(|mixture| {
        convert::quantize(source, out, &QuantizeOptions::new(mixture), &mut ())
    });
    let error = |error: anyhow::Error| Error::Quantize {
        path: source.to_owned(),
        // One line with all causes.
        source: format!("{error:#}").into(),
    };
    quantized.map(drop).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_mixture_is_refused_with_those_there_are() {
        let error = quantize("model", "out.gguf", "q9").unwrap_err().to_string();
        assert!(error.starts_with("cannot quantise model: expected one of q2_k"), "{error}");
    }
}
