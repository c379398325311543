//! Logits, ranks, greedy continuations and likelihoods of one prompt.

use super::reference::{Bounds, ReferenceDraft, ReferencePrompt};
use super::report::VerifyReport;
use crate::commands::likelihood::nll;
use anyhow::{Result, bail};
use engine::SingleSequence;

/// Why no greedy token is compared.
const UNDECIDED: &str = "the reference decides no first token";
/// Why no five best tokens are compared.
const NO_RANKS: &str = "no position has five best tokens that are apart";
/// Why no drafted tokens are compared.
const NO_LAYERS: &str = "no layers that draft tokens are computed";
/// Why no likelihood is compared.
const ONE_TOKEN: &str = "one token has no next one";

/// Results of one pass over the prompt.
struct PromptPass {
    last_logits: Vec<f32>,
    mean_nll: f64,
    /// Positions whose five best tokens are in the reference, and no two of them are close.
    ranked: usize,
    /// Positions of these whose five best tokens differ from the reference.
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
    let at = |what: &str| format!("prompt {index} ({} tokens): {what}", prompt.input_ids.len());
    if let Some(draft) = prompt.drafts().next() {
        check_drafts(session, (&prompt.input_ids, chunk), (draft, bounds), report, at)?;
    }
    if prompt.of_head.is_some() {
        return Ok(());
    }
    let pass = every_position(session, prompt, bounds.gap)?;
    let difference = max_abs(&pass.last_logits, &prompt.last_logits);
    report.at_most(at("last logits, largest difference"), difference, bounds.max_abs);
    let cosine = cosine(&pass.last_logits, &prompt.last_logits);
    report.at_least(at("last logits, cosine"), cosine, bounds.min_cosine);
    if bounds.max_abs.is_some() {
        let (right, name) = (pass.ranked - pass.wrong_ranks, at("five best, positions that agree"));
        report.equal(name, right, pass.ranked, NO_RANKS);
    }
    let nll = at("mean NLL, difference");
    match prompt.mean_nll {
        Some(_) if prompt.input_ids.len() < 2 => report.not_comparable(nll, ONE_TOKEN),
        Some(want) => report.at_most(nll, (pass.mean_nll - want).abs(), bounds.mean_nll),
        None => {}
    }
    let (right, wanted) = greedy(session, chunk, prompt, bounds.gap)?;
    report.equal(at("greedy tokens"), right, wanted, UNDECIDED);
    Ok(())
}

/// Compares, in exact mode, what is drafted.
fn check_drafts(
    session: &mut SingleSequence<'_>,
    (prompt, chunk): (&[u32], usize),
    (draft, bounds): (&ReferenceDraft, &Bounds),
    report: &mut VerifyReport,
    at: impl Fn(&str) -> String,
) -> Result<()> {
    if bounds.max_abs.is_none() {
        return Ok(());
    }
    if !session.has_drafts() {
        report.not_comparable(at("drafted tokens"), NO_LAYERS);
        return Ok(());
    }
    let inputs: Vec<u32> = draft.steps.iter().map(|step| step.input_token).collect();
    session.truncate(0)?;
    session.feed(prompt, chunk)?;
    let mut found = Vec::new();
    session.draft(&inputs, |_, logits, words| {
        let best = top(logits, 1)[0];
        found.push((logits.to_vec(), words.map_or(best, |words| words[best as usize])));
        Ok(())
    })?;
    for (depth, (step, (logits, id))) in draft.steps.iter().zip(&found).enumerate() {
        let name = |what: &str| at(&format!("drafted token {}, {what}", depth + 1));
        if logits.len() != step.logits.len() {
            let (want, found) = (step.logits.len(), logits.len());
            bail!("{}: expected {want} as the reference has, found {found}", name("logits"));
        }
        let difference = max_abs(logits, &step.logits);
        report.at_most(name("largest difference"), difference, Some(draft.f32_max_abs));
        if let Some(want) = step.id.filter(|_| step.gap >= draft.f32_max_abs) {
            report.equal(name("tokens that agree"), usize::from(*id == want), 1, UNDECIDED);
        }
    }
    Ok(())
}

/// Computes the logits of every position: ranks, likelihood of the next token, and the last logits.
fn every_position(
    session: &mut SingleSequence<'_>,
    prompt: &ReferencePrompt,
    gap: f64,
) -> Result<PromptPass> {
    let ids = &prompt.input_ids;
    let mut pass = PromptPass { last_logits: Vec::new(), mean_nll: 0.0, ranked: 0, wrong_ranks: 0 };
    session.truncate(0)?;
    session.feed_all(ids, |position, logits| {
        let last = position + 1 == ids.len();
        let listed = prompt.top5_ids.get(position);
        let want = listed.or(if last { prompt.top5_ids_last.as_ref() } else { None });
        let agree = want.and_then(|want| ranks_agree(logits, want, gap));
        pass.ranked += usize::from(agree.is_some());
        pass.wrong_ranks += usize::from(agree == Some(false));
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
    if decided == 0 {
        return Ok((0, 0));
    }
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

/// Whether the best ids are those of `want`; `None` if there are none, or if they differ and two
/// neighbours are apart by less than `gap`.
fn ranks_agree(logits: &[f32], want: &[u32], gap: f64) -> Option<bool> {
    let ids = top(logits, want.len() + 1);
    let close = |pair: &[u32]| {
        f64::from(logits[pair[0] as usize]) - f64::from(logits[pair[1] as usize]) < gap
    };
    let agree = ids[..want.len().min(ids.len())] == *want;
    (!want.is_empty() && (agree || !ids.windows(2).any(close))).then_some(agree)
}

/// The largest difference; not a number where any is not.
pub(super) fn max_abs(a: &[f32], b: &[f32]) -> f64 {
    let differences = a.iter().zip(b).map(|(a, b)| f64::from(a - b).abs());
    differences.fold(0.0, |most, it| if it.is_nan() || it > most { it } else { most })
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
        assert_eq!(ranks_agree(&logits, &[0, 1, 2, 3, 4], 0.1), Some(true));
        assert_eq!(ranks_agree(&logits, &[1, 0, 2, 3, 4], 0.1), Some(false));
        let close = [5.0, 4.99, 3.0, 2.0, 1.0, 0.0, -1.0];
        assert_eq!(ranks_agree(&close, &[1, 0, 2, 3, 4], 0.1), None);
        assert_eq!(ranks_agree(&close, &[0, 1, 2, 3, 4], 0.1), Some(true));
        assert_eq!(ranks_agree(&logits, &[], 0.1), None);
    }

    #[test]
    fn one_value_that_is_not_a_number_is_the_largest_difference() {
        assert_eq!(max_abs(&[1.0, 5.0, 2.0], &[1.0, 2.0, 2.5]), 3.0);
        assert!(max_abs(&[f32::NAN, 5.0], &[1.0, 2.0]).is_nan());
        assert!(max_abs(&[5.0, f32::NAN, 1.0], &[1.0, 2.0, 1.0]).is_nan());
    }

    #[test]
    fn nll_and_cosine_follow_their_definitions() {
        assert!((nll(&[0.0, 0.0], 1) - 2f64.ln()).abs() < 1e-12);
        assert!((cosine(&[1.0, 0.0], &[1.0, 1.0]) - 0.5f64.sqrt()).abs() < 1e-12);
    }
}
