//! The prompts that recorded requests of all protocols make with the templates of all families,
//! against digests that were made before messages had types of their own.

use crate::bodies;
use crate::family::{FAMILIES, Family};
use crate::harness::listener;
use api::{ModelCard, Service, ServiceParts};
use engine::{
    Event, Finished, ModelInfo, Outcome, RequestReceiver, Submission, Timings, Usage,
    request_channel,
};
use formats::GenerationDefaults;
use server::{ServerOptions, serve};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use text::{ChatTemplate, TextAssets};

const PROTOCOLS: [&str; 4] = ["openai", "responses", "anthropic", "ollama"];
const SEEDS: u64 = 50;
const CONTEXT: usize = 100_000;

/// Tells the prompt of each request, and generates nothing.
fn play(mut receiver: RequestReceiver, prompts: &Sender<Vec<u32>>) {
    while let Some(Submission { request, events, .. }) = receiver.submissions.blocking_recv() {
        let usage = Usage { prompt_tokens: request.prompt.len(), ..Usage::default() };
        prompts.send(request.prompt).expect("the test waits");
        let timings = Timings { queued_s: 0.0, prefill_s: 0.0, decode_s: 0.0 };
        let finished = Finished { outcome: Outcome::Length, usage, timings };
        let _ = events.blocking_send(Event::Finished(finished));
    }
}

struct Stage {
    assets: TextAssets,
    base: String,
    client: reqwest::Client,
    prompts: Receiver<Vec<u32>>,
}

impl Stage {
    /// A server of a model of this family, if its template is at hand.
    fn of(family: &Family) -> Option<Self> {
        let template = ChatTemplate::from_source(&family.template()?).expect("it is a template");
        let vocab_size = family.assets().tokenizer.vocab_size();
        let info = ModelInfo {
            name: "test/family".into(),
            architecture: "script".into(),
            arithmetic: "f32".into(),
            context_length: CONTEXT,
            vocab_size,
            cache_tokens: CONTEXT,
            task: engine::ModelTask::Generate,
            hidden_size: 2,
            token_types: 1,
            uses_marks: true,
        };
        let (engine, receiver) = request_channel(info, 8);
        let (sender, prompts) = channel();
        std::thread::spawn(move || play(receiver, &sender));
        let service = Service::new(ServiceParts {
            engine,
            assets: family.assets(),
            template: Some(template),
            defaults: GenerationDefaults::default(),
            stop_ids: Vec::new(),
            tool_format: None,
            card: ModelCard::default(),
            parallel: 1,
        });
        let listener = listener();
        let base = format!("http://{}", listener.local_addr().expect("it is bound"));
        let forever = std::future::pending::<()>();
        tokio::spawn(serve(listener, service, ServerOptions::default(), forever));
        Some(Self { assets: family.assets(), base, client: reqwest::Client::new(), prompts })
    }

    /// The prompt that a body makes, with and without its control tokens, or the error it meets.
    async fn rendered(&self, protocol: &str, seed: u64) -> String {
        let (path, body) = bodies::body(protocol, seed);
        let request = self.client.post(format!("{}{path}", self.base)).json(&body);
        let response = request.send().await.expect("the server answers");
        let status = response.status().as_u16();
        let text = response.text().await.expect("the body arrives");
        match self.prompts.try_recv() {
            Ok(ids) if status == 200 => {
                let decode = |skip| self.assets.tokenizer.decode(&ids, skip);
                dateless(&format!("{}\0{}", decode(false), decode(true)))
            }
            _ => format!("{status} {text}"),
        }
    }
}

/// Some templates write the date of today. The digests were made with the date that Llama's
/// template has where it is given none.
fn dateless(text: &str) -> String {
    let now = chrono::Local::now();
    let spellings = [
        ("%d %b %Y", "26 Jul 2024"),
        ("%d %B %Y", "DATE"),
        ("%Y-%m-%d", "DATE"),
        ("%B %d, %Y", "DATE"),
    ];
    spellings.iter().fold(text.to_owned(), |text, (date, instead)| {
        text.replace(&now.format(date).to_string(), instead)
    })
}

fn digest(text: &str) -> String {
    Sha256::digest(text)[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lines of a family, a protocol and the digests of all seeds.
fn goldens() -> HashMap<(String, String), Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rendered.txt");
    let text = std::fs::read_to_string(path).expect("the goldens are there");
    let line = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let mut word = || words.next().expect("lines have two names");
        ((word(), word()), words.collect())
    };
    text.lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rendered_prompts_are_unchanged() {
    let goldens = goldens();
    let mut seen = 0;
    for family in &FAMILIES {
        let Some(stage) = Stage::of(family) else { continue };
        for protocol in PROTOCOLS {
            let expected = &goldens[&(family.name.to_owned(), protocol.to_owned())];
            for seed in 0..SEEDS {
                let text = stage.rendered(protocol, seed).await;
                let (path, body) = bodies::body(protocol, seed);
                let found = digest(&text);
                let name = family.name;
                assert_eq!(found, expected[seed as usize], "{name} {path} {body}\n{text}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 2 * 200, "only {seen} prompts were rendered");
}
