//! Reranking, by a model whose head gives 0.6 to every document.

use crate::harness::{Server, error, ok};
use crate::support::scripted_ranker;
use serde_json::{Value, json};
use server::ServerOptions;

fn server() -> Server {
    Server::serve(scripted_ranker(), ServerOptions::default())
}

/// The logistic function of 0.6.
const RELEVANCE: f64 = 0.645_656;

fn is_close(value: &Value, expected: f64) -> bool {
    value.as_f64().is_some_and(|value| (value - expected).abs() < 1e-6)
}

#[tokio::test]
async fn documents_are_ranked_in_the_forms_of_jina_and_cohere() {
    let server = server();
    let documents = json!(["b", {"text": "c"}, "d"]);
    for path in ["/v1/rerank", "/rerank", "/reranking", "/v1/reranking", "/v2/rerank"] {
        let body = json!({"query": "a", "documents": documents, "top_n": 2});
        let list = ok(server.post(path, &body).await).await;
        let results = list["results"].as_array().unwrap();
        assert_eq!(results.len(), 2, "{path}");
        // Equals are in their order.
        assert_eq!((&results[0]["index"], &results[1]["index"]), (&json!(0), &json!(1)));
        assert!(is_close(&results[0]["relevance_score"], RELEVANCE), "{list}");
        assert!(results[0].get("document").is_none());
        assert_eq!(list["usage"]["prompt_tokens"], list["usage"]["total_tokens"]);
    }
    let body = json!({"query": "a", "documents": documents, "return_documents": true,
        "raw_scores": true});
    let list = ok(server.post("/v1/rerank", &body).await).await;
    assert_eq!(list["results"][1]["document"]["text"], "c");
    assert!(is_close(&list["results"][1]["relevance_score"], 0.6), "{list}");
    for name in ["use_activation", "activation"] {
        let body = json!({"query": "a", "documents": ["b"], name: false, "max_tokens_per_doc": 9});
        let list = ok(server.post("/v1/rerank", &body).await).await;
        assert!(is_close(&list["results"][0]["relevance_score"], 0.6), "{list}");
        assert!(list["warnings"][0].as_str().unwrap().starts_with("max_tokens_per_doc"));
    }
}

#[tokio::test]
async fn texts_are_ranked_in_the_form_of_tei() {
    let body = json!({"query": "a", "texts": ["b", "c"], "return_text": true});
    let list = ok(server().post("/rerank", &body).await).await;
    assert_eq!((&list[0]["index"], &list[1]["text"]), (&json!(0), &json!("c")));
    assert!(is_close(&list[0]["score"], RELEVANCE), "{list}");
}

#[tokio::test]
async fn texts_are_scored_with_each_other() {
    let server = server();
    for (first, second, count) in [
        (json!("a"), json!("b"), 1),
        (json!("a"), json!(["b", "c", "d"]), 3),
        (json!(["a", "e"]), json!(["b", "c"]), 2),
    ] {
        let body = json!({"text_1": first, "text_2": second, "use_activation": false});
        let list = ok(server.post("/v1/score", &body).await).await;
        assert_eq!(list["data"].as_array().unwrap().len(), count);
        assert!(is_close(&list["data"][0]["score"], 0.6), "{list}");
    }
    let body = json!({"text_1": ["a", "b"], "text_2": ["c", "d", "e"]});
    let error = error(server.post("/score", &body).await, 400).await;
    assert_eq!(error["param"], "text_1");
}

#[tokio::test]
async fn what_cannot_be_ranked_is_named() {
    let server = server();
    let long = "x".repeat(200_000);
    for (body, param) in [
        (json!({"documents": ["b"]}), "query"),
        (json!({"query": "", "documents": ["b"]}), "query"),
        (json!({"query": "a"}), "documents"),
        (json!({"query": "a", "documents": []}), "documents"),
        (json!({"query": "a", "documents": [1]}), "documents[0]"),
        (json!({"query": "a", "documents": ["b"], "texts": ["b"]}), "texts"),
        (json!({"query": "a", "documents": ["b"], "top_n": 0}), "top_n"),
        (json!({"query": "a", "documents": ["b"], "rank_fields": ["title"]}), "rank_fields"),
        (
            json!({"query": "a", "texts": ["b"], "truncation_direction": "Left"}),
            "truncation_direction",
        ),
        (json!({"query": "a", "documents": ["b", long]}), "documents[1]"),
    ] {
        let error = error(server.post("/v1/rerank", &body).await, 400).await;
        assert_eq!(error["param"], param, "{error}");
    }
    let body = json!({"query": "a", "documents": ["b", long], "truncate": true});
    ok(server.post("/v1/rerank", &body).await).await;
    let body = json!({"query": "a", "documents": [long], "truncate_prompt_tokens": 9});
    let ranked = ok(server.post("/v1/rerank", &body).await).await;
    assert_eq!(ranked["usage"]["prompt_tokens"], 9);
    let body = json!({"messages": [{"role": "user", "content": "a"}]});
    let refused = error(server.post("/v1/chat/completions", &body).await, 400).await;
    assert_eq!(refused["param"], "model");
    let refused = error(server.post("/v1/embeddings", &json!({"input": "a"})).await, 400).await;
    assert_eq!(refused["param"], "model");
}
