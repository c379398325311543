//! Adapters that are loaded while ranks share a model: each rank reads its own file of a path, and
//! keeps its part if all have read the same.

use super::error::Error;
use super::loaded_adapter::LoadedAdapter;
use crate::ranks::message::{MessageKind, MessageReader, MessageWriter};
use crate::ranks::outbox::Outbox;
use backend::Adapter;
use dist::Comm;
use models::Ranks;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Has the other ranks read adapters, on rank 0. Clones share the memory.
#[derive(Clone)]
pub(crate) struct LedAdapters(Arc<LedState>);

struct LedState {
    outbox: Arc<Outbox>,
    /// All ranks, of which the others answer.
    ranks: Arc<dyn Comm>,
    /// The digests of adapters that the others have, with what uses each.
    shared: Mutex<Vec<(String, Weak<Adapter>)>>,
}

impl std::fmt::Debug for LedAdapters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LedAdapters({} ranks)", self.0.ranks.ranks())
    }
}

impl LedAdapters {
    /// For the first of several ranks, whose messages go through `outbox`.
    pub fn of(ranks: &Ranks, outbox: Arc<Outbox>) -> Option<Self> {
        Some(Self::new(ranks.adapters()?.clone(), outbox))
    }

    fn new(ranks: Arc<dyn Comm>, outbox: Arc<Outbox>) -> Self {
        Self(Arc::new(LedState { outbox, ranks, shared: Mutex::default() }))
    }

    /// Reads an adapter by `open`, and has all other ranks read the one at `path`.
    ///
    /// # Errors
    /// If a rank cannot read it or reads another one, which the error names; then no rank keeps it.
    /// If a rank has ended.
    pub fn open(
        &self,
        path: &Path,
        open: impl FnOnce() -> Result<LoadedAdapter, Error>,
    ) -> Result<LoadedAdapter, Error> {
        let mut shared = self.0.shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.forget_unused(&mut shared)?;
        let refused = |problem: &str| Error::Adapter(format!("{}: {problem}", path.display()));
        if !self.0.ranks.takes_threads() {
            return Err(refused(
                "the MPI library takes no calls of several threads: load the adapter with --lora",
            ));
        }
        let name = path.to_str().ok_or_else(|| refused("expected a path of UTF-8 for ranks"))?;
        let is_sent = self.0.send(MessageKind::OpenAdapter, name)?;
        if !is_sent {
            return Err(refused("the engine has ended"));
        }
        let own = open();
        let answers = (1..self.0.ranks.ranks()).map(|rank| self.0.answer(rank));
        let answers = answers.collect::<Result<Vec<_>, Error>>()?;
        match own.and_then(|own| same(own, path, &answers)) {
            Ok(loaded) => {
                let digest = loaded.adapter.digest().to_owned();
                shared.push((digest, Arc::downgrade(&loaded.adapter)));
                Ok(loaded)
            }
            Err(error) => {
                // The others forget what they have read, as if it had been used.
                let read = answers.into_iter().filter_map(|answer| answer.found.digest.ok());
                shared.extend(read.map(|digest| (digest, Weak::new())));
                self.forget_unused(&mut shared)?;
                Err(error)
            }
        }
    }

    /// Has the other ranks forget the adapters that no request and no name has any more.
    fn forget_unused(&self, shared: &mut Vec<(String, Weak<Adapter>)>) -> Result<(), Error> {
        let (used, unused): (Vec<_>, Vec<_>) =
            shared.drain(..).partition(|(_, adapter)| adapter.strong_count() > 0);
        *shared = used;
        let mut gone: Vec<String> = unused.into_iter().map(|(digest, _)| digest).collect();
        gone.sort();
        gone.dedup();
        for digest in gone {
            if shared.iter().all(|(used, _)| *used != digest) {
                self.0.send(MessageKind::ForgetAdapter, &digest)?;
            }
        }
        Ok(())
    }
}

impl LedState {
    /// Sends a message about the adapter of this path or digest.
    fn send(&self, kind: MessageKind, text: &str) -> Result<bool, Error> {
        let sent = self.outbox.send(|writer| {
            writer.begin(kind);
            writer.text(text);
        });
        Ok(sent.map_err(models::Error::from)?)
    }

    fn answer(&self, rank: usize) -> Result<RankAnswer, Error> {
        let mut bytes = Vec::new();
        self.ranks.receive_bytes(rank, &mut bytes).map_err(models::Error::from)?;
        let found = RankAdapter::read(&bytes).map_err(|problem| {
            Error::Ranks(format!("rank {rank} sent what is no answer: {problem}"))
        })?;
        Ok(RankAnswer { rank, found })
    }
}

/// The answer of a rank.
struct RankAnswer {
    rank: usize,
    found: RankAdapter,
}

/// What a rank has read.
#[derive(Debug, PartialEq)]
pub(crate) struct RankAdapter {
    /// The rank's machine.
    pub host: String,
    /// The digest of the adapter, or why there is none.
    pub digest: Result<String, String>,
}

impl RankAdapter {
    /// As bytes, little-endian: whether there is an adapter, the host, and the digest or why not.
    pub fn bytes(&self) -> Vec<u8> {
        let mut writer = MessageWriter::default();
        let (Ok(text) | Err(text)) = &self.digest;
        writer.number(u32::from(self.digest.is_ok()));
        writer.text(&self.host);
        writer.text(text);
        writer.bytes
    }

