//! Log probabilities of the chosen token and of the best alternatives.

use super::Scratch;
use crate::TokenLogprobs;

/// Of the unchanged `logits`: log-softmax of `chosen` and the `top` most likely ids.
pub(crate) fn logprobs(
    logits: &[f32],
    chosen: u32,
    top: usize,
    scratch: &mut Scratch,
) -> TokenLogprobs {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|l| f64::from(l - best).exp()).sum();
    let log_prob = |logit: f32| (f64::from(logit - best) - total.ln()) as f32;
    let ids = &mut scratch.ids;
    ids.clear();
    ids.extend(0..logits.len() as u32);
    let by_logit =
        |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    let top = top.min(ids.len());
    if top > 0 && top < ids.len() {
        ids.select_nth_unstable_by(top - 1, by_logit);
    }
    ids.truncate(top);
    ids.sort_unstable_by(by_logit);
    TokenLogprobs {
        logprob: log_prob(logits[chosen as usize]),
        top: ids.iter().map(|&id| (id, log_prob(logits[id as usize]))).collect(),
    }
}
