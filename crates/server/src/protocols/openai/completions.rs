//! `POST /v1/completions`: the continuation of one or several raw texts.

use crate::generate::constraint::{ConstraintBody, ConstraintField};
use crate::generate::flow::{self, Delivery, Generation, Reply};
use crate::generate::options::{MAX_CHOICES, OptionsBody};
use crate::http::described::described;
use crate::http::error::HttpError;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::http::wire::{self, body};
use crate::protocols::openai::answer::{Completion, Heading};
use crate::protocols::openai::completion_answer::{
    CompletionAnswer, Echo, TextChoice, TextLogprobs, TextStyle,
};
use crate::protocols::openai::problem::Problem;
use crate::protocols::openai::sampling::ChatSampling;
use crate::protocols::warnings::Warnings;
use api::{InfillRequest, Prepared, Prompt, RequestOptions, SamplingOptions, Service, TextRequest};
use axum::body::Body;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Most alternatives that a token is returned with.
const MAX_LOGPROBS: usize = 20;

/// The continuation of a text.
#[utoipa::path(post, path = "/v1/completions", tag = "OpenAI", request_body = CompletionRequest,
    responses((status = 200, content((Completion<TextChoice> = "application/json"),
        (Completion<TextChoice> = "text/event-stream"))), Refusals<Problem>))]
pub(crate) async fn text_completions(
    context: RequestContext,
    body: Body,
) -> Result<Response, HttpError> {
    flow::generate(context, body, prepare).await
}

body! {
    /// What a text completion is asked to be. Other members are ignored.
    pub(crate) struct CompletionRequest {
        text: CompletionBody,
        options: OptionsBody,
        constraint: ConstraintBody,
        sampling: ChatSampling,
    }
}

/// The prompts, and what the answer reports of them.
#[derive(Debug, Deserialize, ToSchema)]
struct CompletionBody {
    #[schema(value_type = Prompts)]
    prompt: Option<Prompts>,
    /// Begin each answer with its prompt.
    echo: Option<bool>,
    /// Return log probabilities, and those of so many likeliest tokens, at most 20; `true` for none
    /// of them.
    logprobs: Option<Alternatives>,
    /// With `echo` and `logprobs`, the index of the prompt's first token with log probabilities;
    /// those of earlier tokens are `null`, and these tokens may be found in the prefix cache; an
    /// extension.
    prompt_logprobs_from: Option<usize>,
    /// Answers computed to each prompt, of which the `n` likeliest are given.
    #[schema(minimum = 1, maximum = 128)]
    best_of: Option<usize>,
    /// What follows the gap that is to be filled, with models that have marks for it.
    suffix: Option<String>,
    /// Add the tokens that texts of this model begin with; true by default; an extension.
    add_special_tokens: Option<bool>,
    /// Return the ids of the answer's tokens; as in vLLM.
    return_token_ids: Option<bool>,
    /// Name tokens `token_id:` and their ids in log probabilities; as in vLLM.
    return_tokens_as_token_ids: Option<bool>,
}

described! {
    /// Texts, or token ids that are taken as they are.
    value Prompts as "CompletionPrompts" = (String) | (Vec<String>) | (Vec<u32>) | (Vec<Vec<u32>>);
    /// Number of alternatives reported with each token.
    value Alternatives as "CompletionAlternatives" = (usize) | (bool);
}

/// A text completion as asked for.
#[derive(Debug)]
struct CompletionCall {
    text: CompletionBody,
    /// One per prompt.
    requests: Vec<TextRequest>,
    /// What the answers are held to, and by which member.
    constraint: Option<ConstraintField>,
    options: RequestOptions,
    /// How many answers each prompt gets.
    choices: usize,
    /// How many answers are computed for each prompt, of which the best are given.
    best_of: usize,
    style: TextStyle,
    delivery: Delivery,
}

