//! The client against a hub on loopback: layout of the cache, resuming, refusals, secrets.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Answer, COMMIT, Request, Server, listing, repository, sha256};
use hub::{Error, Fetched, HubSettings, fetch};

fn settings(url: &str, cache: &Path) -> HubSettings {
    HubSettings {
        endpoint: url.to_owned(),
        cache: cache.to_owned(),
        token: None,
        offline: false,
        retry_pause: Duration::from_millis(1),
    }
}

fn get(settings: &HubSettings, model: &str) -> Result<Fetched, Error> {
    fetch(settings, &model.parse().unwrap(), &mut |_| {})
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn checkpoint() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("README.md", b"# hello".to_vec()),
        ("config.json", b"{}".to_vec()),
        ("tokenizer.json", b"{ }".to_vec()),
        ("model.safetensors", content(300_000)),
    ]
}

#[test]
fn a_checkpoint_lands_in_the_standard_layout_and_is_not_fetched_twice() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(repository(checkpoint()));
    let settings = settings(&server.url, cache.path());
    let mut seen = Vec::new();
    let fetched = fetch(&settings, &"o/m".parse().unwrap(), &mut |p| {
        seen.push((p.file.to_owned(), p.done, p.total, p.index, p.count));
    })
    .unwrap();
    let root = cache.path().join("models--o--m");
    assert_eq!(fetched.path, root.join("snapshots").join(COMMIT));
    assert!(!fetched.from_cache);
    assert_eq!(std::fs::read_to_string(root.join("refs/main")).unwrap(), COMMIT);
    assert_eq!(std::fs::read(fetched.path.join("model.safetensors")).unwrap(), content(300_000));
    assert!(!fetched.path.join("README.md").exists());
    let blob = root.join("blobs").join(sha256(&content(300_000)));
    assert_eq!(blob.metadata().unwrap().len(), 300_000);
    assert_eq!(std::fs::read_dir(root.join("blobs")).unwrap().count(), 3);
    let last = ("model.safetensors".to_owned(), 300_000, Some(300_000), 3, 3);
    assert_eq!(seen.last(), Some(&last));

    let before = server.requests().len();
    assert_eq!(get(&settings, "o/m").unwrap(), fetched);
    assert_eq!(server.requests().len(), before + 1);
}

#[cfg(unix)]
#[test]
fn files_of_a_snapshot_are_relative_links_to_blobs() {
    let cache = tempfile::tempdir().unwrap();
    let files = vec![("q8/x.gguf", content(10))];
    let server = Server::start(repository(files));
    let fetched = get(&settings(&server.url, cache.path()), "o/m").unwrap();
    assert!(fetched.path.ends_with("q8/x.gguf"));
    let target = std::fs::read_link(&fetched.path).unwrap();
    assert_eq!(target, Path::new("../../../blobs").join(sha256(&content(10))));
}

#[test]
fn a_dropped_connection_is_resumed_where_it_stopped() {
    let cache = tempfile::tempdir().unwrap();
    let inner = repository(checkpoint());
    let gets = AtomicUsize::new(0);
    let server = Server::start(move |request: &Request| {
        let mut answer = inner(request);
        let is_weights = request.method == "GET" && request.path.ends_with("model.safetensors");
        if is_weights && gets.fetch_add(1, Ordering::SeqCst) < 2 {
            answer.cut = Some(100_000);
        }
        answer
    });
    let fetched = get(&settings(&server.url, cache.path()), "o/m").unwrap();
    assert_eq!(std::fs::read(fetched.path.join("model.safetensors")).unwrap(), content(300_000));
    let requests = server.requests();
    let ranges: Vec<_> = requests.iter().filter_map(|r| r.headers.get("range")).collect();
    assert_eq!(ranges, ["bytes=100000-", "bytes=200000-"]);
}

#[test]
fn a_later_run_resumes_what_an_earlier_one_left() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(repository(checkpoint()));
    let blobs = cache.path().join("models--o--m/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let name = format!("{}.incomplete", sha256(&content(300_000)));
    std::fs::write(blobs.join(&name), &content(300_000)[..123_456]).unwrap();
    let fetched = get(&settings(&server.url, cache.path()), "o/m").unwrap();
    assert_eq!(std::fs::read(fetched.path.join("model.safetensors")).unwrap(), content(300_000));
    assert!(
        server
            .requests()
            .iter()
            .any(|r| r.headers.get("range").is_some_and(|range| range == "bytes=123456-"))
    );
    assert!(!blobs.join(name).exists());
}

#[test]
fn a_connection_that_always_drops_fails_in_the_end() {
    let cache = tempfile::tempdir().unwrap();
    let inner = repository(checkpoint());
    let server = Server::start(move |request: &Request| {
        let mut answer = inner(request);
        if request.method == "GET" && request.path.ends_with("model.safetensors") {
            answer.cut = Some(10);
        }
        answer
    });
    let error = get(&settings(&server.url, cache.path()), "o/m").unwrap_err();
    assert!(matches!(error, Error::Network { .. }), "{error}");
    assert!(!cache.path().join("models--o--m/refs/main").exists());
}

#[test]
fn content_with_another_hash_is_refused_and_removed() {
    let cache = tempfile::tempdir().unwrap();
    let inner = repository(checkpoint());
    let server = Server::start(move |request: &Request| {
        let mut answer = inner(request);
        if request.path.ends_with("model.safetensors") {
            answer.body[7] ^= 1;
        }
        answer
    });
    let error = get(&settings(&server.url, cache.path()), "o/m").unwrap_err().to_string();
    assert!(error.contains("SHA-256") && error.contains("model.safetensors"), "{error}");
    let left = std::fs::read_dir(cache.path().join("models--o--m/blobs")).unwrap().count();
    assert_eq!(left, 2);
}

