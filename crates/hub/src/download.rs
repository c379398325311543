//! Downloads one file from the hub into the cache: resumes, checks, then links it.
//!
//! Invariant: a blob gets its name only when it has the length and, if known, the SHA-256 that the
//! hub announced.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap};

use crate::cache::{RepoCache, create_parent};
use crate::error::Error;
use crate::http::{Client, LINKED_ETAG, Method, encode};
use crate::reference::{ModelRef, is_component};

const PIECE: usize = 1 << 18;
/// Bytes of an attempt after which attempts are counted anew.
const ENOUGH_PROGRESS: u64 = 1 << 20;
/// Largest file, in bytes, whose length the hub does not announce.
const MAX_UNTOLD_BYTES: u64 = 64 << 20;

/// Progress of the download of one file.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Path in the repository.
    pub file: &'a str,
    /// Number of the file among those of the model, from 1.
    pub index: usize,
    /// Files of the model.
    pub count: usize,
    /// Bytes present, including those of earlier attempts.
    pub done: u64,
    /// Total bytes, if the hub announces them.
    pub total: Option<u64>,
}

/// What the hub announces about a file.
struct Announced {
    etag: String,
    bytes: Option<u64>,
}

/// One file to fetch.
pub(crate) struct Download<'a> {
    pub(crate) client: &'a Client<'a>,
    pub(crate) cache: &'a RepoCache,
    pub(crate) model: &'a ModelRef,
    pub(crate) commit: &'a str,
    pub(crate) file: &'a str,
}

