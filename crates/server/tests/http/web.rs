//! The page at `/` and its files.

use crate::harness::{Server, error};
use reqwest::{Method, Response};
use server::{ApiKeys, ServerOptions};
use std::collections::BTreeSet;

async fn with_key() -> Server {
    let options = ServerOptions { keys: ApiKeys::new(["secret"]).unwrap(), ..Default::default() };
    Server::start_with([], 4, options).await
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap()
}

async fn request(server: &Server, method: Method, path: &str) -> Response {
    server.client.request(method, server.url(path)).send().await.unwrap()
}

/// The files that a text names in quotes, after `before`.
fn named(text: &str, before: &str) -> BTreeSet<String> {
    let after = text.split(before).skip(1);
    after.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

/// The files that a script or a style sheet loads.
fn loaded(name: &str, text: &str) -> BTreeSet<String> {
    let folder = name.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let mut found = named(text, "from \"./");
    found.extend(named(text, "import \"./"));
    let fonts = text.split("url(").skip(1).filter(|_| name.ends_with(".css"));
    found.extend(fonts.map(|rest| rest.split(')').next().unwrap().to_owned()));
    found.into_iter().map(|file| format!("{folder}{file}")).collect()
}

#[tokio::test]
async fn the_page_needs_no_key_and_the_data_do() {
    let server = with_key().await;
    let page = server.get("/").await;
    assert_eq!(page.status(), 200);
    assert_eq!(header(&page, "content-type"), "text/html; charset=utf-8");
    assert!(page.text().await.unwrap().starts_with("<!doctype html>"));
    assert_eq!(server.get("/ui/main.js").await.status(), 200);
    error(server.get("/v1/models").await, 401).await;
    error(server.get("/v1/stats").await, 401).await;
    error(server.get("/uix").await, 401).await;
}

#[tokio::test]
async fn the_description_of_the_api_needs_no_key() {
    let server = with_key().await;
    let page = server.get("/docs").await;
    assert_eq!(page.status(), 200);
    assert_eq!(header(&page, "content-type"), "text/html; charset=utf-8");
    let document: serde_json::Value = server.get("/openapi.json").await.json().await.unwrap();
    for path in ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"] {
        assert!(document["paths"][path]["post"].is_object(), "{path}");
    }
}

#[tokio::test]
async fn everything_that_the_pages_load_is_there() {
    let server = Server::start([]).await;
    let page = server.get("/").await.text().await.unwrap();
    let page = page + &server.get("/docs").await.text().await.unwrap();
    let mut wanted: Vec<String> = named(&page, "=\"ui/").into_iter().collect();
    let mut seen = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let response = server.get(&format!("/ui/{name}")).await;
        assert_eq!(response.status(), 200, "{name}");
        let expected = match name.rsplit_once('.').unwrap().1 {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "woff2" => "font/woff2",
            _ => "image/svg+xml",
        };
        assert_eq!(header(&response, "content-type"), expected, "{name}");
        let bytes = response.bytes().await.unwrap();
        wanted.extend(loaded(&name, &String::from_utf8_lossy(&bytes)));
    }
    for name in ["main.js", "vendor/purify.js", "vendor/KaTeX_Main-Regular.woff2"] {
        assert!(seen.contains(name), "{name}: {seen:?}");
    }
}

#[tokio::test]
async fn a_browser_is_bound_to_this_server() {
    let server = Server::start([]).await;
    for path in ["/", "/ui/main.js", "/ui/base.css"] {
        let response = server.get(path).await;
        let policy = header(&response, "content-security-policy");
        let rules: Vec<&str> = policy.split(';').map(str::trim).collect();
        for rule in ["default-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(rules.contains(&rule), "{path}: {policy}");
        }
        for rule in ["require-trusted-types-for 'script'", "trusted-types dompurify"] {
            assert!(rules.contains(&rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("data:"), "{policy}");
        assert_eq!(header(&response, "x-content-type-options"), "nosniff");
        assert_eq!(header(&response, "referrer-policy"), "no-referrer");
    }
}

/// Nothing that the policy would block, and no address elsewhere.
#[tokio::test]
async fn the_page_has_no_script_or_style_of_its_own() {
    let page = Server::start([]).await.get("/").await.text().await.unwrap();
    for banned in
        ["<style", " style=", " onclick=", " onload=", "javascript:", "http://", "https://"]
    {
        assert!(!page.contains(banned), "{banned}");
    }
    let scripts = page.matches("<script").count();
    assert_eq!(scripts, page.matches("src=\"ui/").count() - page.matches("<img src").count());
    assert_eq!(scripts, page.matches("></script>").count());
}

#[tokio::test]
async fn a_copy_that_is_still_good_is_not_sent_again() {
    let server = Server::start([]).await;
    for path in ["/", "/ui/dom.js"] {
        let first = server.get(path).await;
        let tag = header(&first, "etag").to_owned();
        assert_eq!(header(&first, "cache-control"), "no-cache");
        let again = |tag: &str| server.client.get(server.url(path)).header("if-none-match", tag);
        let second = again(&tag).send().await.unwrap();
        assert_eq!(second.status(), 304);
        assert_eq!(header(&second, "etag"), tag);
        assert_eq!(second.text().await.unwrap(), "");
        assert_eq!(again("\"other\"").send().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn head_tells_what_get_would() {
    let server = with_key().await;
    let (head, get) = (request(&server, Method::HEAD, "/").await, server.get("/").await);
    assert_eq!(head.status(), 200);
    for name in ["content-type", "content-length", "etag", "content-security-policy"] {
        assert_eq!(header(&head, name), header(&get, name), "{name}");
    }
    assert_eq!(head.text().await.unwrap(), "");
}

#[tokio::test]
async fn the_page_is_at_no_other_path() {
    let server = Server::start([]).await;
    for path in
        ["/index.html", "/ui", "/ui/", "/ui/none.js", "/ui/vendor", "/ui/..%2Fmain.js", "/chat"]
    {
        assert_eq!(error(server.get(path).await, 404).await["code"], "unknown_endpoint", "{path}");
    }
    for path in ["/", "/ui/main.js"] {
        let error = error(request(&server, Method::POST, path).await, 405).await;
        assert_eq!(error["code"], "method_not_allowed");
    }
}
