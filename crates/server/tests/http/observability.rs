//! Metrics, readiness and statistics of the server.

use crate::harness::{Server, chat_body, error, events, ok, until};
use crate::support::Act;
use serde_json::{Value, json};
use server::{ApiKeys, ServerOptions};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CHAT: &str = "/v1/chat/completions";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");

async fn metrics(server: &Server) -> String {
    let asked = server.client.get(server.url("/metrics"));
    let asked = asked.header("accept", "application/openmetrics-text;version=1.0.0");
    let response = asked.send().await.unwrap();
    assert_eq!(response.status(), 200);
    let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    assert!(content_type.starts_with("application/openmetrics-text"), "{content_type}");
    response.text().await.unwrap()
}

/// What `promtool check metrics` wants: every family is described under the name of its samples,
/// counters alone end in `_total`, and there is no mark of an end.
#[tokio::test]
async fn the_older_format_is_the_default_and_describes_every_family() {
    let server = Server::start([Act::Say("x")]).await;
    server.chat(json!({})).await;
    let response = server.get("/metrics").await;
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = response.text().await.unwrap();
    let (mut helped, mut families) = ("", 0);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(help.len() > 3, "{line}");
            helped = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!((name, name.ends_with("_total")), (helped, kind == "counter"), "{line}");
            families += 1;
        } else {
            assert!(line.starts_with(helped) && !line.starts_with('#'), "{line}");
        }
    }
    assert!(families > 40, "{families}");
    // Media types have no case.
    let asked = server.client.get(server.url("/metrics"));
    let asked = asked.header("accept", "APPLICATION/OpenMetrics-Text; Q=0.9");
    let response = asked.send().await.unwrap();
    assert_eq!(response.headers()["vary"], "accept");
    assert!(response.text().await.unwrap().ends_with("# EOF\n"));
}

/// The value of the sample with this name and these labels, beside the model's name.
fn sample(text: &str, name: &str, labels: &str) -> f64 {
    let labels = format!("model_name=\"test/model\"{labels}");
    let line = format!("{name}{{{labels}}} ");
    let value = text.lines().find_map(|have| have.strip_prefix(&line));
    value.unwrap_or_else(|| panic!("no {line} in\n{text}")).parse().unwrap()
}

#[tokio::test]
async fn metrics_count_what_was_done() {
    let server = Server::start([Act::Say("hello!<|im_end|>")]).await;
    server.chat(json!({})).await;
    server.get("/v2/nothing").await;
    let text = metrics(&server).await;
    let check = |name: &str, labels: &str, expected: f64| {
        assert_eq!(sample(&text, &format!("gannet:{name}"), labels), expected, "{name}{labels}");
    };
    check("generation_tokens_total", "", 2.0);
    check("prefix_cache_hits_total", "", 3.0);
    check("request_success_total", ",finished_reason=\"stop\"", 1.0);
    check("time_to_first_token_seconds_count", "", 1.0);
    check("inter_token_latency_seconds_bucket", ",le=\"+Inf\"", 1.0);
    check("kv_cache_usage_perc", "", 0.25);
    check("kv_blocks_used", ",group=\"all\"", 2.0);
    check("prefix_cache_tokens_total", ",cause=\"found\"", 3.0);
    check("state_slots_live", "", 0.0);
    check("num_requests_running", "", 0.0);
    check("http_requests_total", ",handler=\"/v1/chat/completions\",status=\"2xx\"", 1.0);
    check("http_requests_total", ",handler=\"other\",status=\"4xx\"", 1.0);
    check("http_answers_open", "", 0.0);
    check("http_client_disconnects_total", "", 0.0);
}