impl Download<'_> {
    /// Downloads the file unless it is cached; calls `progress` with bytes present and total bytes.
    pub(crate) fn run(&self, progress: &mut dyn FnMut(u64, Option<u64>)) -> Result<(), Error> {
        if self.cache.snapshot(self.commit).join(self.file).is_file() {
            return Ok(());
        }
        let announced = self.client.retry(|| self.announced())?;
        let _lock = self.cache.lock(&announced.etag)?;
        if !self.cache.blob(&announced.etag).is_file() {
            self.fetch(&announced, progress)?;
        }
        self.cache.link(self.commit, self.file, &announced.etag)
    }

    fn url(&self) -> String {
        let endpoint = &self.client.settings.endpoint;
        let (repository, commit) = (self.model.repository(), encode(self.commit, false));
        format!("{endpoint}/{repository}/resolve/{commit}/{}", encode(self.file, true))
    }

    fn announced(&self) -> Result<Announced, Error> {
        let url = self.url();
        let response = self.client.follow(&Method::HEAD, &url, 0)?;
        let headers = response.headers();
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let etag = text(LINKED_ETAG).or_else(|| text(ETAG.as_str()));
        let etag = etag.ok_or_else(|| Error::answer(&url, "expected an ETag, found none"))?;
        let etag = etag.trim_start_matches("W/").trim_matches('"');
        // The etag names a file of the cache.
        if !is_component(etag) || etag.len() > 128 || etag.contains(".incomplete") {
            let shown = etag.escape_debug().take(100).collect::<String>();
            return Err(Error::answer(&url, format!("expected a hash as ETag, found \"{shown}\"")));
        }
        // The length of a redirect's body is irrelevant.
        let own = Some(CONTENT_LENGTH.as_str()).filter(|_| response.status().is_success());
        let bytes = text("x-linked-size").or_else(|| own.and_then(text));
        let bytes = bytes.and_then(|text| text.parse().ok());
        Ok(Announced { etag: etag.to_owned(), bytes })
    }

    fn fetch(
        &self,
        announced: &Announced,
        progress: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<(), Error> {
        let blob = self.cache.blob(&announced.etag);
        let mut partial = Partial::open(&blob)?;
        let mut best = partial.bytes;
        let mut attempt = || match self.continue_at(&mut partial, announced, progress) {
            Err(error) if error.is_passing() && partial.bytes >= best + ENOUGH_PROGRESS => {
                best = partial.bytes;
                std::thread::sleep(self.client.settings.retry_pause);
                Ok(false)
            }
            ended => ended.map(|()| true),
        };
        while !self.client.retry(&mut attempt)? {}
        partial.check_hash(&announced.etag, &self.url())?;
        fs::rename(&partial.path, &blob).map_err(Error::io("rename", &partial.path))
    }

    /// One attempt: requests the missing bytes and appends what arrives.
    fn continue_at(
        &self,
        partial: &mut Partial,
        announced: &Announced,
        progress: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<(), Error> {
        if announced.bytes.is_some_and(|bytes| partial.bytes > bytes) {
            partial.restart()?;
        }
        if announced.bytes == Some(partial.bytes) && partial.bytes > 0 {
            return Ok(());
        }
        let url = self.url();
        let response = match self.client.follow(&Method::GET, &url, partial.bytes) {
            Err(Error::Refused { status: 416, .. }) => {
                partial.restart()?;
                self.client.follow(&Method::GET, &url, 0)?
            }
            other => other?,
        };
        if !continues(response.headers(), response.status().as_u16(), partial.bytes) {
            partial.restart()?;
        }
        progress(partial.bytes, announced.bytes);
        let mut body = response.into_body().into_reader();
        receive(&mut body, &url, partial, announced, progress)?;
        match announced.bytes {
            Some(bytes) if bytes != partial.bytes => {
                let found = partial.bytes;
                let problem = format!("the connection ended after {found} of {bytes} bytes");
                Err(Error::network(&url, problem))
            }
            _ => Ok(()),
        }
    }
}

/// Appends the body; more bytes than announced are an error.
fn receive(
    body: &mut impl Read,
    url: &str,
    partial: &mut Partial,
    announced: &Announced,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<(), Error> {
    let limit = announced.bytes.unwrap_or(MAX_UNTOLD_BYTES);
    let mut piece = vec![0; PIECE];
    loop {
        let read = match body.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other.map_err(|e| Error::network(url, e))?,
        };
        if read == 0 {
            return Ok(());
        }
        if partial.bytes + read as u64 > limit {
            return Err(Error::answer(url, format!("expected {limit} bytes, found more")));
        }
        partial.append(&piece[..read])?;
        progress(partial.bytes, announced.bytes);
    }
}

/// Whether the response begins at `from`; otherwise it is the whole file.
fn continues(headers: &HeaderMap, status: u16, from: u64) -> bool {
    let range = headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    status == 206 && range.is_some_and(|range| range.starts_with(&format!("bytes {from}-")))
}

/// The downloaded part of a file: `ETAG.incomplete` in the folder of the blob.
struct Partial {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Partial {
    fn open(blob: &Path) -> Result<Self, Error> {
        create_parent(blob)?;
        let path = blob.with_added_extension("incomplete");
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(Error::io("create", &path))?;
        let bytes = file.metadata().map_err(Error::io("read", &path))?.len();
        Ok(Self { path, file, bytes })
    }

    fn append(&mut self, piece: &[u8]) -> Result<(), Error> {
        self.file.write_all(piece).map_err(Error::io("write", &self.path))?;
        self.bytes += piece.len() as u64;
        Ok(())
    }

    fn restart(&mut self) -> Result<(), Error> {
        self.file.set_len(0).map_err(Error::io("write", &self.path))?;
        self.bytes = 0;
        Ok(())
    }

    /// Large files have their SHA-256 as etag; small ones have a git hash, which is not checked.
    fn check_hash(&self, etag: &str, url: &str) -> Result<(), Error> {
        let is_sha256 = etag.len() == 64 && etag.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_sha256 {
            return Ok(());
        }
        let found = sha256(&self.path)?;
        if !found.eq_ignore_ascii_case(etag) {
            fs::remove_file(&self.path).map_err(Error::io("remove", &self.path))?;
            let problem = format!("expected content with SHA-256 {etag}, found {found}");
            return Err(Error::answer(url, problem));
        }
        Ok(())
    }
}

fn sha256(path: &Path) -> Result<String, Error> {
    let mut file = File::open(path).map_err(Error::io("read", path))?;
    let mut hasher = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut piece).map_err(Error::io("read", path))?;
        if read == 0 {
            break;
        }
        hasher.update(&piece[..read]);
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
