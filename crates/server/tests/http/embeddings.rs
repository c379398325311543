//! `POST /v1/embeddings`.

use crate::harness::{Server, error, ok};
use crate::support::{CONTEXT, ids};
use serde_json::{Value, json};

const PATH: &str = "/v1/embeddings";

#[tokio::test]
async fn vectors_come_in_the_order_of_their_texts() {
    let server = Server::start([]).await;
    let list = ok(server.post(PATH, &json!({"input": ["hello", "a"]})).await).await;
    let item =
        |index: usize| json!({"object": "embedding", "index": index, "embedding": [0.6, 0.8]});
    // Each begins with BOS.
    let tokens = ids("hello").len() + ids("a").len() + 2;
    let expected = json!({
        "object": "list",
        "data": [item(0), item(1)],
        "model": "test/model",
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    });
    assert_eq!(list, expected);
}

#[tokio::test]
async fn all_forms_of_input_are_taken() {
    let server = Server::start([]).await;
    for (input, count) in [
        (json!("a"), 1),
        (json!(["a", "b", "c"]), 3),
        (json!(ids("hello")), 1),
        (json!([ids("a"), ids("b")]), 2),
        (json!(vec!["a"; 200]), 200),
    ] {
        let list = ok(server.post(PATH, &json!({"input": input})).await).await;
        assert_eq!(list["data"].as_array().unwrap().len(), count);
    }
}

#[tokio::test]
async fn base64_holds_the_floats_lowest_byte_first() {
    let server = Server::start([]).await;
    let body = json!({"input": "a", "encoding_format": "base64", "dimensions": 2});
    let list = ok(server.post(PATH, &body).await).await;
    // 0.6 is 3f19999a, 0.8 is 3f4ccccd.
    assert_eq!(list["data"][0]["embedding"], "mpkZP83MTD8=");
}

#[tokio::test]
async fn the_ends_of_texts_are_left_out_beyond_a_number_of_tokens() {
    let server = Server::start([]).await;
    let tokens = async |extra: Value| {
        let mut body = json!({"input": "x".repeat(2 * CONTEXT)});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        ok(server.post(PATH, &body).await).await["usage"]["prompt_tokens"].clone()
    };
    assert_eq!(tokens(json!({"truncate_prompt_tokens": 7})).await, 7);
    assert_eq!(tokens(json!({"truncate_prompt_tokens": 9000, "truncate": false})).await, CONTEXT);
    for all in [json!({"truncate_prompt_tokens": -1}), json!({"truncate": true})] {
        assert_eq!(tokens(all).await, CONTEXT);
    }
}

#[tokio::test]
async fn what_cannot_be_embedded_is_named() {
    let server = Server::start([]).await;
    let check = async |body: Value, param: &str| {
        let error = error(server.post(PATH, &body).await, 400).await;
        assert_eq!(error["param"], param, "{error}");
    };
    check(json!({}), "input").await;
    check(json!({"input": "a", "dimensions": 3}), "dimensions").await;
    for tokens in [0, -2] {
        let body = json!({"input": "a", "truncate_prompt_tokens": tokens});
        check(body, "truncate_prompt_tokens").await;
    }
    check(json!({"input": [99999]}), "input[0]").await;
    check(json!({"input": ["a", [1, true]]}), "input[1][1]").await;
    let long = "x".repeat(CONTEXT + 1);
    let error = error(server.post(PATH, &json!({"input": ["a", long]})).await, 400).await;
    assert_eq!(
        (&error["param"], &error["code"]),
        (&json!("input[1]"), &json!("context_length_exceeded"))
    );
}
