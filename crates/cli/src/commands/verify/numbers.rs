//! Logits, ranks, greedy continuations and likelihoods of one prompt.

use super::reference::{Bounds, ReferencePrompt};
use super::report::VerifyReport;
use crate::commands::likelihood::nll;
use anyhow::Result;
use engine::SingleSequence;

/// Results of one pass over the prompt.
struct PromptPass {
    last_logits: Vec<f32>,
    mean_nll: f64,
    /// Positions whose five best tokens differ from the reference although no two are close.
    wrong_ranks: usize,
}

pub(super) fn check(
    session: &mut SingleSequence<'_>,
    chunk: usize,
    index: usize,
    prompt: &ReferencePrompt,
    bounds: &Bounds,
    report: &mut VerifyReport,
) -> Result<()> {
    let pass = every_position(session, prompt, bounds.gap)?;
    let at = |what: &str| format!("prompt {index} ({} tokens): {what}", prompt.input_ids.len());
    let difference = max_abs(&pass.last_logits, &prompt.last_logits);
    report.at_most(at("last logits, largest difference"), difference, bounds.max_abs);
    let cosine = cosine(&pass.last_logits, &prompt.last_logits);
    report.at_least(at("last logits, cosine"), cosine, bounds.min_cosine);
    if bounds.max_abs.is_some() {
        let differ = pass.wrong_ranks as f64;
        report.at_most(at("five best, positions that differ"), differ, Some(0.0));
    }
    if let Some(want) = prompt.mean_nll {
        let difference = (pass.mean_nll - want).abs();
        report.at_most(at("mean NLL, difference"), difference, bounds.mean_nll);
    }
    let (right, wanted) = greedy(session, chunk, prompt, bounds.gap)?;
    report.equal(at("greedy tokens"), right, wanted);
    Ok(())
}

/// Computes the logits of every position: ranks, likelihood of the next token, and the last logits.
fn every_position(
    session: &mut SingleSequence<'_>,
    prompt: &ReferencePrompt,
    gap: f64,
) -> Result<PromptPass> {
    let ids = &prompt.input_ids;
    let mut pass = PromptPass { last_logits: Vec::new(), mean_nll: 0.0, wrong_ranks: 0 };
    session.truncate(0)?;
    session.feed_all(ids, |position, logits| {
        let last = position + 1 == ids.len();
        let listed = prompt.top5_ids.get(position);
        let want = listed.or(if last { prompt.top5_ids_last.as_ref() } else { None });
        pass.wrong_ranks += usize::from(want.is_some_and(|want| !ranks_agree(logits, want, gap)));
        if last {
            pass.last_logits = logits.to_vec();
        } else {
            pass.mean_nll += nll(logits, ids[position + 1]);
        }
        Ok(())
    })?;
    pass.mean_nll /= (ids.len() - 1).max(1) as f64;
    Ok(pass)
}

/// Continues greedily after the prompt. Returns how many tokens agree up to the first step that is
/// not decided by `gap`, and how many should.
fn greedy(
    session: &mut SingleSequence<'_>,
    chunk: usize,
    prompt: &ReferencePrompt,
    gap: f64,
) -> Result<(usize, usize)> {
    let steps = &prompt.greedy_ids;
    let decided = (0..steps.len()).take_while(|step| prompt.is_decided(*step, gap)).count();
    session.truncate(0)?;
    let mut next = top(session.feed(&prompt.input_ids, chunk)?, 1)[0];
    for (right, want) in steps[..decided].iter().enumerate() {
        if next != *want {
            return Ok((right, decided));
        }
        if right + 1 < decided {
            next = top(session.feed(&[next], 1)?, 1)[0];
        }
    }
    Ok((decided, decided))
}

/// The `count` best ids, best first, the lower of equals first.
fn top(logits: &[f32], count: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    ids.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
    ids.truncate(count);
    ids
}

/// Whether the best ids are those of `want`, or two neighbours differ by less than `gap`.
fn ranks_agree(logits: &[f32], want: &[u32], gap: f64) -> bool {
    let ids = top(logits, want.len() + 1);
    let close = |pair: &[u32]| {
        f64::from(logits[pair[0] as usize]) - f64::from(logits[pair[1] as usize]) < gap
    };
    ids[..want.len().min(ids.len())] == *want || ids.windows(2).any(close)
}

pub(super) fn max_abs(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).abs()).fold(0.0, f64::max)
}

pub(super) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_may_swap_only_where_logits_are_close() {
        let logits = [5.0, 4.0, 3.0, 2.0, 1.0, 0.0, -1.0];
        assert!(ranks_agree(&logits, &[0, 1, 2, 3, 4], 0.1));
        assert!(!ranks_agree(&logits, &[1, 0, 2, 3, 4], 0.1));
        let close = [5.0, 4.99, 3.0, 2.0, 1.0, 0.0, -1.0];
        assert!(ranks_agree(&close, &[1, 0, 2, 3, 4], 0.1));
    }

    #[test]
    fn nll_and_cosine_follow_their_definitions() {
        assert!((nll(&[0.0, 0.0], 1) - 2f64.ln()).abs() < 1e-12);
        assert!((cosine(&[1.0, 0.0], &[1.0, 1.0]) - 0.5f64.sqrt()).abs() < 1e-12);
    }
}
