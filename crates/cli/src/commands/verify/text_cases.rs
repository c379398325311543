//! Tokenizer and chat template cases.

use super::reference::{ChatCase, Reference, ReferencePair, TokenizerCase};
use super::report::VerifyReport;
use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use text::{EncodeOptions, EncodedPair, GgufOptions, TextAssets, Tokenizer};

pub(super) fn check(path: &Path, reference: &Reference, report: &mut VerifyReport) -> Result<()> {
    let assets = TextAssets::load(path, &GgufOptions::default())?;
    let tokenizer = &assets.tokenizer;
    let prompts = reference.prompts.iter().filter_map(|p| {
        let text = p.text.as_ref()?;
        Some(encodes(tokenizer, text, p.add_special_tokens, &p.input_ids))
    });
    tally(report, "prompts tokenized", prompts);
    let texts = reference
        .texts
        .iter()
        .filter_map(|text| Some(encodes(tokenizer, text.text.as_ref()?, true, &text.input_ids)));
    tally(report, "texts tokenized", texts);
    let pairs = reference.pairs.iter().filter_map(|pair| pair_case(tokenizer, pair));
    tally(report, "pairs tokenized", pairs);
    let cases = reference.tokenizer_cases.iter().map(|case| tokenizer_case(tokenizer, case));
    tally(report, "tokenizer cases", cases);
    if !reference.chat.is_empty() {
        let results = reference.chat.iter().map(|case| chat_case(&assets, case));
        let results = results.collect::<Result<Vec<_>>>()?;
        if results.contains(&None) {
            report.not_comparable("chat cases without text and ids".into(), "nothing is expected");
        }
        tally(report, "chat cases", results.into_iter().flatten());
    }
    Ok(())
}

fn tally(report: &mut VerifyReport, name: &str, results: impl IntoIterator<Item = bool>) {
    let results: Vec<bool> = results.into_iter().collect();
    if !results.is_empty() {
        let right = results.iter().filter(|ok| **ok).count();
        report.equal(name.into(), right, results.len(), "no cases");
    }
}

fn encodes(tokenizer: &Tokenizer, text: &str, add_special: bool, want: &[u32]) -> bool {
    let options = EncodeOptions { add_special, parse_special: true };
    tokenizer.encode(text, options).is_ok_and(|ids| ids == want)
}

/// Whether a pair is put together as in the reference; `None` if it has no texts.
fn pair_case(tokenizer: &Tokenizer, pair: &ReferencePair) -> Option<bool> {
    let (query, document) = (pair.query.as_deref()?, pair.document.as_deref()?);
    let query = tokenizer.encode(query, EncodeOptions::default());
    let found = query.and_then(|query| tokenizer.encode_pair(&query, document, usize::MAX));
    let same = |found: EncodedPair| {
        let types = pair.token_type_ids.as_ref();
        found.ids == pair.input_ids && types.is_none_or(|types| found.types == *types)
    };
    Some(found.is_ok_and(same))
}

fn tokenizer_case(tokenizer: &Tokenizer, case: &TokenizerCase) -> bool {
    let decodes = |want: &Option<String>, skip: bool| {
        want.as_ref().is_none_or(|want| tokenizer.decode(&case.ids, skip) == *want)
    };
    let with_special = case.ids_with_special.as_ref();
    encodes(tokenizer, &case.text, false, &case.ids)
        && with_special.is_none_or(|want| encodes(tokenizer, &case.text, true, want))
        && decodes(&case.decoded, false)
        && decodes(&case.decoded_skip_special, true)
}

/// Whether a chat is rendered as in the reference; `None` if the reference says nothing of it.
fn chat_case(assets: &TextAssets, case: &ChatCase) -> Result<Option<bool>> {
    let template = assets.templates.get(None, case.input.contains_key("tools"))?;
    let input = Value::Object(case.input.clone());
    let Ok(rendered) = template.render(&input, &assets.special, None) else {
        return Ok(Some(case.rendered.is_none() && case.ids.is_none()));
    };
    let renders = case.rendered.as_ref().map(|want| rendered == *want);
    let encodes = |want: &Vec<u32>| encodes(&assets.tokenizer, &rendered, false, want);
    let found: Vec<bool> = renders.into_iter().chain(case.ids.as_ref().map(encodes)).collect();
    Ok((!found.is_empty()).then(|| !found.contains(&false)))
}
