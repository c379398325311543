//! The engine as callers see it: requests in, answers out, the calling thread waits.

use crate::answer::{Answer, Stream};
use crate::batch::Batch;
use crate::error::Error;
use crate::prefixes::{ExportedPrefix, StoredPrefixes};
use crate::request::{Messages, Request};
use api::Service;
use backend::Memory;
use engine::{LeadOptions, Led, ModelInfo};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks at whether an engine has ended.
const POLL: Duration = Duration::from_millis(2);

/// A loaded model. Clones share it, and threads may use it at the same time; the last clone frees
/// it.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) service: Service,
    pub(crate) memory: Memory,
    pub(crate) threads: usize,
    pub(crate) isa: String,
    pub(crate) parallel: usize,
    pub(crate) warnings: Vec<String>,
    /// Computed prefixes on disk, or why there are none.
    pub(crate) prefixes: Result<StoredPrefixes, &'static str>,
    pub(crate) thread: Arc<JoinHandle<()>>,
}

impl Engine {
    /// Answers a conversation, or one question.
    ///
    /// # Errors
    /// If the request is rejected or its computation failed.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    /// # let engine = gannet::Engine::load(path)?;
    /// let answer = engine.chat("What is the opposite of hot?")?;
    /// assert_eq!(answer.text, "The opposite of hot is cold.");
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn chat(&self, messages: impl Into<Messages>) -> Result<Answer, Error> {
        self.answer(Request::chat(messages))
    }

    /// Continues a text, without a chat template.
    ///
    /// # Errors
    /// If the request is rejected or its computation failed.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    /// # let engine = gannet::Engine::load(path)?;
    /// let answer = engine.complete("The capital of France is")?;
    /// assert!(answer.text.starts_with(" Paris"));
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn complete(&self, prompt: impl Into<String>) -> Result<Answer, Error> {
        self.answer(Request::complete(prompt))
    }

    /// Answers a request.
    ///
    /// # Errors
    /// If the request is rejected or its computation failed.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    /// # let engine = gannet::Engine::load(path)?;
    /// use gannet::{Error, Request};
    ///
    /// let answer = engine.answer(Request::chat("Tell me a story.").max_tokens(5))?;
    /// assert_eq!(answer.finish_reason.reason(), "length");
    ///
    /// let refused = engine.answer(Request::chat("Hello").temperature(-1.0)).unwrap_err();
    /// assert_eq!(refused.to_string(), "temperature must be between 0 and 100, not -1");
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn answer(&self, request: impl Into<Request>) -> Result<Answer, Error> {
        self.stream(request)?.finish()
    }

    /// Streams the answer to a request. Dropping the stream ends the computation.
    ///
    /// # Errors
    /// If the request is rejected.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    /// # let engine = gannet::Engine::load(path)?;
    /// for delta in engine.stream("Count to ten.")?.take(5) {
    ///     print!("{}", delta?.text);
    /// }
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn stream(&self, request: impl Into<Request>) -> Result<Stream, Error> {
        Ok(Stream::new(request.into().start(&self.service)?))
    }

    /// Answers many requests, [`Builder::parallel`](crate::Builder::parallel) at a time, in the
    /// order in which they finish. Each answer comes with the index of its request. A request that
    /// is rejected is an error and does not affect the others.
    ///
    /// Requests are taken from the iterator as earlier ones finish, so there may be any number; see
    /// [`Batch`].
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    /// # let engine = gannet::Engine::load(path)?;
    /// let questions = ["What is 3 + 4?", "What is 9 - 5?"];
    /// let mut answers = vec![String::new(); questions.len()];
    /// for (place, answer) in engine.batch(questions) {
    ///     answers[place] = answer?.text;
    /// }
    /// assert_eq!(answers, ["3 + 4 = 7.", "9 - 5 = 4."]);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn batch<I>(&self, requests: I) -> Batch<I::IntoIter>
    where
        I: IntoIterator,
        I::Item: Into<Request>,
    {
        Batch::new(self.service.clone(), self.parallel, requests.into_iter())
    }

    /// Returns a description of the model.
    pub fn info(&self) -> &ModelInfo {
        self.service.info()
    }

    /// Returns the memory in use, in bytes.
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// Returns what to know about the loaded model: options that could not be met in full.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the number of compute threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the instruction set in use.
    pub fn isa(&self) -> &str {
        &self.isa
    }

    /// Returns the name of the arithmetic in use: engines of equal names compute equal bits.
    pub fn arithmetic(&self) -> &str {
        &self.info().arithmetic
    }

    /// Ends the engine: waits until its thread has ended, which stores the last prefixes on disk
    /// where there is a folder for them, but not longer than `most`. Other handles of the engine,
    /// such as clones of its service, must be dropped before. Returns whether it ended; without
    /// this call, an engine ends on its own with its last handle.
    pub fn finish(self, most: Duration) -> bool {
        let Self { service, thread, .. } = self;
        drop(service);
        let end = Instant::now() + most;
        while !thread.is_finished() && Instant::now() < end {
            std::thread::sleep(POLL);
        }
        thread.is_finished()
    }

    /// Writes what the folder of prefixes ([`Builder::kv_dir`](crate::Builder::kv_dir)) holds of a
    /// prompt to a file, whether it was computed by this engine or another. `gannet cache import`
    /// adds it to another folder. It is not encrypted.
    ///
    /// # Errors
    /// If there is no folder, the digest of the weights is not known yet, the model's prefixes are
    /// not stored, or the file cannot be written.
    pub fn export_prefix(&self, prompt: &[u32], path: &Path) -> Result<ExportedPrefix, Error> {
        let prefixes = self.prefixes.as_ref().map_err(|why| Error::Prefixes(why))?;
        prefixes.export(prompt, path)
    }

    /// Begins a sequence that the caller leads: it pushes tokens, gets logits, and chooses the
    /// next tokens. Its logits have the bits of any request with the same tokens, and other
    /// requests are computed in the same steps.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    /// # let engine = gannet::Engine::load(path)?;
    /// use gannet::{LeadOptions, TokenSampler, Want};
    ///
    /// let tokenizer = engine.service().tokenizer();
    /// let prompt = tokenizer.encode("The capital of France is", Default::default()).unwrap();
    /// let vocab_size = engine.info().vocab_size;
    /// let mut sampler = TokenSampler::new(Default::default(), vocab_size).unwrap();
    ///
    /// let mut sequence = engine.lead(LeadOptions::default());
    /// let mut next = prompt.clone();
    /// for _ in 0..2 {
    ///     let logits = sequence.push(&next, Want::Last).unwrap().into_values();
    ///     let id = sampler.choose(sequence.tokens(), prompt.len(), &logits, None).unwrap();
    ///     next = vec![id];
    /// }
    /// let answer = [&sequence.tokens()[prompt.len()..], &next].concat();
    /// assert_eq!(tokenizer.decode(&answer, true), " Paris.");
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn lead(&self, options: LeadOptions) -> Led {
        self.service.engine.lead(options)
    }

    /// Returns the service below, for prompts rendered by hand and for async code.
    pub fn service(&self) -> &Service {
        &self.service
    }
}