/// Reads the body of a request.
fn read(body: &Value) -> Result<CompletionCall, HttpError> {
    let CompletionRequest { text, options, constraint, sampling: ChatSampling(sampling) } =
        wire::read(body)?;
    let (choices, (stream, stream_usage)) = (options.choices()?, options.stream());
    let logprobs = text.logprobs()?;
    let best_of = text.best_of(choices, stream)?;
    let delivery = match best_of > choices {
        true => Delivery::Likeliest(choices),
        false => Delivery::of(stream),
    };
    // To echo a prompt takes no answer.
    let unasked = (sampling.max_tokens == Some(0)).then_some(0);
    let prompt_logprobs = logprobs.or(unasked).filter(|_| text.echo == Some(true));
    let prompt_logprobs_from = text.prompt_logprobs_from;
    if prompt_logprobs_from.is_some() && prompt_logprobs.is_none() {
        return Err(HttpError::member("prompt_logprobs_from", "needs echo with logprobs"));
    }
    // The best are found by their log probabilities, and what chunks tell needs their tokens.
    let (telemetry, token_ids) = (options.telemetry(), text.return_token_ids == Some(true));
    let hidden = (best_of > choices || telemetry.counts_tokens() || token_ids).then_some(0);
    let sampling = SamplingOptions {
        logprobs: logprobs.or(hidden),
        prompt_logprobs,
        prompt_logprobs_from,
        ..sampling
    };
    let add_special = text.add_special_tokens.unwrap_or(true);
    let prompts = prompts("prompt", text.prompt.as_deref())?;
    if prompts.len() * best_of > MAX_CHOICES {
        let message = format!("{} prompts with n = {best_of} are too many", prompts.len());
        return Err(HttpError::invalid("prompt", message));
    }
    let constraint = constraint.field()?;
    let grammar = constraint.as_ref().map(|constraint| constraint.source.clone());
    let request = |prompt| TextRequest {
        prompt,
        add_special,
        sampling: sampling.clone(),
        grammar: grammar.clone(),
    };
    let requests = prompts.into_iter().map(request).collect();
    let (logprobs, options) = (logprobs.is_some(), options.options()?);
    let names_are_ids = text.return_tokens_as_token_ids == Some(true);
    let (logprobs, per_prompt) = (logprobs.then_some(TextLogprobs::named(names_are_ids)), choices);
    let style = TextStyle { logprobs, token_ids, stream_usage, telemetry, per_prompt };
    Ok(CompletionCall { text, requests, constraint, options, choices, best_of, style, delivery })
}

/// Reads and prepares a request.
fn prepare(service: &Service, body: &Value) -> Result<Reply<CompletionAnswer>, HttpError> {
    let call = read(body)?;
    let service = &service.for_options(&call.options);
    let prompts = call.requests.iter().map(|request| call.prepared(service, request));
    let prompts = prompts.collect::<Result<Vec<Prepared>, _>>()?;
    let echoes = call.echoes(service, &prompts);
    let heading = Heading::new("cmpl-", &service.info().name);
    let mut warnings = Warnings::default();
    warnings.add_unused_of_vllm(body);
    Ok(Reply::Generate(Box::new(Generation {
        prompts,
        per_prompt: call.best_of,
        options: call.options,
        id: heading.id.clone(),
        answer: CompletionAnswer::new(heading, echoes, call.style, warnings),
        delivery: call.delivery,
    })))
}

impl CompletionCall {
    /// A prompt as it is, or as the beginning of a gap, which ids cannot be.
    fn prepared(&self, service: &Service, request: &TextRequest) -> Result<Prepared, HttpError> {
        let suffix = self.text.suffix.as_ref().filter(|suffix| !suffix.is_empty());
        let prompt = match (suffix, &request.prompt) {
            (None, _) => service.prepare_text(request),
            (Some(_), Prompt::Ids(_)) => {
                return Err(HttpError::member("suffix", "needs a prompt of text"));
            }
            (Some(suffix), Prompt::Text(prefix)) => {
                let (prefix, suffix) = (prefix.clone(), suffix.clone());
                let gap = InfillRequest { prefix, suffix, ..InfillRequest::default() };
                let (sampling, grammar) = (request.sampling.clone(), request.grammar.clone());
                flow::prepare_infill(service, &gap, sampling, grammar)
            }
        };
        prompt.map_err(|error| ConstraintField::error(self.constraint.as_ref(), error, "prompt"))
    }

    /// What each choice begins with, where the client wants its prompt back.
    fn echoes(&self, service: &Service, prompts: &[Prepared]) -> Vec<Option<Echo>> {
        if self.text.echo != Some(true) {
            return vec![None; prompts.len() * self.choices];
        }
        let echo = |(request, prepared): (&TextRequest, &Prepared)| {
            let text = match &request.prompt {
                Prompt::Text(text) => text.clone(),
                Prompt::Ids(ids) => service.decode(ids),
            };
            let unread = self.text.prompt_logprobs_from.unwrap_or(1).max(1);
            let ids = prepared.prompt().iter().take(unread);
            let token = |id: &u32| (*id, service.tokenizer().token_bytes(*id).to_vec());
            Some(Echo { text, unread: ids.map(token).collect() })
        };
        let each = self.requests.iter().zip(prompts);
        each.flat_map(|one| vec![echo(one); self.choices]).collect()
    }
}

impl CompletionBody {
    /// How many answers are computed for each prompt, at least as many as are given. Which are the
    /// best is known at their end, so they cannot be streamed.
    fn best_of(&self, choices: usize, stream: bool) -> Result<usize, HttpError> {
        let best_of = self.best_of.unwrap_or(choices);
        let wrong = |problem: String| Err(HttpError::member("best_of", problem));
        match best_of {
            _ if best_of < choices => wrong(format!("must be at least n, which is {choices}")),
            _ if best_of > MAX_CHOICES => wrong(format!("must be at most {MAX_CHOICES}")),
            _ if best_of > choices && stream => wrong("cannot be streamed".into()),
            _ => Ok(best_of),
        }
    }

