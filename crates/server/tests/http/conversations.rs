//! Conversations over the wire, and what a state folder keeps of them and of responses.

use crate::harness::{Server, error, ok, until};
use crate::support::Act;
use serde_json::{Value, json};
use server::ServerOptions;
use state::StateDir;
use std::path::Path;
use std::time::Duration;

const PATH: &str = "/v1/conversations";
const SAID: Act = Act::Say("hello<|im_end|>");
/// An answer that does not end while a test looks on.
const LONG: [Act; 2] = [Act::Say("x"), Act::Pause(Duration::from_secs(30))];

/// A new conversation's id.
async fn create(server: &Server, body: Value) -> String {
    let conversation = ok(server.post(PATH, &body).await).await;
    assert_eq!(conversation["object"], "conversation");
    conversation["id"].as_str().unwrap().to_owned()
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": text})
}

fn asked(conversation: &str, extra: Value) -> Value {
    let mut body = json!({"model": "any", "input": "hi", "conversation": conversation});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

async fn ask(server: &Server, conversation: &str, extra: Value) -> Value {
    ok(server.post("/v1/responses", &asked(conversation, extra)).await).await
}

/// The texts of all items, the oldest first.
async fn texts(server: &Server, conversation: &str) -> String {
    let path = format!("{PATH}/{conversation}/items?order=asc&limit=100&include[]=x");
    let list = ok(server.get(&path).await).await;
    let text = |item: &Value| item["content"][0]["text"].as_str().unwrap().to_owned();
    list["data"].as_array().unwrap().iter().map(text).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn responses_add_what_was_asked_and_said() {
    let server = Server::start([SAID]).await;
    let id = create(&server, json!({"items": [user("a")], "metadata": {"k": "v"}})).await;
    let response = ask(&server, &id, json!({"conversation": {"id": id}})).await;
    assert_eq!(response["conversation"], json!({"id": id}));
    ask(&server, &id, json!({"store": false, "input": "again"})).await;
    assert_eq!(texts(&server, &id).await, "a hi hello again hello");
    let added = server.post(&format!("{PATH}/{id}/items"), &json!({"items": [user("b")]})).await;
    let added = ok(added).await;
    assert_eq!(added["data"].as_array().unwrap().len(), 1);
    let item = format!("{PATH}/{id}/items/{}", added["first_id"].as_str().unwrap());
    assert_eq!(ok(server.get(&item).await).await["role"], "user");
    let left = ok(server.client.delete(server.url(&item)).send().await.unwrap()).await;
    assert_eq!((&left["id"], &left["metadata"]), (&json!(id), &json!({"k": "v"})));
    error(server.get(&item).await, 404).await;
    assert_eq!(texts(&server, &id).await, "a hi hello again hello");
}

#[tokio::test]
async fn a_conversation_is_locked_until_its_response_ends() {
    let server = Server::start(LONG).await;
    let id = create(&server, json!({})).await;
    let mut running = server.post("/v1/responses", &asked(&id, json!({"stream": true}))).await;
    running.chunk().await.unwrap().unwrap();
    let refused = error(server.post("/v1/responses", &asked(&id, json!({}))).await, 409).await;
    assert_eq!(refused["code"], "conversation_locked");
    let items = json!({"items": [user("a")]});
    error(server.post(&format!("{PATH}/{id}/items"), &items).await, 409).await;
    // Reading, counting and describing change no item.
    ok(server.get(&format!("{PATH}/{id}")).await).await;
    ok(server.post("/v1/responses/input_tokens", &asked(&id, json!({}))).await).await;
    ok(server.post(&format!("{PATH}/{id}"), &json!({"metadata": {}})).await).await;
    drop(running);
    until("the conversation is free", async || {
        server.post(&format!("{PATH}/{id}/items"), &items).await.status() == 200
    })
    .await;
    assert_eq!(texts(&server, &id).await, "a");
}

#[tokio::test]
async fn failed_responses_add_nothing() {
    let server = Server::start([Act::Say("x"), Act::Fail("broken")]).await;
    let id = create(&server, json!({})).await;
    error(server.post("/v1/responses", &asked(&id, json!({}))).await, 500).await;
    let stream = server.post("/v1/responses", &asked(&id, json!({"stream": true}))).await;
    assert!(stream.text().await.unwrap().contains("response.failed"));
    assert_eq!(texts(&server, &id).await, "");
    create(&server, json!({"items": []})).await;
}

#[tokio::test]
async fn what_cannot_be_added_is_refused_by_name() {
    let server = Server::start([]).await;
    for (body, param) in [
        (json!({"items": {}}), "items"),
        (json!({"items": vec![user("x"); 21]}), "items"),
        (json!({"items": [{"type": "message", "role": "user"}]}), "items[0].content"),
        (json!({"items": [{"type": "item_reference", "id": "x"}]}), "items[0].id"),
        (json!({"metadata": {"a": 1}}), "metadata.a"),
        (json!({"metadata": []}), "metadata"),
    ] {
        let error = error(server.post(PATH, &body).await, 400).await;
        assert_eq!(error["param"], param, "{body}: {error}");
    }
    for path in ["/v1/conversations/conv_1", "/v1/conversations/conv_1/items"] {
        assert_eq!(error(server.get(path).await, 404).await["code"], "conversation_not_found");
    }
}

fn options(folder: &Path) -> (ServerOptions, StateDir) {
    let state = StateDir::open(folder).unwrap();
    let stall_timeout = Duration::from_secs(1);
    let options = ServerOptions {
        state: Some(state.clone()),
        grace: Duration::ZERO,
        stall_timeout,
        ..ServerOptions::default()
    };
    (options, state)
}

async fn start(folder: &Path, script: impl Into<Vec<Act>>) -> (Server, StateDir) {
    let (options, state) = options(folder);
    (Server::start_with(script, 64, options).await, state)
}

async fn end((mut server, state): (Server, StateDir)) {
    server.shut_down();
    server.ended().await.unwrap();
    state.finish();
}

#[tokio::test]
async fn tools_and_settings_of_items_outlive_the_server() {
    let count = async |server: &Server, body: Value| {
        ok(server.post("/v1/responses/input_tokens", &body).await).await
    };
    let tools = json!([{"type": "function", "name": "look"}]);
    let items = json!([{"type": "additional_tools", "role": "developer", "tools": tools},
        {"type": "configuration_update", "reasoning": {"effort": "none"}}]);
    let folder = tempfile::tempdir().unwrap();
    let first = start(folder.path(), [SAID]).await;
    let id = create(&first.0, json!({"items": items})).await;
    let before = count(&first.0, asked(&id, json!({}))).await;
    end(first).await;
    let second = start(folder.path(), [SAID]).await;
    assert_eq!(count(&second.0, asked(&id, json!({}))).await, before);
    let same = json!({"input": "hi", "tools": tools, "reasoning": {"effort": "none"}});
    assert_eq!(count(&second.0, same).await, before);
    let response = ask(&second.0, &id, json!({})).await;
    assert_eq!(response["reasoning"]["effort"], "none");
    end(second).await;
}

#[tokio::test]
async fn responses_and_conversations_outlive_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let first = start(folder.path(), [SAID]).await;
    let id = create(&first.0, json!({"metadata": {"k": "v"}})).await;
    let response = ask(&first.0, &id, json!({})).await;
    end(first).await;
    let second = start(folder.path(), [SAID]).await;
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    assert_eq!(ok(second.0.get(&path).await).await, response);
    ask(&second.0, &id, json!({})).await;
    assert_eq!(texts(&second.0, &id).await, "hi hello hi hello");
    end(second).await;
}

#[tokio::test]
async fn background_responses_that_a_server_left_are_made_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let first = start(folder.path(), LONG).await;
    let id = create(&first.0, json!({})).await;
    let response = ask(&first.0, &id, json!({"background": true})).await;
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    until("the response is begun", async || {
        ok(first.0.get(&path).await).await["status"] == "in_progress"
    })
    .await;
    end(first).await;
    let second = start(folder.path(), [SAID]).await;
    until("the response is complete", async || {
        ok(second.0.get(&path).await).await["status"] == "completed"
    })
    .await;
    assert_eq!(ok(second.0.get(&path).await).await["created_at"], response["created_at"]);
    assert_eq!(texts(&second.0, &id).await, "hi hello");
    end(second).await;
}
