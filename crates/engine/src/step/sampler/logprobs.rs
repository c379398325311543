//! Log probabilities of the chosen token and of the best alternatives.

use super::candidates::Candidates;
use super::scratch::SamplerScratch;
use crate::load::error::Error;
use crate::request::fields::TokenLogprobs;
use base::math;

/// Log-softmax of unmodified logits `[vocab_size]` at `chosen` and at the `top` most likely ids.
///
/// # Errors
///
/// [`Error::NotFinite`] if a logit is NaN or infinite.
pub(crate) fn logprobs(
    logits: &[f32],
    chosen: u32,
    top: usize,
    scratch: &mut SamplerScratch,
) -> Result<TokenLogprobs, Error> {
    let survey = &mut scratch.workspace.survey;
    // The sampler may have surveyed modified logits.
    if !survey.look(logits) {
        return Err(Error::NotFinite);
    }
    let best = survey.best;
    let mut candidates = Candidates::new(logits, &mut scratch.workspace);
    let log_total = math::ln(candidates.mass(1.0));
    let log_prob = |logit: f32| (f64::from(logit - best) - log_total) as f32;
    let top = candidates.list(top).iter().map(|&(logit, id)| (id, log_prob(logit))).collect();
    Ok(TokenLogprobs { logprob: log_prob(logits[chosen as usize]), top })
}
