//! Embeddings and scores of whole texts, alone and beside each other.

use super::numbers::{cosine, max_abs};
use super::reference::{Reference, ReferencePair, ReferenceText};
use super::report::VerifyReport;
use anyhow::{Result, bail};
use backend::Mode;
use engine::{
    Embed, EngineHandle, EngineOptions, Event, Generation, Outcome, Request, Runner, start,
};

/// Computes all texts or pairs of the reference and compares.
pub(super) fn check(
    runner: Runner,
    mode: Mode,
    reference: &Reference,
    report: &mut VerifyReport,
) -> Result<()> {
    let (texts, pairs) = (&reference.texts, &reference.pairs);
    let running = runner.limits().logit_rows;
    let (engine, thread) = start(runner, EngineOptions { running, ..EngineOptions::default() });
    let embed = Embed { pooling: reference.pooling()?, ..Embed::default() };
    let normalize = reference.normalize.unwrap_or(true);
    let of_text = |text: &ReferenceText| Request {
        prompt: text.input_ids.clone(),
        types: text.token_type_ids.clone().unwrap_or_default(),
        embed: Some(Embed { normalize, ..embed }),
        ..Request::default()
    };
    let of_pair = |pair: &ReferencePair| Request {
        prompt: pair.input_ids.clone(),
        types: pair.token_type_ids.clone().unwrap_or_default(),
        embed: Some(Embed { scores: true, ..embed }),
        ..Request::default()
    };
    let requests: Vec<_> = texts.iter().map(of_text).chain(pairs.iter().map(of_pair)).collect();
    let alone: Result<Vec<_>> =
        requests.iter().map(|request| vector(engine.submit(request.clone())?)).collect();
    let alone = alone?;
    let bounds = reference.text_bounds(mode);
    for (index, (text, vector)) in texts.iter().zip(&alone).enumerate() {
        if text.embedding.len() != vector.len() {
            let (expected, found) = (vector.len(), text.embedding.len());
            bail!("texts[{index}].embedding: expected {expected} values, found {found}");
        }
        let at = |what: &str| format!("text {index} ({} tokens): {what}", text.input_ids.len());
        let difference = max_abs(vector, &text.embedding);
        report.at_most(at("embedding, largest difference"), difference, bounds.max_abs);
        report.at_least(
            at("embedding, cosine"),
            cosine(vector, &text.embedding),
            bounds.min_cosine,
        );
    }
    for (index, (pair, scores)) in pairs.iter().zip(&alone[texts.len()..]).enumerate() {
        let at = format!("pair {index} ({} tokens): score, difference", pair.input_ids.len());
        let difference = (f64::from(scores[0]) - pair.score).abs();
        report.at_most(at, difference, Some(bounds.gap));
    }
    let same = same_beside_others(&engine, &requests, &alone)?;
    let others = if requests.len() > 1 { requests.len() } else { 0 };
    report.equal("same bits beside others".into(), same, others, "there is only one");
    drop(engine);
    thread.join().map_err(|_| anyhow::anyhow!("the engine failed"))
}

/// How many of the requests give the vectors that they give alone when all are computed together.
fn same_beside_others(
    engine: &EngineHandle,
    requests: &[Request],
    alone: &[Vec<f32>],
) -> Result<usize> {
    let bits =
        |vector: &[f32]| -> Vec<u32> { vector.iter().map(|value| value.to_bits()).collect() };
    let running: Result<Vec<_>, _> = requests.iter().cloned().map(|it| engine.submit(it)).collect();
    let mut same = 0;
    for (generation, alone) in running?.into_iter().zip(alone) {
        same += usize::from(bits(&vector(generation)?) == bits(alone));
    }
    Ok(same)
}

/// The vector of a request.
fn vector(mut generation: Generation) -> Result<Vec<f32>> {
    let mut found = None;
    while let Some(event) = generation.next_blocking() {
        match event {
            Event::Embedding(vector) => found = Some(vector),
            Event::Finished(finished) => {
                if let Outcome::Failed(problem) = finished.outcome {
                    bail!(problem);
                }
                break;
            }
            _ => {}
        }
    }
    found.ok_or_else(|| anyhow::anyhow!("the engine has stopped"))
}