    /// OpenAI's old form is a number of alternatives; `true` and `false` are taken too.
    fn logprobs(&self) -> Result<Option<usize>, HttpError> {
        match self.logprobs.as_deref() {
            None => Ok(None),
            Some(Value::Bool(on)) => Ok(on.then_some(0)),
            Some(number) => match wire::part(number, "logprobs")? {
                Some(top) if top > MAX_LOGPROBS => {
                    let problem = format!("must be at most {MAX_LOGPROBS}, not {top}");
                    Err(HttpError::member("logprobs", problem))
                }
                top => Ok(top),
            },
        }
    }
}

/// A string, an array of strings, an array of ids, or an array of arrays of ids, at `field`.
pub(crate) fn prompts(field: &str, given: Option<&Value>) -> Result<Vec<Prompt>, HttpError> {
    let given = given.ok_or_else(|| wire::missing(field))?;
    match given {
        Value::String(text) => Ok(vec![text.as_str().into()]),
        Value::Array(items) => match items.first() {
            None => Err(HttpError::member(field, "is an empty array")),
            Some(Value::Number(_)) => wire::part(given, field).map(|ids| vec![Prompt::Ids(ids)]),
            Some(_) => several(items, field),
        },
        _ => Err(HttpError::member(field, "must be a string or an array")),
    }
}

fn several(items: &[Value], field: &str) -> Result<Vec<Prompt>, HttpError> {
    let one = |(at, item): (usize, &Value)| match item {
        Value::String(text) => Ok(text.as_str().into()),
        Value::Array(_) => wire::part(item, &format!("{field}[{at}]")).map(Prompt::Ids),
        _ => {
            let problem = "must be a string or an array of token ids";
            Err(HttpError::member(&format!("{field}[{at}]"), problem))
        }
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

    fn check_error(body: Value, param: &str) {
        let error = read(&body).expect_err(&body.to_string());
        assert_eq!(error.body()["error"]["param"], param, "{body}");
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
        check_error(json!({}), "prompt");
        check_error(json!({"prompt": []}), "prompt");
        check_error(json!({"prompt": {}}), "prompt");
        check_error(json!({"prompt": [1, "a"]}), "prompt[1]");
        check_error(json!({"prompt": ["a", true]}), "prompt[1]");
        check_error(json!({"prompt": [[1, -1]]}), "prompt[0][1]");
        check_error(json!({"prompt": ["a", "b"], "n": 65}), "prompt");
    }

    #[test]
    fn logprobs_are_a_count_or_a_wish() {
        let read = |logprobs: Value| {
            let call = read(&json!({"prompt": "a", "logprobs": logprobs})).unwrap();
            call.requests[0].sampling.logprobs
        };
        assert_eq!(read(json!(null)), None);
        assert_eq!(read(json!(false)), None);
        assert_eq!(read(json!(true)), Some(0));
        assert_eq!(read(json!(3.0)), Some(3));
        check_error(json!({"prompt": "a", "logprobs": -1}), "logprobs");
        check_error(json!({"prompt": "a", "logprobs": "x"}), "logprobs");
    }

    #[test]
    fn echoes_tell_of_the_prompt_what_is_told_of_the_answer() {
        let asked = |extra: Value| {
            let mut body = json!({"prompt": "a"});
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            read(&body).unwrap().requests[0].sampling.prompt_logprobs
        };
        assert_eq!(asked(json!({"echo": true, "logprobs": 3})), Some(3));
        assert_eq!(asked(json!({"echo": true})), None);
        assert_eq!(asked(json!({"echo": true, "max_tokens": 0})), Some(0));
        assert_eq!(asked(json!({"logprobs": 3})), None);
    }

    #[test]
    fn log_probabilities_of_the_prompt_may_begin_later() {
        let from = |from: Value| {
            let body =
                json!({"prompt": "a", "echo": true, "logprobs": 0, "prompt_logprobs_from": from});
            read(&body).unwrap().requests[0].sampling.prompt_logprobs_from
        };
        assert_eq!(from(json!(7)), Some(7));
        assert_eq!(from(json!(null)), None);
        check_error(json!({"prompt": "a", "prompt_logprobs_from": 1}), "prompt_logprobs_from");
        let unread = json!({"prompt": "a", "logprobs": 1, "prompt_logprobs_from": 1});
        check_error(unread, "prompt_logprobs_from");
        check_error(json!({"prompt": "a", "prompt_logprobs_from": -1}), "prompt_logprobs_from");
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        check_error(json!({"prompt": "a", "suffix": 3}), "suffix");
        check_error(json!({"prompt": "a", "best_of": 3, "stream": true}), "best_of");
        check_error(json!({"prompt": "a", "best_of": 1, "n": 2}), "best_of");
        check_error(json!({"prompt": "a", "best_of": 129}), "best_of");
        check_error(json!({"prompt": ["a", "b"], "best_of": 65}), "prompt");
        check_error(json!({"prompt": "a", "speculate": "ngram:0"}), "speculate");
        check_error(json!({"prompt": "a", "logprobs": 21}), "logprobs");
        check_error(json!({"prompt": "a", "guided_regex": "a", "guided_json": {}}), "guided_regex");
    }
}
