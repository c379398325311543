//! The request of `POST /v1/completions`: the continuation of one or several raw texts.

use crate::fault::Fault;
use crate::fields::{Fields, wrong};
use crate::openai::sampling::{self, MOST_CHOICES};
use api::{Prompt, SamplingOptions, Terms, TextRequest};
use serde_json::Value;

/// A text completion as asked for.
#[derive(Debug)]
pub(crate) struct CompletionCall {
    /// One per prompt.
    pub requests: Vec<TextRequest>,
    pub terms: Terms,
    /// Answers wanted to each prompt.
    pub choices: usize,
    /// Answers computed to each prompt, of which the best are given.
    pub best_of: usize,
    /// Tell log probabilities.
    pub logprobs: bool,
    pub stream: bool,
    /// End a stream with the usage.
    pub stream_usage: bool,
    /// Begin each answer with its prompt.
    pub echo: bool,
}

/// Reads the body of a request.
pub(crate) fn read(body: &Value) -> Result<CompletionCall, Fault> {
    let fields = Fields::of_body(body)?;
    let (stream, stream_usage) = sampling::stream(&fields)?;
    let choices = sampling::choices(&fields)?;
    let logprobs = logprobs(&fields)?;
    let best_of = best_of(&fields, choices, stream)?;
    // The best are found by their log probabilities.
    let hidden = (best_of > choices).then_some(0);
    let sampling = SamplingOptions { logprobs: logprobs.or(hidden), ..sampling::read(&fields)? };
    let add_special = fields.flag("add_special_tokens")?.unwrap_or(true);
    let prompts = prompts(&fields)?;
    if prompts.len() * best_of > MOST_CHOICES {
        let message = format!("{} prompts with n = {best_of} are too many", prompts.len());
        return Err(Fault::invalid("prompt", message));
    }
    refuse_unsupported(&fields, logprobs)?;
    let request =
        |prompt| TextRequest { prompt, add_special, sampling: sampling.clone(), grammar: None };
    Ok(CompletionCall {
        requests: prompts.into_iter().map(request).collect(),
        terms: sampling::terms(&fields)?,
        choices,
        best_of,
        logprobs: logprobs.is_some(),
        stream,
        stream_usage,
        echo: fields.flag("echo")?.unwrap_or(false),
    })
}

/// How many answers are computed for each prompt, at least as many as are given. Which are the best
/// is known at their end, so they cannot be streamed.
fn best_of(fields: &Fields<'_>, choices: usize, stream: bool) -> Result<usize, Fault> {
    let best_of = fields.count("best_of")?.unwrap_or(choices);
    let wrong = |message: String| Err(Fault::invalid("best_of", message));
    match best_of {
        _ if best_of < choices => wrong(format!("best_of must be at least n, which is {choices}")),
        _ if best_of > MOST_CHOICES => wrong(format!("best_of must be at most {MOST_CHOICES}")),
        _ if best_of > choices && stream => wrong("best_of cannot be streamed".into()),
        _ => Ok(best_of),
    }
}

fn refuse_unsupported(fields: &Fields<'_>, logprobs: Option<usize>) -> Result<(), Fault> {
    if fields.text("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(Fault::invalid("suffix", "suffix is not supported"));
    }
    if fields.flag("echo")? == Some(true) && logprobs.is_some() {
        let message = "echo with logprobs is not supported: prompt tokens have none";
        return Err(Fault::invalid("echo", message));
    }
    Ok(())
}

/// OpenAI's old form is a number of alternatives; `true` and `false` are taken too.
fn logprobs(fields: &Fields<'_>) -> Result<Option<usize>, Fault> {
    match fields.value("logprobs") {
        Some(Value::Bool(on)) => Ok(on.then_some(0)),
        _ => fields.count("logprobs"),
    }
}

/// A string, an array of strings, an array of ids, or an array of arrays of ids.
fn prompts(fields: &Fields<'_>) -> Result<Vec<Prompt>, Fault> {
    let missing = || Fault::invalid("prompt", "prompt is missing");
    match fields.value("prompt").ok_or_else(missing)? {
        Value::String(text) => Ok(vec![text.as_str().into()]),
        Value::Array(items) => match items.first() {
            None => Err(Fault::invalid("prompt", "prompt is an empty array")),
            Some(Value::Number(_)) => Ok(vec![Prompt::Ids(sampling::token_ids(items, "prompt")?)]),
            Some(_) => several(items),
        },
        other => Err(wrong("prompt", "a string or an array", other)),
    }
}

fn several(items: &[Value]) -> Result<Vec<Prompt>, Fault> {
    let one = |(at, item): (usize, &Value)| match item {
        Value::String(text) => Ok(text.as_str().into()),
        Value::Array(ids) => sampling::token_ids(ids, &format!("prompt[{at}]")).map(Prompt::Ids),
        other => Err(wrong(&format!("prompt[{at}]"), "a string or an array of token ids", other)),
    };
    items.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check_prompts(prompt: Value, expected: &[Prompt]) {
        let call = read(&json!({ "prompt": prompt })).unwrap();
        let prompts: Vec<Prompt> = call.requests.into_iter().map(|one| one.prompt).collect();
        assert_eq!(prompts, expected);
    }

    fn check_fault(body: Value, param: &str) {
        let fault = read(&body).expect_err(&body.to_string());
        assert_eq!(fault.body()["error"]["param"], param, "{body}");
    }

    #[test]
    fn prompts_come_in_four_forms() {
        check_prompts(json!("a"), &["a".into()]);
        check_prompts(json!(["a", "b"]), &["a".into(), "b".into()]);
        check_prompts(json!([1, 2]), &[Prompt::Ids(vec![1, 2])]);
        check_prompts(json!([[1], [2, 3]]), &[Prompt::Ids(vec![1]), Prompt::Ids(vec![2, 3])]);
    }

    #[test]
    fn faults_name_the_prompt() {
        check_fault(json!({}), "prompt");
        check_fault(json!({"prompt": []}), "prompt");
        check_fault(json!({"prompt": {}}), "prompt");
        check_fault(json!({"prompt": [1, "a"]}), "prompt[1]");
        check_fault(json!({"prompt": ["a", true]}), "prompt[1]");
        check_fault(json!({"prompt": [[1, -1]]}), "prompt[0][1]");
        check_fault(json!({"prompt": ["a", "b"], "n": 65}), "prompt");
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        check_fault(json!({"prompt": "a", "suffix": "b"}), "suffix");
        check_fault(json!({"prompt": "a", "best_of": 3, "stream": true}), "best_of");
        check_fault(json!({"prompt": "a", "best_of": 1, "n": 2}), "best_of");
        check_fault(json!({"prompt": "a", "best_of": 129}), "best_of");
        check_fault(json!({"prompt": ["a", "b"], "best_of": 65}), "prompt");
        check_fault(json!({"prompt": "a", "speculate": "ngram:0"}), "speculate");
        check_fault(json!({"prompt": "a", "priority": 1u64 << 40}), "priority");
        check_fault(json!({"prompt": "a", "echo": true, "logprobs": 1}), "echo");
    }
}
