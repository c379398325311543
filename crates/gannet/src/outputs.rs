//! Outputs of prompts themselves: embeddings, relevances and logits.

use crate::engine::Engine;
use crate::error::Error;
use api::{ApiError, Embedding, Prompt, RequestOptions, Service, probability};
use engine::Embed;
use std::future::Future;
use tokio::runtime::{Builder, Runtime};

impl Engine {
    /// Computes the embedding of each text: a vector of length 1, pooled as the checkpoint says.
    /// The vectors are those of the server's `/v1/embeddings`; texts are computed together, which
    /// changes no bit.
    ///
    /// The checkpoint's default prompt, if it has one, is put before each text. Other poolings and
    /// fewer dimensions are options of [`Service::embed`].
    ///
    /// # Errors
    /// If the model computes no embeddings, or a text is empty or does not fit into the context.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    /// # let engine = gannet::Engine::load(path)?;
    /// let vectors = engine.embed(&["The cat sleeps.", "A cat is asleep.", "3 + 4 = 7."])?;
    /// let cosine = |a: usize, b: usize| -> f32 {
    ///     vectors[a].iter().zip(&vectors[b]).map(|(a, b)| a * b).sum()
    /// };
    /// assert_eq!(vectors[0].len(), engine.info().hidden_size);
    /// assert!(cosine(0, 1) > cosine(0, 2));
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn embed(&self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<f32>>, Error> {
        let before = self.service.embedding_prompt(None)?;
        let embed = Embed { normalize: true, ..Embed::default() };
        let vector = |service: Service, text: &str| {
            let prompt = Prompt::Text(format!("{before}{text}"));
            Ok(async move { service.embed(&prompt, embed, &RequestOptions::default()).await })
        };
        let embeddings = self.together(texts, vector)?;
        Ok(embeddings.into_iter().map(|embedding| embedding.vector).collect())
    }

    /// Computes how relevant each document is for a query, from 0 to 1, in the order of the
    /// documents: the relevances of the server's `/v1/rerank`. Documents are computed together,
    /// which changes no bit.
    ///
    /// # Errors
    /// If the model has no head that scores documents, or the query with a document does not fit
    /// into the context.
    ///
    /// ```
    /// # let Some(path) = fixtures::find("embeddings/bert_reranker") else { return Ok(()) };
    /// # /*
    /// let engine = gannet::Engine::load("bge-reranker-v2-m3")?;
    /// # */
    /// # let engine = gannet::Engine::load(path)?;
    /// let documents = ["Paris is the capital of France.", "Cats sleep all day."];
    /// let relevances = engine.rerank("What is the capital of France?", &documents)?;
    /// assert!(relevances.iter().all(|relevance| (0.0..=1.0).contains(relevance)));
    /// assert_eq!(relevances.len(), documents.len());
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn rerank(&self, query: &str, documents: &[impl AsRef<str>]) -> Result<Vec<f32>, Error> {
        let query = self.service.query_ids(query)?;
        let score = |service: Service, document: &str| {
            let pair = service.checked_pair(&query, document, None)?;
            Ok(async move { service.score(pair, &RequestOptions::default()).await })
        };
        let scores = self.together(documents, score)?;
        Ok(scores.iter().filter_map(|it| it.vector.first().copied().map(probability)).collect())
    }

    /// Computes the logits after each token of a prompt: one row for each token, with a value for
    /// each token of the vocabulary that could follow it. A text gets the model's special tokens,
    /// such as BOS; ids are taken as they are. The rows take four bytes for each value.
    ///
    /// # Errors
    /// If the model generates no text, or the prompt is empty or does not fit into the context.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    /// # let engine = gannet::Engine::load(path)?;
    /// let rows = engine.logits("The capital of France is")?;
    /// let last = rows.last().unwrap();
    /// let best = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap();
    /// assert_eq!(engine.service().decode(&[best as u32]), " Paris");
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn logits(&self, prompt: impl Into<Prompt>) -> Result<Vec<Vec<f32>>, Error> {
        let (prompt, terms) = (prompt.into(), RequestOptions::default());
        Ok(waiter()?.block_on(self.service.logits(&prompt, &terms))?)
    }

    /// Makes a request of each text, and computes twice as many of them at a time as answers.
    fn together<F>(
        &self,
        texts: &[impl AsRef<str>],
        request: impl Fn(Service, &str) -> Result<F, ApiError>,
    ) -> Result<Vec<Embedding>, Error>
    where
        F: Future<Output = Result<Embedding, ApiError>> + Send + 'static,
    {
        let waiter = waiter()?;
        let mut all = Vec::with_capacity(texts.len());
        for texts in texts.chunks(self.parallel.saturating_mul(2)) {
            let requests = texts.iter().map(|text| request(self.service.clone(), text.as_ref()));
            let requests = requests.collect::<Result<Vec<_>, _>>()?;
            let running: Vec<_> = requests.into_iter().map(|it| waiter.spawn(it)).collect();
            for found in running {
                let broken = |_| ApiError::Engine("internal error".to_owned());
                all.push(waiter.block_on(found).map_err(broken)??);
            }
        }
        Ok(all)
    }
}

/// Waits on the calling thread.
fn waiter() -> Result<Runtime, Error> {
    Builder::new_current_thread().build().map_err(Error::Thread)
}
