//! The engine as a caller sees it: questions in, answers out, the calling thread waits.

use crate::{Answer, Batch, Builder, Error, Messages, Request, Stream};
use api::Service;
use engine::{Memory, ModelInfo};
use std::path::Path;

/// A model that answers. Clones share it, and threads may use it at the same time; it is given up
/// with the last of them.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) service: Service,
    pub(crate) memory: Memory,
    pub(crate) threads: usize,
    pub(crate) isa: &'static str,
    pub(crate) parallel: usize,
}

impl Engine {
    /// Loads the model at `path`: a folder with safetensors and their JSON files, or a GGUF file.
    ///
    /// ```no_run
    /// let engine = gannet::Engine::load("models/Qwen3-0.6B-Q8_0.gguf")?;
    /// # Ok::<(), gannet::Error>(())
    /// ```
    ///
    /// The error names the file, and what is wrong with it:
    ///
    /// ```
    /// let error = gannet::Engine::load("no/such/model.gguf").unwrap_err();
    /// assert!(error.to_string().contains("no/such/model.gguf"));
    /// ```
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().load(path)
    }

    /// Choices to be made before a model is loaded.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The next message of a conversation, or the answer to one question.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny");
    /// # let engine = gannet::Engine::load(path)?;
    /// let answer = engine.chat("What is the opposite of hot?")?;
    /// assert_eq!(answer.text, "The opposite of hot is cold.");
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn chat(&self, messages: impl Into<Messages>) -> Result<Answer, Error> {
        self.answer(Request::chat(messages))
    }

    /// The continuation of a text, as it is and without a template.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny");
    /// # let engine = gannet::Engine::load(path)?;
    /// let answer = engine.complete("The capital of France is")?;
    /// assert!(answer.text.starts_with(" Paris"));
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn complete(&self, prompt: impl Into<String>) -> Result<Answer, Error> {
        self.answer(Request::complete(prompt))
    }

    /// The answer to a request that says how to sample.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny");
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

    /// The answer to a request, piece by piece as it is computed. Dropping the stream ends it.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny");
    /// # let engine = gannet::Engine::load(path)?;
    /// for delta in engine.stream("Count to ten.")?.take(5) {
    ///     print!("{}", delta?.text);
    /// }
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn stream(&self, request: impl Into<Request>) -> Result<Stream, Error> {
        Ok(Stream::new(request.into().start(&self.service)?))
    }

    /// The answers to many requests, computed as many at a time as [`Builder::parallel`] says, in
    /// the order in which they are finished. Each comes with the place of its request, counted
    /// from 0. A request that is refused is an error in its place and leaves the others alone.
    ///
    /// Requests are drawn from the iterator as there is room for them, so that there may be any
    /// number; see [`Batch`].
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny");
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

    /// What is loaded.
    pub fn info(&self) -> &ModelInfo {
        self.service.info()
    }

    /// Bytes held.
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The instruction set in use.
    pub fn isa(&self) -> &'static str {
        self.isa
    }

    /// The layer below: prompts rendered and tokenized by hand, events in async code.
    pub fn service(&self) -> &Service {
        &self.service
    }
}
