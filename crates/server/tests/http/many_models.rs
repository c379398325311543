//! A server of many models: which are loaded, when, and what clients see of it.

use crate::harness::{Server, chat_body, error, events, ok, until};
use crate::support::{Act, Scripted, scripted};
use api::{ModelDescription, Service};
use engine::ModelInfo;
use serde_json::{Value, json};
use server::{
    KeepAlive, LoadError, LoadModel, ModelCollection, ModelEntry, RunningModel, ServerOptions,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What was done to the models, in order.
type Deeds = Arc<Mutex<Vec<String>>>;

/// A model played by a script.
#[derive(Clone, Debug)]
struct FakeModel {
    name: &'static str,
    bytes: usize,
    /// How long it loads.
    pause: Duration,
    script: Vec<Act>,
    /// Why it cannot be loaded.
    problem: Arc<Mutex<Option<&'static str>>>,
    deeds: Deeds,
}

#[derive(Debug)]
struct FakeRunning {
    model: FakeModel,
    service: Service,
}

impl FakeModel {
    fn new(name: &'static str, deeds: &Deeds) -> Self {
        let (pause, problem) = (Duration::ZERO, Arc::default());
        let script = vec![Act::Say(name)];
        Self { name, bytes: 100, pause, script, problem, deeds: Arc::clone(deeds) }
    }

    fn note(&self, deed: &str) {
        self.deeds.lock().unwrap().push(format!("{deed} {}", self.name));
    }

    fn entry(self) -> ModelEntry {
        ModelEntry {
            name: self.name.to_owned(),
            aliases: vec![format!("{}-alias", self.name)],
            pinned: false,
            keep_alive: None,
            loader: Arc::new(self),
        }
    }

    fn service(&self) -> Service {
        let Scripted { mut service, .. } = scripted(self.script.clone());
        let info = ModelInfo { name: self.name.to_owned(), ..service.info().clone() };
        service.engine.info = Arc::new(info);
        service
    }
}

impl LoadModel for FakeModel {
    fn file_bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn describe(&self) -> Result<ModelDescription, LoadError> {
        Ok(self.service().description())
    }

    fn load(&self, memory: Option<usize>) -> Result<Box<dyn RunningModel>, LoadError> {
        std::thread::sleep(self.pause);
        if let Some(problem) = *self.problem.lock().unwrap() {
            self.note("fail");
            return Err(LoadError { message: problem.to_owned(), needs_memory: false });
        }
        if memory.is_some_and(|memory| memory < self.bytes) {
            self.note("starve");
            return Err(LoadError { message: "too little memory".to_owned(), needs_memory: true });
        }
        self.note("load");
        Ok(Box::new(FakeRunning { model: self.clone(), service: self.service() }))
    }
}

impl RunningModel for FakeRunning {
    fn service(&self) -> &Service {
        &self.service
    }

    fn bytes(&self) -> usize {
        self.model.bytes
    }

    fn unload(self: Box<Self>) {
        let is_used = Arc::strong_count(&self.service.defaults) > 1;
        self.model.note(if is_used { "unload while in use" } else { "unload" });
    }
}

/// The deeds so far, which are forgotten.
fn taken(deeds: &Deeds) -> Vec<String> {
    std::mem::take(&mut deeds.lock().unwrap())
}

fn serve(models: Vec<ModelEntry>, memory: Option<usize>, keep_alive: KeepAlive) -> Server {
    let options =
        ServerOptions { ping_interval: Duration::from_millis(20), ..ServerOptions::default() };
    let collection = ModelCollection { models, memory, keep_alive };
    Server::serve_models(collection, scripted([]), options)
}

fn two(deeds: &Deeds) -> Vec<ModelEntry> {
    ["a", "b"].map(|name| FakeModel::new(name, deeds).entry()).into()
}

async fn chat(server: &Server, model: &str) -> Value {
    ok(server.post("/v1/chat/completions", &chat_body(json!({"model": model}))).await).await
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

/// The states of all models.
async fn states(server: &Server) -> Vec<String> {
    let list = ok(server.get("/v1/models").await).await;
    let list = list["data"].as_array().unwrap().iter();
    list.map(|model| model["status"]["value"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_model_is_loaded_when_a_request_names_it() {
    let deeds = Deeds::default();
    let server = serve(two(&deeds), None, KeepAlive::Forever);
    assert_eq!(states(&server).await, ["unloaded", "unloaded"]);
    assert_eq!(ok(server.get("/ready").await).await["status"], "ready");
    for name in ["b", "b-alias", "b:latest"] {
        let answer = chat(&server, name).await;
        assert_eq!((text(&answer), &answer["model"]), ("b", &json!("b")));
    }
    assert_eq!(states(&server).await, ["unloaded", "loaded"]);
    let list = ok(server.get("/v1/models").await).await;
    let arithmetic = |at: usize| list["data"][at].get("arithmetic");
    assert_eq!((arithmetic(0), arithmetic(1)), (None, Some(&json!("f32"))));
    assert_eq!(text(&chat(&server, "a").await), "a");
    assert_eq!(taken(&deeds), ["load b", "load a"]);
}

#[tokio::test]
async fn names_that_mean_no_model_are_refused_in_each_protocol() {
    let server = serve(two(&Deeds::default()), None, KeepAlive::Forever);
    let unknown = server.post("/v1/chat/completions", &chat_body(json!({"model": "c"}))).await;
    assert_eq!(error(unknown, 404).await["code"], "model_not_found");
    let tagged = server.post("/v1/chat/completions", &chat_body(json!({"model": "a:0.6b"}))).await;
    assert_eq!(error(tagged, 404).await["code"], "model_not_found");
    let missing = server.post("/v1/chat/completions", &chat_body(json!({"model": null}))).await;
    assert_eq!(error(missing, 400).await["param"], "model");
    assert_eq!(error(server.get("/v1/models/c").await, 404).await["code"], "model_not_found");
    let refused = server.post("/api/chat", &chat_body(json!({"model": "c"}))).await;
    assert_eq!(refused.status(), 404);
    assert_eq!(refused.json::<Value>().await.unwrap(), json!({"error": "no such model: c"}));
    let refused = server.post("/v1/messages", &chat_body(json!({"model": "c"}))).await;
    assert_eq!(refused.json::<Value>().await.unwrap()["error"]["type"], "not_found_error");
    let refused = server.get("/props").await;
    assert_eq!(refused.json::<Value>().await.unwrap()["error"]["code"], 400);
    assert_eq!(ok(server.get("/props?model=a").await).await["model_alias"], "a");
}

#[tokio::test]
async fn a_model_without_requests_is_unloaded_and_loaded_again() {
    let deeds = Deeds::default();
    let keep_alive = KeepAlive::For(Duration::from_millis(50));
    let server = serve(two(&deeds), None, keep_alive);
    chat(&server, "a").await;
    until("it is unloaded", async || states(&server).await[0] == "unloaded").await;
    assert_eq!(text(&chat(&server, "a").await), "a");
    until("it is unloaded", async || states(&server).await[0] == "unloaded").await;
    assert_eq!(taken(&deeds), ["load a", "unload a", "load a", "unload a"]);
}

#[tokio::test]
async fn a_model_in_use_is_not_unloaded() {
    let deeds = Deeds::default();
    let script = vec![Act::Say("x"), Act::Pause(Duration::from_millis(300)), Act::Say("y")];
    let slow = FakeModel { script, ..FakeModel::new("a", &deeds) };
    let server = serve(vec![slow.entry()], None, KeepAlive::NOT);
    let answers = tokio::join!(chat(&server, "a"), async {
        until("it is loaded", async || states(&server).await == ["loaded"]).await;
        ok(server.post("/models/unload", &json!({"model": "a"})).await).await
    });
    assert_eq!((text(&answers.0), answers.1), ("xy", json!({"success": true})));
    assert_eq!(taken(&deeds), ["load a", "unload a"]);
}

#[tokio::test]
async fn the_least_recently_used_models_are_unloaded_for_others() {
    let deeds = Deeds::default();
    let mut models: Vec<_> =
        ["a", "b", "c", "d"].map(|name| FakeModel::new(name, &deeds).entry()).into();
    models[0].pinned = true;
    // Three fit; a fourth needs a quarter more than its weights.
    let server = serve(models, Some(350), KeepAlive::Forever);
    until("it is loaded", async || states(&server).await[0] == "loaded").await;
    for name in ["b", "c", "b", "d", "a"] {
        chat(&server, name).await;
    }
    assert_eq!(states(&server).await, ["loaded", "loaded", "unloaded", "loaded"]);
    assert_eq!(taken(&deeds), ["load a", "load b", "load c", "unload c", "load d"]);
    let pinned = server.post("/models/unload", &json!({"model": "a"})).await;
    assert_eq!(pinned.status(), 409);
}

#[tokio::test]
async fn a_model_that_needs_more_than_it_seemed_gets_it() {
    let deeds = Deeds::default();
    let small = FakeModel { bytes: 150, ..FakeModel::new("a", &deeds) };
    /// A model of which the files say less than it takes.
    #[derive(Debug)]
    struct Understated(FakeModel);
    impl LoadModel for Understated {
        fn file_bytes(&self) -> u64 {
            1
        }
        fn describe(&self) -> Result<ModelDescription, LoadError> {
            self.0.describe()
        }
        fn load(&self, memory: Option<usize>) -> Result<Box<dyn RunningModel>, LoadError> {
            self.0.load(memory)
        }
    }
    let large = FakeModel { bytes: 180, ..FakeModel::new("b", &deeds) };
    let entry = large.clone().entry();
    let entry = ModelEntry { loader: Arc::new(Understated(large)), ..entry };
    let server = serve(vec![small.entry(), entry], Some(200), KeepAlive::Forever);
    chat(&server, "a").await;
    assert_eq!(text(&chat(&server, "b").await), "b");
    assert_eq!(taken(&deeds), ["load a", "starve b", "unload a", "load b"]);
}

#[tokio::test]
async fn requests_wait_for_a_model_that_makes_way_for_another() {
    let deeds = Deeds::default();
    let script = vec![Act::Say("x"), Act::Pause(Duration::from_millis(100)), Act::Say("y")];
    let slow = |name| FakeModel { script: script.clone(), ..FakeModel::new(name, &deeds) }.entry();
    let server = serve(vec![slow("a"), slow("b")], Some(150), KeepAlive::Forever);
    let all = ["a", "b", "a", "b", "a"].map(|name| chat(&server, name));
    let answers = futures_util::future::join_all(all).await;
    assert!(answers.iter().all(|answer| text(answer) == "xy"), "{answers:?}");
    assert!(taken(&deeds).iter().all(|deed| !deed.contains("in use")));
}

#[tokio::test]
async fn a_model_that_cannot_be_loaded_is_an_error_until_it_can() {
    let deeds = Deeds::default();
    let model = FakeModel::new("a", &deeds);
    let problem = Arc::clone(&model.problem);
    *problem.lock().unwrap() = Some("a.gguf: no magic");
    let server = serve(vec![model.entry()], None, KeepAlive::Forever);
    let refused = server.post("/v1/chat/completions", &chat_body(json!({"model": "a"}))).await;
    let refused = error(refused, 503).await;
    assert_eq!(refused["code"], "model_load_failed");
    assert_eq!(refused["message"], "the model a cannot be loaded: a.gguf: no magic");
    let listed = ok(server.get("/v1/models/a").await).await;
    assert_eq!(
        (&listed["status"]["failed"], &listed["status"]["error"]),
        (&json!(true), &json!("a.gguf: no magic"))
    );
    *problem.lock().unwrap() = None;
    assert_eq!(text(&chat(&server, "a").await), "a");
    assert_eq!(taken(&deeds), ["fail a", "load a"]);
}

/// A server whose model takes a while to load, or to fail.
fn slow_server(problem: Option<&'static str>) -> Server {
    let model = FakeModel::new("a", &Deeds::default());
    *model.problem.lock().unwrap() = problem;
    let model = FakeModel { pause: Duration::from_millis(200), ..model };
    serve(vec![model.entry()], None, KeepAlive::Forever)
}

/// The text of a stream that begins while its model loads.
async fn streamed(problem: Option<&'static str>, path: &str, mut body: Value) -> String {
    let server = slow_server(problem);
    (body["stream"], body["model"]) = (true.into(), "a".into());
    let answer = server.post(path, &body).await;
    assert_eq!(answer.status(), 200, "{path}");
    answer.text().await.unwrap()
}

#[tokio::test]
async fn streams_are_kept_open_while_their_model_loads() {
    let server = slow_server(None);
    let body = chat_body(json!({"model": "a", "stream": true}));
    let answer = server.post("/v1/chat/completions", &body).await;
    let events = events(answer).await;
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "stop");
    let chat = || chat_body(json!({"max_tokens": 9}));
    let text = streamed(None, "/v1/chat/completions", chat()).await;
    assert!(text.starts_with(": keep-alive\n"), "{text}");
    let text = streamed(None, "/v1/messages", chat()).await;
    assert!(text.starts_with("event: ping\n"), "{text}");
    assert!(text.contains("event: message_stop"), "{text}");
    let text = streamed(None, "/v1/responses", json!({"input": "hi"})).await;
    assert!(text.starts_with(": keep-alive\n"), "{text}");
    assert!(text.contains("event: response.completed"), "{text}");
    let text = streamed(None, "/api/chat", chat()).await;
    assert!(text.starts_with("{\"model\":\"a\""), "{text}");
}

#[tokio::test]
async fn a_failure_to_load_ends_a_stream_in_the_form_of_its_protocol() {
    let problem = Some("no magic");
    let text = streamed(problem, "/v1/chat/completions", chat_body(json!({}))).await;
    assert!(text.contains("event: error\ndata: {\"error\":{\"message\":\"the model a"), "{text}");
    let text = streamed(problem, "/v1/messages", chat_body(json!({"max_tokens": 9}))).await;
    assert!(text.contains("event: error\ndata: {\"type\":\"error\""), "{text}");
    let text = streamed(problem, "/v1/responses", json!({"input": "hi"})).await;
    assert!(text.contains("event: error\n") && text.contains("model_load_failed"), "{text}");
    let text = streamed(problem, "/completion", json!({"prompt": "hi"})).await;
    assert!(text.contains("\"type\":\"unavailable_error\""), "{text}");
    let text = streamed(problem, "/api/chat", chat_body(json!({}))).await;
    assert_eq!(text, "{\"error\":\"the model a cannot be loaded: no magic\"}\n");
}

#[tokio::test]
async fn models_are_loaded_and_unloaded_on_request() {
    let deeds = Deeds::default();
    let server = serve(two(&deeds), None, KeepAlive::Forever);
    let done = json!({"success": true});
    assert_eq!(ok(server.post("/models/load", &json!({"model": "a"})).await).await, done);
    assert_eq!(states(&server).await, ["loaded", "unloaded"]);
    for name in ["a", "b"] {
        assert_eq!(ok(server.post("/models/unload", &json!({"model": name})).await).await, done);
    }
    assert_eq!(taken(&deeds), ["load a", "unload a"]);
    let unknown = server.post("/models/load", &json!({"model": "c"})).await;
    let unknown: Value = unknown.json().await.unwrap();
    assert_eq!(unknown["error"]["type"], "not_found_error");
}

#[tokio::test]
async fn ollamas_clients_say_how_long_a_model_stays() {
    let deeds = Deeds::default();
    let server = serve(two(&deeds), None, KeepAlive::Forever);
    let tags = ok(server.get("/api/tags").await).await;
    assert_eq!(
        (&tags["models"][0]["name"], &tags["models"][1]["name"]),
        (&json!("a"), &json!("b"))
    );
    let show = ok(server.post("/api/show", &json!({"model": "a"})).await).await;
    assert_eq!(show["details"]["family"], "script");
    assert_eq!(ok(server.get("/api/ps").await).await, json!({"models": []}));
    let load = |keep: Value| json!({"model": "a", "stream": false, "keep_alive": keep});
    let loaded = ok(server.post("/api/generate", &load(json!("10m"))).await).await;
    assert_eq!(loaded["done_reason"], "load");
    let ps = ok(server.get("/api/ps").await).await;
    assert_eq!(
        (&ps["models"][0]["name"], ps["models"].as_array().unwrap().len()),
        (&json!("a"), 1)
    );
    let unloaded = ok(server.post("/api/generate", &load(json!(0))).await).await;
    assert_eq!(unloaded["done_reason"], "unload");
    until("it is unloaded", async || states(&server).await[0] == "unloaded").await;
    let again = ok(server.post("/api/chat", &load(json!(0))).await).await;
    assert_eq!(
        (&again["done_reason"], taken(&deeds)),
        (&json!("unload"), vec!["load a".into(), "unload a".into()])
    );
}

#[tokio::test]
async fn metrics_and_statistics_name_each_model() {
    let server = serve(two(&Deeds::default()), None, KeepAlive::Forever);
    chat(&server, "a").await;
    chat(&server, "b").await;
    let text = server.get("/metrics").await.text().await.unwrap();
    let types =
        text.lines().filter(|line| *line == "# TYPE gannet:prompt_tokens_total counter").count();
    assert_eq!(types, 1, "{text}");
    for name in ["a", "b"] {
        let sample = format!("gannet:prompt_tokens_total{{model_name=\"{name}\"}}");
        assert!(text.lines().any(|line| line.starts_with(&sample)), "{text}");
    }
    let stats = ok(server.get("/v1/stats?format=json").await).await;
    assert_eq!(
        (&stats["models"][0]["model"], &stats["models"][1]["model"]),
        (&json!("a"), &json!("b"))
    );
}

#[tokio::test]
async fn a_model_whose_engine_ends_is_loaded_again() {
    let deeds = Deeds::default();
    let script = vec![Act::Say("x"), Act::Die];
    let dying = FakeModel { script, ..FakeModel::new("a", &deeds) };
    let server = serve(vec![dying.entry()], None, KeepAlive::Forever);
    for _ in 0..2 {
        let body = chat_body(json!({"model": "a"}));
        let broken = server.post("/v1/chat/completions", &body).await;
        assert!(broken.status().is_server_error(), "{broken:?}");
    }
    assert_eq!(ok(server.get("/health").await).await["status"], "ok");
    assert_eq!(taken(&deeds), ["load a", "unload a", "load a"]);
}

#[tokio::test]
async fn loaded_models_are_unloaded_when_the_server_ends() {
    let deeds = Deeds::default();
    let mut server = serve(two(&deeds), None, KeepAlive::Forever);
    chat(&server, "b").await;
    server.shut_down();
    server.ended().await.unwrap();
    assert_eq!(taken(&deeds), ["load b", "unload b"]);
}
