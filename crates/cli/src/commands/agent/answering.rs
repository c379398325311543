//! What answers: a model in this process, or a server.

use super::session::OpenSession;
use crate::load::LoadedModel;
use crate::output::note;
use agent::{AgentModel, LocalModel, RemoteModel};
use anyhow::{Context, Result, bail};
use api::{ChatRequest, Message, Tool, Transcript};
use client::{ListedModel, RemoteServer, Wait};
use std::time::Duration;

/// Time for a server to list its models.
const LIST: Duration = Duration::from_secs(30);
/// The context of a server that does not tell it.
const USUAL_CONTEXT: usize = 32_768;

/// What answers.
pub(super) enum Answering {
    /// A model in this process.
    Local(Box<LoadedModel>),
    /// A model on a server.
    Remote {
        /// The server.
        server: Box<RemoteServer>,
        /// The model's name there.
        name: String,
        /// Tokens of its context.
        context: usize,
    },
}

impl Answering {
    /// The model of this name on the server at `url`, or its first one.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or does not have it.
    pub fn at(url: &str, key: Option<&str>, name: Option<String>) -> Result<Self> {
        let server = RemoteServer::new(url, key).context("--url")?;
        let models = server.models(Wait::at_most(LIST)).context("--url")?;
        let found = match &name {
            Some(name) => models.into_iter().find(|model| model.id == *name),
            None => models.into_iter().next(),
        };
        let context = |model: &ListedModel| {
            model.context_length.and_then(|length| usize::try_from(length).ok())
        };
        match (found, name) {
            (Some(model), _) => {
                let context = context(&model).unwrap_or(USUAL_CONTEXT);
                Ok(Self::Remote { server: Box::new(server), name: model.id, context })
            }
            (None, Some(name)) => bail!("--url {url}: the server lists no model {name}"),
            (None, None) => bail!("--url {url}: the server lists no model"),
        }
    }

    /// The name of the model.
    pub fn name(&self) -> &str {
        match self {
            Self::Local(loaded) => &loaded.service.info().name,
            Self::Remote { name, .. } => name,
        }
    }

    /// Whether calls of a tool can be held to its schema.
    pub fn can_hold(&self, tool: &Tool) -> bool {
        let Self::Local(loaded) = self else { return false };
        let request = ChatRequest {
            messages: vec![Message::user("")],
            tools: vec![Tool { strict: true, ..tool.clone() }],
            ..ChatRequest::default()
        };
        loaded.service.prepare_chat(&request).is_ok()
    }

    /// Checks that a conversation of `request` can begin.
    ///
    /// # Errors
    ///
    /// If its system text and tools leave no space in the context of a model in this process.
    pub fn check_space(&self, request: &ChatRequest) -> Result<()> {
        let Self::Local(loaded) = self else { return Ok(()) };
        let mut first = request.clone();
        first.messages.push(Message::user("go"));
        match loaded.service.prepare_chat(&first) {
            Err(error) if error.is_full() => Err(error).context(
                "no space for the tools: expected a model with a longer context (-m MODEL), or \
                 another --ctx",
            ),
            // Other errors are those of the first answer.
            _ => Ok(()),
        }
    }

    /// What decides the tokens of a conversation besides its messages, as text.
    pub fn digest(&self, request: &ChatRequest) -> String {
        match self {
            Self::Local(loaded) => {
                let digest = loaded.service.conversation_digest(request);
                format!("{:032x}", u128::from_be_bytes(digest))
            }
            Self::Remote { server, name, .. } => format!("{} {name}", server.url()),
        }
    }

    /// The conversation of `request`, which continues from `open`: from its tokens if they are of
    /// this model.
    ///
    /// # Errors
    ///
    /// If the model generates no text.
    pub fn model(
        &self,
        mut request: ChatRequest,
        (open, has_tokens): (&OpenSession, bool),
    ) -> Result<Box<dyn AgentModel>> {
        if let Some(resumed) = &open.resumed {
            request.messages.clone_from(&resumed.messages);
        }
        match self {
            Self::Local(loaded) => {
                let transcript = transcript(loaded, request, (open, has_tokens))?;
                Ok(Box::new(LocalModel::new(loaded.service.clone(), transcript)?))
            }
            Self::Remote { server, name, context } => {
                let model = (name.clone(), *context);
                let model = RemoteModel::new((**server).clone(), model, request);
                Ok(Box::new(model))
            }
        }
    }

    /// Ends the model, and waits for what it still writes.
    pub fn finish(self) {
        if let Self::Local(loaded) = self {
            loaded.finish();
        }
    }
}

fn transcript(
    loaded: &LoadedModel,
    request: ChatRequest,
    (open, has_tokens): (&OpenSession, bool),
) -> Result<Transcript> {
    let resumed = open.resumed.as_ref().filter(|_| has_tokens);
    let turns = resumed.map_or_else(Vec::new, |resumed| resumed.turns.clone());
    let (transcript, fault) = LocalModel::transcript(&loaded.service, request, turns)?;
    if let Some(fault) = fault {
        note(format_args!("{fault}: the messages are rendered anew"));
    }
    Ok(transcript)
}
