//! What a caller learns of the cache: a header, `GET /v1/stats?request=ID`, and nothing of others.

use crate::harness::{Server, error, ok};
use crate::support::{Act, scripted};
use api::CacheCause;
use reqwest::Response;
use serde_json::{Value, json};
use server::{ApiKeys, ServerOptions};

const CHAT: &str = "/v1/chat/completions";
const HEADER: &str = "x-gannet-cache";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/prompt-cache.md");

/// A server whose cache finds what earlier prompts begin with.
fn server(keys: &[&str]) -> Server {
    let options = ServerOptions { keys: ApiKeys::new(keys).unwrap(), ..ServerOptions::default() };
    Server::serve(scripted([Act::Cache, Act::Say("It is noon.<|im_end|>")]), options)
}

/// A conversation of an agent, in whose system prompt there is the time.
fn agent(time: &str) -> Value {
    let system = format!("Help. It is {time}.");
    json!([{"role": "system", "content": system}, {"role": "user", "content": "What now?"}])
}

async fn post(server: &Server, path: &str, id: &str, key: &str, body: &Value) -> Response {
    let request = server.client.post(server.url(path)).header("x-request-id", id);
    let response = request.bearer_auth(key).json(body).send().await.unwrap();
    assert_eq!(response.status(), 200, "{path} {body}");
    response
}

async fn reports(server: &Server, id: &str, key: &str) -> Response {
    let request = server.client.get(server.url(&format!("/v1/stats?request={id}")));
    request.bearer_auth(key).send().await.unwrap()
}

/// The routes that generate, each with the body of an agent at this time.
fn routes(time: &str) -> Vec<(&'static str, Value)> {
    let (messages, text) = (agent(time), format!("It is {time}. What now?"));
    let (system, user) = (messages[0]["content"].clone(), json!([messages[1]]));
    let whole = |mut body: Value| {
        body["stream"] = false.into();
        body
    };
    vec![
        (CHAT, json!({"messages": messages})),
        ("/v1/completions", json!({"prompt": text})),
        ("/v1/responses", json!({"instructions": system, "input": "What now?", "store": false})),
        ("/v1/messages", json!({"system": system, "messages": user, "max_tokens": 40})),
        ("/api/chat", whole(json!({"messages": messages}))),
        ("/api/generate", whole(json!({"system": system, "prompt": "What now?"}))),
        ("/completion", json!({"prompt": text})),
    ]
}

#[tokio::test]
async fn every_protocol_says_why_a_prompt_was_not_cached() {
    for ((path, first), (_, second)) in routes("12:01").into_iter().zip(routes("12:02")) {
        let server = server(&[]);
        let header = |response: &Response| response.headers()[HEADER].to_str().unwrap().to_owned();
        let one = header(&post(&server, path, "one", "", &first).await);
        assert!(one.starts_with("found=0; looked-up="), "{path}: {one}");
        assert!(one.ends_with("; cause=first-prompt"), "{path}: {one}");
        let two = header(&post(&server, path, "two", "", &second).await);
        let report = ok(reports(&server, "two", "").await).await;
        assert_eq!((&report["request"], &report["model"]), (&json!("two"), &json!("test/model")));
        let prompt = &report["prompts"][0];
        let [found, looked_up] = ["found", "looked_up"].map(|name| prompt[name].as_u64().unwrap());
        assert!(found > 0 && found < looked_up, "{path}: {prompt}");
        let expected = format!("found={found}; looked-up={looked_up}; cause=unknown-prefix");
        assert_eq!((two, &prompt["cause"]), (expected, &json!("unknown-prefix")), "{path}");
        let difference = &prompt["difference"];
        let chats = !["/v1/completions", "/completion"].contains(&path);
        let place = ["message", "role", "part"].map(|name| difference[name].clone());
        let system = [json!(0), json!("system"), json!("content")];
        assert_eq!(place, if chats { system } else { Default::default() }, "{path}");
        let text = |name: &str| difference[name].as_str().unwrap();
        assert!(text("before").ends_with("It is 12:0"), "{path}: {difference}");
        assert!(text("earlier").starts_with("1.") && text("now").starts_with("2."), "{path}");
    }
}