fn check_refused(status: u16, code: Option<&str>, expected: &str) {
    let cache = tempfile::tempdir().unwrap();
    let code = code.map(str::to_owned);
    let server = Server::start(move |_: &Request| match &code {
        Some(code) => Answer::status(status).header("X-Error-Code", code),
        None => Answer::status(status),
    });
    let error = get(&settings(&server.url, cache.path()), "o/m").unwrap_err().to_string();
    assert!(error.contains(expected) && error.contains("o/m"), "{error}");
}

#[test]
fn refusals_say_what_to_do() {
    check_refused(404, None, "no such repository");
    check_refused(404, Some("RevisionNotFound"), "no such revision");
    check_refused(401, None, "HF_TOKEN");
    check_refused(403, Some("GatedRepo"), "gated");
    check_refused(503, None, "503");
}

/// A hub whose weights lie on another host, as large files do.
#[test]
fn the_token_goes_to_the_endpoint_and_to_no_other_host() {
    let cache = tempfile::tempdir().unwrap();
    let store = Server::start(|_: &Request| Answer::ok(content(1000)));
    let inner = repository(checkpoint());
    let address = format!("{}/store/weights", store.url);
    let server = Server::start(move |request: &Request| {
        if request.path.ends_with("model.safetensors") {
            return Answer::status(302)
                .header("Location", &address)
                .header("X-Linked-Etag", format!("\"{}\"", sha256(&content(1000))))
                .header("X-Linked-Size", 1000);
        }
        inner(request)
    });
    let settings =
        HubSettings { token: Some("secret".into()), ..settings(&server.url, cache.path()) };
    let fetched = get(&settings, "o/m").unwrap();
    assert_eq!(std::fs::read(fetched.path.join("model.safetensors")).unwrap(), content(1000));
    let token = |r: &Request| r.headers.get("authorization").cloned();
    assert!(server.requests().iter().all(|r| token(r).as_deref() == Some("Bearer secret")));
    let stored = store.requests();
    assert_eq!(stored.len(), 1);
    assert!(stored.iter().all(|r| token(r).is_none()));
}

#[test]
fn endless_redirects_are_an_error() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(|r: &Request| Answer::status(302).header("Location", &r.path));
    let error = get(&settings(&server.url, cache.path()), "o/m").unwrap_err().to_string();
    assert!(error.contains("redirects"), "{error}");
}

#[test]
fn without_a_network_the_cache_is_used_if_it_is_whole() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(repository(checkpoint()));
    let online = settings(&server.url, cache.path());
    let offline = HubSettings { offline: true, ..online.clone() };
    // Nothing listens on the port of a listener that is gone.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let unplugged = settings(&format!("http://{gone}"), cache.path());
    assert!(matches!(get(&offline, "o/m"), Err(Error::NotCached { .. })));
    assert!(matches!(get(&unplugged, "o/m"), Err(Error::Network { .. })));

    let fetched = get(&online, "o/m").unwrap();
    let requests = server.requests().len();
    for settings in [&offline, &unplugged] {
        let cached = get(settings, "o/m").unwrap();
        assert_eq!((cached.path, cached.from_cache), (fetched.path.clone(), true));
    }
    assert_eq!(get(&offline, &format!("o/m@{COMMIT}")).unwrap().path, fetched.path);
    assert_eq!(server.requests().len(), requests);
    std::fs::remove_file(fetched.path.join("model.safetensors")).unwrap();
    assert!(matches!(get(&offline, "o/m"), Err(Error::NotCached { .. })));
}

#[test]
fn shards_come_with_their_index() {
    let cache = tempfile::tempdir().unwrap();
    let index = r#"{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}"#;
    let server = Server::start(repository(vec![
        ("config.json", b"{}".to_vec()),
        ("m-1.safetensors", content(10)),
        ("m-2.safetensors", content(20)),
        ("consolidated.safetensors", content(30)),
        ("model.safetensors.index.json", index.into()),
    ]));
    let fetched = get(&settings(&server.url, cache.path()), "o/m").unwrap();
    let mut names: Vec<_> = std::fs::read_dir(&fetched.path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected =
        ["config.json", "m-1.safetensors", "m-2.safetensors", "model.safetensors.index.json"];
    assert_eq!(names, expected);
}

fn check_hostile(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("a/b/c/cache");
    let server = Server::start(answer);
    let error = get(&settings(&server.url, &cache), "o/m").unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
    let outside = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(outside <= 1);
}

#[test]
fn hostile_names_never_become_paths() {
    check_hostile(|_| listing(&["../../../../../x.gguf"]), "refusing the file name");
    check_hostile(|_| listing(&["a\\..\\x.gguf"]), "refusing the file name");
    check_hostile(|_| Answer::ok(r#"{"sha": "../../x", "siblings": []}"#), "commit hash");
    check_hostile(|_| Answer::ok("[1, 2"), "listing");
    check_hostile(
        |r| match r.method.as_str() {
            "HEAD" => Answer::ok(content(4)).header("ETag", "\"../../../../../evil\""),
            _ => listing(&["x.gguf"]),
        },
        "ETag",
    );
}

#[test]
fn more_bytes_than_announced_are_refused() {
    let answer = |r: &Request| match (r.method.as_str(), r.path.contains("/api/")) {
        (_, true) => listing(&["x.gguf"]),
        ("HEAD", _) => Answer::ok(content(4)).header("ETag", "\"abc\""),
        _ => Answer::ok(content(5000)),
    };
    check_hostile(answer, "expected 4 bytes, found more");
}