/// Every line of the format is a comment or a sample, every family is described before it comes,
/// and the end is marked.
#[tokio::test]
async fn metrics_are_what_prometheus_reads() {
    let server = Server::start([Act::Say("x")]).await;
    server.chat(json!({})).await;
    let text = metrics(&server).await;
    let mut family = "";
    for line in text.strip_suffix("# EOF\n").expect("an end").lines() {
        match line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            Some((name, kind)) => {
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                family = name;
            }
            None if line.starts_with("# HELP ") => {}
            None => {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(!family.is_empty() && name.starts_with(family), "{line}");
                assert!(name[family.len()..].contains('{') && name.ends_with('}'), "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
    }
}

#[tokio::test]
async fn the_page_about_metrics_has_all_names_and_no_others() {
    let server = Server::start([]).await;
    server.get("/health").await;
    let text = metrics(&server).await;
    let family = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        Some(if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
    };
    let told: BTreeSet<String> = text.lines().filter_map(family).collect();
    let page = std::fs::read_to_string(PAGE).unwrap();
    let name = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let listed: BTreeSet<String> =
        page.lines().filter_map(name).filter(|name| name.starts_with("gannet:")).collect();
    assert_eq!(listed, told);
}

#[tokio::test]
async fn clients_that_leave_are_counted() {
    let server = Server::start([Act::Say("x"), Act::Pause(Duration::from_secs(30))]).await;
    let response = server.post(CHAT, &chat_body(json!({"stream": true}))).await;
    let open = sample(&metrics(&server).await, "gannet:http_answers_open", "");
    drop(response);
    let (report, server) = server.report().await;
    let text = metrics(&server).await;
    assert!(report.cancelled);
    assert_eq!(open, 1.0);
    assert_eq!(sample(&text, "gannet:http_answers_open", ""), 0.0);
    assert_eq!(sample(&text, "gannet:http_client_disconnects_total", ""), 1.0);
}

#[tokio::test]
async fn ready_while_requests_would_be_answered() {
    let server = Server::start([Act::Say("x")]).await;
    assert_eq!(ok(server.get("/ready").await).await, json!({"status": "ready"}));
    server.chat(json!({})).await;
    assert_eq!(server.get("/ready").await.status(), 200);
}

#[tokio::test]
async fn not_ready_while_work_gets_nowhere() {
    let progress_timeout = Duration::from_millis(50);
    let options = ServerOptions { progress_timeout, ..Default::default() };
    let script = [Act::Say("x"), Act::Pause(Duration::from_secs(30))];
    let server = Server::start_with(script, 4, options).await;
    let response = server.post(CHAT, &chat_body(json!({"stream": true}))).await;
    until("the engine stalls", async || server.get("/ready").await.status() == 503).await;
    let refused = error(server.get("/ready").await, 503).await;
    assert_eq!(refused["code"], "engine_stalled");
    assert_eq!(server.get("/health").await.status(), 200);
    let stats = ok(server.get("/v1/stats").await).await;
    assert_eq!(stats["ready"], false);
    drop(response);
    let (_, server) = server.report().await;
    assert_eq!(server.get("/ready").await.status(), 200);
}

/// What the open connection is answered that asked before the end began.
async fn late_answer(server: &mut Server, path: &str) -> String {
    let mut socket = TcpStream::connect(server.addr).await.unwrap();
    socket
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n").as_bytes())
        .await
        .unwrap();
    server.get("/health").await;
    server.shut_down();
    server.drains().await;
    socket.write_all(b"\r\n").await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn not_ready_while_the_server_drains() {
    let pause = Act::Pause(Duration::from_millis(500));
    let mut server = Server::start([Act::Say("x"), pause]).await;
    let running = server.post(CHAT, &chat_body(json!({"stream": true}))).await;
    let answer = late_answer(&mut server, "/ready").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("shutting down"), "{answer}");
    events(running).await;
    server.ended().await.unwrap();
}

#[tokio::test]
async fn metrics_may_be_read_to_the_end() {
    let pause = Act::Pause(Duration::from_millis(500));
    let mut server = Server::start([Act::Say("x"), pause]).await;
    let running = server.post(CHAT, &chat_body(json!({"stream": true}))).await;
    let answer = late_answer(&mut server, "/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    events(running).await;
    server.ended().await.unwrap();
}

#[tokio::test]
async fn a_key_guards_the_counts_but_not_readiness() {
    let options = ServerOptions { keys: ApiKeys::new(["secret"]).unwrap(), ..Default::default() };
    let server = Server::start_with([], 4, options).await;
    assert_eq!(server.get("/ready").await.status(), 200);
    error(server.get("/metrics").await, 401).await;
    error(server.get("/v1/stats").await, 401).await;
}

#[tokio::test]
async fn stats_are_for_people() {
    let server = Server::start([Act::Say("hello!<|im_end|>")]).await;
    server.chat(json!({})).await;
    let text = server.get("/v1/stats").await.text().await.unwrap();
    assert!(text.starts_with("{\n  \"model\": \"test/model\",\n"), "{text}");
    let stats: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(stats["requests"]["finished"]["stop"], 1);
    assert_eq!(stats["tokens"]["generated"], 2);
    assert!(stats["tokens"]["generated_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!((&stats["kv_cache"]["usage"], &stats["ready"]), (&json!(0.25), &json!(true)));
    let group = json!({"window": null, "used": 2, "cached": 1, "free": 5});
    assert_eq!(stats["kv_cache"]["groups"], json!([group]));
    assert_eq!(stats["kv_cache"]["tokens_by_cause"]["found"], 3);
    let none = json!({"live": 0, "kept": 0, "free": 0, "evicted_snapshots": 0});
    assert_eq!(stats["states"], none);
    assert_eq!(stats["latency_s"]["time_to_first_token"]["count"], 1);
    assert_eq!(stats["speculation"]["acceptance_rate"], Value::Null);
    assert_eq!(stats["errors"], json!({"generations": 0, "http_4xx": 0, "http_5xx": 0}));
}

#[tokio::test]
async fn stats_come_as_a_table_too() {
    let server = Server::start([]).await;
    let response = server.get("/v1/stats?format=text").await;
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    let table = response.text().await.unwrap();
    assert!(table.starts_with("model           test/model\nstate           ready\n"), "{table}");
    assert!(table.contains("\nrequests        0 running, 0 waiting\n"), "{table}");
    let accepting = server.client.get(server.url("/v1/stats")).header("accept", "text/plain");
    assert!(accepting.send().await.unwrap().text().await.unwrap().starts_with("model "));
    assert_eq!(error(server.get("/v1/stats?format=xml").await, 400).await["param"], "format");
}

#[tokio::test]
async fn request_ids_are_echoed_or_made() {
    let server = Server::start([]).await;
    let named = |id: &str| server.client.get(server.url("/version")).header("x-request-id", id);
    let response = named("trace-1.a_B").send().await.unwrap();
    assert_eq!(response.headers()["x-request-id"], "trace-1.a_B");
    let response = named("with space").send().await.unwrap();
    assert!(response.headers()["x-request-id"].to_str().unwrap().starts_with("req_"));
    let response = server.get("/v2/nothing").await;
    assert!(response.headers()["x-request-id"].to_str().unwrap().starts_with("req_"));
}
