//! Any bytes as the body of a request to the route that the first byte picks: whatever it says,
//! the server is not at fault.
#![no_main]

use api::{ModelCard, Service, ServiceParts};
use axum::body::Body;
use axum::http::Request;
use engine::{Event, Finished, ModelInfo, ModelTask, Outcome, Timings, Usage, request_channel};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::OnceLock;
use tokio::runtime::Runtime;
use tower::ServiceExt;

const ASSETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/api/tests/data");

/// What a route answers where the model or the server has no such thing.
const NOT_IMPLEMENTED: u16 = 501;

fuzz_target!(|data: &[u8]| {
    let Some((&first, body)) = data.split_first() else { return };
    let (runtime, router) = server();
    let request = Request::post(server::body_route(first));
    let request = request.body(Body::from(body.to_vec())).expect("the route is a path");
    let response = runtime.block_on(router.clone().oneshot(request)).expect("routes do not fail");
    let status = response.status().as_u16();
    assert!(status < 500 || status == NOT_IMPLEMENTED, "{status}");
});

/// The routes over an engine that ends every answer at once.
fn server() -> &'static (Runtime, axum::Router) {
    static SERVER: OnceLock<(Runtime, axum::Router)> = OnceLock::new();
    SERVER.get_or_init(|| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("threads start");
        (runtime, server::router(service(), server::ServerOptions::default()))
    })
}

fn service() -> Service {
    let info = ModelInfo {
        name: "fuzzed".into(),
        architecture: "none".into(),
        arithmetic: "f32".into(),
        context_length: 4096,
        vocab_size: 512,
        cache_tokens: 4096,
        task: ModelTask::Generate,
        hidden_size: 1,
        token_types: 1,
        uses_marks: true,
    };
    let (engine, mut receiver) = request_channel(info, 64);
    std::thread::spawn(move || {
        while let Some(submission) = receiver.submissions.blocking_recv() {
            if submission.request.embed.is_some() {
                let _ = submission.events.try_send(Event::Embedding(vec![1.0]));
            }
            let _ = submission.events.try_send(Event::Finished(Finished {
                outcome: Outcome::Length,
                usage: Usage::default(),
                timings: Timings::default(),
            }));
        }
    });
    Service::new(ServiceParts {
        engine,
        assets: text::TextAssets::from_folder(Path::new(ASSETS)).expect("the fixture is sound"),
        template: None,
        defaults: formats::GenerationDefaults::default(),
        stop_ids: Vec::new(),
        tool_format: None,
        card: card(),
        parallel: 1,
    })
}

fn card() -> ModelCard {
    ModelCard {
        file: "model".into(),
        format: "safetensors",
        digest: "0".into(),
        quantisation: "F32".into(),
        context_length: 4096,
        ..ModelCard::default()
    }
}
