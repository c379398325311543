//! Computes the answer of a receipt again.

use crate::kv_dir;
use crate::recorded_model::RecordedModelArgs;
use anyhow::{Context, Result, bail};
use api::{Receipt, SamplingOptions, Service};
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use engine::trace::TraceSettings;
use engine::{EngineOptions, KvMemory, LoadOptions};
use formats::Checkpoint;
use gannet::{Builder, Engine};
use serde_json::{Map, Value, json};
use server::ServerOptions;
use std::path::Path;
use tower::ServiceExt;

/// Most bytes of a request.
const MAX_BYTES: u64 = 1 << 28;

/// The computation of an answer whose receipt is known.
pub(super) struct Recomputation<'a> {
    pub recorded: &'a RecordedModelArgs,
    pub chat_template: Option<&'a Path>,
    pub receipt: &'a Receipt,
    pub checkpoint: &'a Checkpoint,
    pub path: &'a Path,
}

impl Recomputation<'_> {
    /// Computes the answer to a prompt of these ids.
    pub fn of_ids(&self, prompt: &[u32]) -> Result<Receipt> {
        let engine = self.engine()?;
        Ok(engine.service().compute_again(self.receipt, prompt)?)
    }

    /// Computes the answer to the request in a file, whose body the server's own routes read: that
    /// of `url`, or the one that the body's members suggest.
    pub fn of_request(&self, file: &Path, url: Option<&str>) -> Result<Receipt> {
        let body = formats::read_text(file, MAX_BYTES)?;
        let context = || format!("{}: expected the JSON body of a request", file.display());
        let mut body: Map<String, Value> = serde_json::from_str(&body).with_context(context)?;
        let url = url.unwrap_or_else(|| route_of(&body));
        // One answer, whose seed the receipt has, from the only model that there is.
        for name in ["seed", "model"] {
            body.shift_remove(name);
        }
        for name in ["n", "best_of"] {
            body.entry(name).and_modify(|count| *count = json!(1));
        }
        body.insert("stream".into(), json!(false));
        body.insert("receipt".into(), json!(true));
        let engine = self.engine()?;
        let sampling =
            SamplingOptions { seed: self.receipt.request.sampling.seed, ..Default::default() };
        let service = engine.service().clone().with_defaults(&sampling)?;
        let answer = ask(service, url, &Value::Object(body));
        let answer = answer.with_context(|| file.display().to_string())?;
        let receipt = answer["receipt"].to_string();
        Receipt::parse(&receipt).map_err(anyhow::Error::msg)
    }

    /// The model with the settings of the receipt.
    fn engine(&self) -> Result<Engine> {
        let Self { recorded, receipt, .. } = self;
        let load = recorded.options(&receipt.settings, self.context())?;
        let load = LoadOptions { kv_memory: KvMemory::OneSequence, ..load };
        let options = EngineOptions { running: 1, ..EngineOptions::default() };
        let builder = Engine::builder().load_options(load).engine_options(options);
        let builder = kv_dir::digests().into_iter().fold(builder, Builder::digests);
        let fallback = recorded.model.files.gguf_options().pre_fallback;
        let builder = fallback.into_iter().fold(builder, Builder::pre_fallback);
        let builder = self.chat_template.into_iter().fold(builder, Builder::chat_template);
        let engine = builder.load(self.path)?;
        self.check_machine(engine.service())?;
        Ok(engine)
    }

    /// Tokens of the context: as many as the answer takes, but where a sequence that may become
    /// long is computed with other angles, as many as it might have taken.
    fn context(&self) -> usize {
        let Receipt { request, answer, .. } = self.receipt;
        let room = match self.checkpoint.config().long_from() {
            Some(_) => request.max_tokens,
            None if answer.finish == "length" => answer.ids.tokens,
            None => answer.logits.len() + 1,
        };
        request.prompt.tokens.saturating_add(room.max(1))
    }

    /// Checks that this machine computes with the arithmetic of the receipt.
    fn check_machine(&self, service: &Service) -> Result<()> {
        let here = service.identity.as_ref().context("the model has no settings")?.settings();
        let TraceSettings { arithmetic, machine, .. } = &self.receipt.settings;
        if *arithmetic != here.arithmetic {
            let found = &here.arithmetic;
            bail!("expected the arithmetic {arithmetic} of the receipt, found {found} here");
        }
        if *machine != here.machine {
            bail!("the products of this CPU are rounded as those of the receipt's are not");
        }
        Ok(())
    }
}

/// The route for a body without one.
fn route_of(body: &Map<String, Value>) -> &'static str {
    match body {
        _ if body.contains_key("messages") => "/v1/chat/completions",
        _ if body.contains_key("input") => "/v1/responses",
        _ => "/v1/completions",
    }
}

/// The answer of the server's routes.
fn ask(service: Service, url: &str, body: &Value) -> Result<Value> {
    let router = server::router(service, ServerOptions::default());
    let runtime = crate::runtime::runtime()?;
    runtime.block_on(async {
        let request = Request::post(url).header(header::CONTENT_TYPE, "application/json");
        let Ok(response) = router.oneshot(request.body(Body::from(body.to_string()))?).await;
        let (head, body) = response.into_parts();
        let answer: Value = serde_json::from_slice(&to_bytes(body, usize::MAX).await?)
            .context("expected an answer in JSON")?;
        match head.status.is_success() {
            true => Ok(answer),
            false => {
                let message = answer["error"]["message"].as_str().map(str::to_owned);
                bail!("{}: {}", head.status, message.unwrap_or_else(|| answer.to_string()))
            }
        }
    })
}
