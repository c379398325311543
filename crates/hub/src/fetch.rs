//! Fetches a model: resolves the commit, selects the files, and uses the cache if the hub is
//! unreachable.

use std::path::PathBuf;

use serde::Deserialize;

use crate::cache::RepoCache;
use crate::download::{Download, Progress};
use crate::error::Error;
use crate::http::{Client, encode};
use crate::reference::{ModelRef, is_component};
use crate::select::{INDEX, Selection, contents, select, shards};
use crate::settings::HubSettings;

const MAX_LISTING_BYTES: u64 = 64 << 20;
const MAX_INDEX_BYTES: u64 = 256 << 20;

/// A local model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The folder of a checkpoint, or the (first) GGUF file.
    pub path: PathBuf,
    /// Whether the hub was not asked, so that a newer commit may exist.
    pub from_cache: bool,
}

#[derive(Deserialize)]
struct Listing {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

/// Downloads the files of a model and returns their location.
///
/// Cached files are not downloaded again. If the hub cannot be reached, a model that is complete in
/// the cache is used.
///
/// # Errors
/// If the hub refuses the model or sends invalid data, or neither hub nor cache has it.
pub fn fetch(
    settings: &HubSettings,
    model: &ModelRef,
    progress: &mut dyn FnMut(Progress),
) -> Result<Fetched, Error> {
    let cache = RepoCache::new(&settings.cache, model);
    if settings.offline {
        return from_cache(&cache, model).ok_or_else(|| not_cached(settings, model));
    }
    let client = Client::new(settings);
    let first = listing(&client, model);
    if first.as_ref().is_err_and(Error::is_passing)
        && let Some(cached) = from_cache(&cache, model)
    {
        return Ok(cached);
    }
    let again = |error: Error| match error.is_passing() {
        true => client.retry(|| listing(&client, model)),
        false => Err(error),
    };
    from_hub(&client, &cache, model, &first.or_else(again)?, progress)
}

fn not_cached(settings: &HubSettings, model: &ModelRef) -> Error {
    Error::NotCached { model: model.to_string(), cache: settings.cache.clone() }
}

fn listing(client: &Client, model: &ModelRef) -> Result<Listing, Error> {
    let (repository, revision) = (model.repository(), encode(model.revision(), false));
    let endpoint = &client.settings.endpoint;
    let url = format!("{endpoint}/api/models/{repository}/revision/{revision}");
    let text = client.text(&url, MAX_LISTING_BYTES)?;
    let listing: Listing = serde_json::from_str(&text)
        .map_err(|e| Error::answer(&url, format!("expected a listing of files: {e}")))?;
    if !is_component(&listing.sha) || listing.sha.len() > 64 {
        return Err(Error::answer(&url, "expected a commit hash as sha, found something else"));
    }
    Ok(listing)
}

fn from_hub(
    client: &Client,
    cache: &RepoCache,
    model: &ModelRef,
    listing: &Listing,
    progress: &mut dyn FnMut(Progress),
) -> Result<Fetched, Error> {
    let commit = listing.sha.as_str();
    let names: Vec<_> = listing.siblings.iter().map(|s| s.rfilename.clone()).collect();
    let selection = select(model, &names)?;
    let mut files = selection.files().to_vec();
    let get = |file: &str, index, count, progress: &mut dyn FnMut(Progress)| {
        let download = Download { client, cache, model, commit, file };
        let mut report = |done, total| progress(Progress { file, index, count, done, total });
        download.run(&mut report)
    };
    if files.iter().any(|file| file == INDEX) {
        get(INDEX, 1, files.len(), progress)?;
        let shards = cached_shards(cache, model, commit)?;
        if let Some(missing) = shards.iter().find(|shard| !names.contains(shard)) {
            return Err(contents(model, format!("{INDEX} names {missing}, which is not there")));
        }
        files.extend(shards);
    }
    for (index, file) in files.iter().enumerate() {
        get(file, index + 1, files.len(), progress)?;
    }
    cache.remember(model.revision(), commit)?;
    Ok(fetched(cache, commit, &selection, false))
}

/// The cached model, if it is complete.
fn from_cache(cache: &RepoCache, model: &ModelRef) -> Option<Fetched> {
    let commit = cache.commit(model.revision())?;
    let files = cache.list(&commit);
    let selection = select(model, &files).ok()?;
    if selection.files().iter().any(|file| file == INDEX) {
        let shards = cached_shards(cache, model, &commit).ok()?;
        if !shards.iter().all(|shard| files.contains(shard)) {
            return None;
        }
    }
    Some(fetched(cache, &commit, &selection, true))
}

fn cached_shards(cache: &RepoCache, model: &ModelRef, commit: &str) -> Result<Vec<String>, Error> {
    let path = cache.snapshot(commit).join(INDEX);
    let bytes = path.metadata().map_err(Error::io("read", &path))?.len();
    if bytes > MAX_INDEX_BYTES {
        let problem =
            format!("expected an index of at most {MAX_INDEX_BYTES} bytes, found {bytes}");
        return Err(contents(model, problem));
    }
    shards(model, &std::fs::read_to_string(&path).map_err(Error::io("read", &path))?)
}

fn fetched(cache: &RepoCache, commit: &str, selection: &Selection, from_cache: bool) -> Fetched {
    let folder = cache.snapshot(commit);
    let path = match selection {
        Selection::Folder(_) => folder,
        Selection::Gguf(parts) => folder.join(&parts[0]),
    };
    Fetched { path, from_cache }
}