    /// Reads what [`bytes`](Self::bytes) has written.
    ///
    /// # Errors
    /// What was expected and found.
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = MessageReader::of(bytes);
        let is_read = reader.below(2, "whether there is an adapter")? == 1;
        let (host, text) = (reader.text()?.to_owned(), reader.text()?.to_owned());
        reader.end()?;
        Ok(Self { host, digest: if is_read { Ok(text) } else { Err(text) } })
    }
}

/// Checks that all ranks have read the same adapter.
fn same(own: LoadedAdapter, path: &Path, answers: &[RankAnswer]) -> Result<LoadedAdapter, Error> {
    let expected = own.adapter.digest();
    for RankAnswer { rank, found: RankAdapter { host, digest } } in answers {
        let problem = match digest {
            Ok(digest) if digest == expected => continue,
            Ok(digest) => {
                let path = path.display();
                format!("{path}: expected the adapter {expected} of rank 0, found {digest}")
            }
            Err(problem) => problem.clone(),
        };
        return Err(Error::Adapter(format!("rank {rank} ({host}): {problem}")));
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dist::Local;

    /// An adapter that a rank has read.
    fn loaded(digest: &str) -> LoadedAdapter {
        let adapter = Arc::new(Adapter::new(digest.to_owned(), Vec::new()));
        LoadedAdapter { name: "a".to_owned(), path: "a".into(), adapter }
    }

    /// What rank 0 finds where the other rank answers so; and the digests that the other one has to
    /// forget.
    fn opened(
        own: Result<LoadedAdapter, Error>,
        answer: Result<&str, &str>,
    ) -> (Result<LoadedAdapter, Error>, Vec<String>) {
        let [first, second] = Local::group(2).try_into().unwrap();
        let answer = RankAdapter {
            host: "node1".to_owned(),
            digest: answer.map(str::to_owned).map_err(str::to_owned),
        };
        let follow = move || {
            let (mut bytes, mut forgotten) = (Vec::new(), Vec::new());
            for number in 0.. {
                second.receive_bytes(0, &mut bytes).unwrap();
                let (kind, mut reader) = MessageReader::begin(&bytes, number).unwrap();
                match kind {
                    MessageKind::OpenAdapter => {
                        assert_eq!(reader.text().unwrap(), "some/path");
                        second.send_bytes(0, &answer.bytes()).unwrap();
                    }
                    MessageKind::ForgetAdapter => forgotten.push(reader.text().unwrap().to_owned()),
                    _ => break,
                }
            }
            forgotten
        };
        let follower = std::thread::spawn(follow);
        let ranks: Arc<dyn Comm> = Arc::new(first);
        let outbox = Arc::new(Outbox::new(Arc::clone(&ranks)));
        let led = LedAdapters::new(ranks, Arc::clone(&outbox));
        let found = led.open(Path::new("some/path"), || own);
        outbox.end();
        let after = led.open(Path::new("some/path"), || unreachable!()).unwrap_err();
        assert_eq!(after.to_string(), "some/path: the engine has ended");
        (found, follower.join().unwrap())
    }

    #[test]
    fn all_ranks_read_the_same_adapter_or_none_keeps_it() {
        let (found, forgotten) = opened(Ok(loaded("x")), Ok("x"));
        assert!(found.unwrap().adapter.digest() == "x" && forgotten.is_empty());
        let (found, forgotten) = opened(Ok(loaded("x")), Ok("y"));
        let problem = found.unwrap_err().to_string();
        let expected = "some/path: expected the adapter x of rank 0, found y";
        assert_eq!(
            (problem, &forgotten[..]),
            (format!("rank 1 (node1): {expected}"), &["y".into()][..])
        );
        let (found, forgotten) = opened(Ok(loaded("x")), Err("some/path: no such file"));
        assert_eq!(found.unwrap_err().to_string(), "rank 1 (node1): some/path: no such file");
        assert!(forgotten.is_empty());
        let (found, forgotten) = opened(Err(Error::Adapter("none".to_owned())), Ok("y"));
        assert_eq!((found.unwrap_err().to_string(), forgotten), ("none".into(), vec!["y".into()]));
    }

    #[test]
    fn other_ranks_forget_adapters_that_nothing_uses() {
        let [first, second] = Local::group(2).try_into().unwrap();
        let ranks: Arc<dyn Comm> = Arc::new(first);
        let outbox = Arc::new(Outbox::new(Arc::clone(&ranks)));
        let led = LedAdapters::new(ranks, outbox);
        let shared = |digest: &str| {
            let LoadedAdapter { adapter, .. } = loaded(digest);
            led.0.shared.lock().unwrap().push((digest.to_owned(), Arc::downgrade(&adapter)));
            adapter
        };
        // One of them is used under a second name.
        let [used, _, _, _] = ["x", "x", "z", "y"].map(shared);
        led.forget_unused(&mut led.0.shared.lock().unwrap()).unwrap();
        let mut bytes = Vec::new();
        for (number, digest) in [(0, "y"), (1, "z")] {
            second.receive_bytes(0, &mut bytes).unwrap();
            let (kind, mut reader) = MessageReader::begin(&bytes, number).unwrap();
            assert_eq!((kind, reader.text()), (MessageKind::ForgetAdapter, Ok(digest)));
        }
        let left = led.0.shared.lock().unwrap();
        assert_eq!((left.len(), &left[0].0), (1, &used.digest().to_owned()));
    }
}