#[tokio::test]
async fn the_header_of_a_stream_says_what_is_known_before_it_begins() {
    for (at, (path, mut body)) in routes("12:01").into_iter().enumerate() {
        let server = server(&[]);
        let tokens = ok(post(&server, path, "one", "", &body).await).await;
        body["stream"] = true.into();
        let response = post(&server, path, "two", "", &body).await;
        let header = response.headers()[HEADER].to_str().unwrap().to_owned();
        response.text().await.unwrap();
        let prompt = ok(reports(&server, "two", "").await).await["prompts"][0].clone();
        let tokens_of_prompt = &prompt["prompt_tokens"];
        let expected = format!("prompt={tokens_of_prompt}; own-prefix={tokens_of_prompt}");
        assert_eq!(header, expected, "{path}: {tokens}");
        assert_eq!((&prompt["cause"], &prompt["difference"]), (&json!("none"), &Value::Null));
        assert_eq!(prompt["found"], prompt["looked_up"], "{at}");
    }
}

#[tokio::test]
async fn a_caller_sees_its_own_requests_and_texts_alone() {
    let server = server(&["one", "two"]);
    let body = |time| json!({"messages": agent(time)});
    post(&server, CHAT, "a", "one", &body("12:01")).await;
    post(&server, CHAT, "b", "two", &body("12:02")).await;
    post(&server, CHAT, "c", "two", &body("12:03")).await;
    let of_two = ok(reports(&server, "b", "two").await).await;
    assert_eq!(of_two["prompts"][0]["cause"], "first-prompt");
    let texts = ok(reports(&server, "c", "two").await).await;
    assert!(texts["prompts"][0]["difference"]["earlier"].as_str().unwrap().starts_with("2."));
    for (id, key) in [("a", "two"), ("b", "one"), ("c", "one"), ("d", "one")] {
        let error = error(reports(&server, id, key).await, 404).await;
        assert_eq!(error["code"], "unknown_request", "{id} {key}");
    }
    assert_eq!(reports(&server, "a", "none").await.status(), 401);
}

#[tokio::test]
async fn callers_behind_a_proxy_without_keys_are_not_compared() {
    let server = server(&[]);
    let ask = async |id: &str, time: &str| {
        let request = server.client.post(server.url(CHAT)).header("x-request-id", id);
        let request = request.header("x-forwarded-for", "192.0.2.1");
        let response = request.json(&json!({"messages": agent(time)})).send().await.unwrap();
        response.headers()[HEADER].to_str().unwrap().to_owned()
    };
    ask("a", "12:01").await;
    assert!(ask("b", "12:02").await.ends_with("cause=unknown-prefix"));
    error(reports(&server, "b", "").await, 404).await;
    post(&server, CHAT, "c", "", &json!({"messages": agent("12:03")})).await;
    let own = ok(reports(&server, "c", "").await).await;
    assert_eq!(own["prompts"][0]["cause"], "first-prompt");
}

#[tokio::test]
async fn every_prompt_of_a_request_has_a_report() {
    let server = server(&[]);
    let body = json!({"prompt": ["one two", "one three"], "n": 2});
    let response = post(&server, "/v1/completions", "many", "", &body).await;
    let header = response.headers()[HEADER].to_str().unwrap().to_owned();
    let report = ok(reports(&server, "many", "").await).await;
    let prompts = report["prompts"].as_array().unwrap();
    assert_eq!(prompts.len(), 2);
    let sum = |name: &str| -> u64 { prompts.iter().map(|it| it[name].as_u64().unwrap()).sum() };
    let counts = format!("found={}; looked-up={}; ", sum("found"), sum("looked_up"));
    assert!(header.starts_with(&counts), "{header}: {report}");
}

#[test]
fn the_page_about_the_cache_has_all_causes_and_no_others() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let table = page.split_once("| cause | ").unwrap().1.split("\n\n").next().unwrap();
    let name = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let named: Vec<String> = table.lines().filter_map(name).collect();
    assert_eq!(named, CacheCause::ALL.map(|(_, name, _)| name));
}

#[tokio::test]
async fn the_query_is_described() {
    let document = ok(server(&[]).get("/openapi.json").await).await;
    let stats = &document["paths"]["/v1/stats"]["get"];
    let parameters = stats["parameters"].as_array().unwrap();
    assert!(parameters.iter().any(|it| it["name"] == "request" && it["in"] == "query"));
    assert!(stats["responses"]["404"].is_object(), "{stats}");
}
