//! Reads the body of a request for a response.

use crate::generate::constraint::ConstraintBody;
use crate::http::app::unix_now;
use crate::http::error::HttpError;
use crate::http::fields::wrong;
use crate::http::random;
use crate::http::wire;
use crate::protocols::openai::sampling::ChatSampling;
use crate::protocols::responses::conversations::{self, Lease};
use crate::protocols::responses::history::{self, Item};
use crate::protocols::responses::input::{self, TRIGGER};
use crate::protocols::responses::object::{ConversationId, Response, Status};
use crate::protocols::responses::open_item::ItemView;
use crate::protocols::responses::records::Owner;
use crate::protocols::responses::request::{
    CreateResponse, Format, ResponseBody, SummaryKind, TextOptions, Truncation,
};
use crate::protocols::responses::settings;
use crate::protocols::responses::store::ResponseStore;
use crate::protocols::responses::summary;
use crate::protocols::responses::tools::{self, Origin, Tools};
use crate::protocols::responses::turn::{StoredTurn, conversation};
use crate::protocols::warnings::{UNUSED, Warnings};
use api::{ChatRequest, Message, RequestOptions, SamplingOptions, Service};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use text::GrammarSource;

/// Names in `include` of members that no answer of this server has.
const NEVER_PRESENT: [&str; 6] = [
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
];

/// Members of a response alone that this server has nothing for, and what a warning says of them.
const UNUSED_OF_RESPONSES: [(&str, &str); 4] = [
    ("access_programs", "there are none"),
    ("background_options", "a background response is computed as soon as there is space"),
    ("image", "there are no images"),
    ("multi_agent", "there is one agent"),
];

/// A request for a response.
#[derive(Debug)]
pub(crate) struct ResponseCall {
    pub request: ChatRequest,
    pub options: RequestOptions,
    /// The part of the key's responses that the response belongs to.
    pub space: [u8; 16],
    pub stream: bool,
    /// The response without its output.
    pub response: Response,
    pub view: ItemView,
    pub tools: Tools,
    /// The conversation before, and what this request adds to it.
    pub context: Continuation,
    /// Of a response that is made in the background and kept in a file: the request without its
    /// input, for the response to be computed again.
    pub body: Option<String>,
}

/// How a request came.
#[derive(Clone, Debug)]
pub(crate) enum Transport {
    /// As the body of a request.
    Http,
    /// As a message of a WebSocket, with the last response made on it.
    Socket(Option<RecentResponse>),
    /// As the body of a request that is not answered: its tokens are counted.
    Count,
}

/// The response that was made last on a connection, which the next may continue though it is not
/// stored.
#[derive(Clone, Debug)]
pub(crate) struct RecentResponse {
    pub id: String,
    pub turn: Arc<StoredTurn>,
}

/// What a request continues, and what it adds.
#[derive(Debug, Default)]
pub(crate) struct Continuation {
    /// The turn before.
    pub parent: Option<Arc<StoredTurn>>,
    pub input: Vec<Arc<Item>>,
    /// The conversation that the turn belongs to.
    pub lease: Option<Lease>,
}

/// Reads requests, with what they may refer to.
#[derive(Debug)]
pub(crate) struct RequestReader<'a> {
    pub service: &'a Service,
    pub store: &'a ResponseStore,
    pub owner: &'a Owner,
    pub transport: &'a Transport,
    /// Most bytes of a conversation.
    pub limit: usize,
}

impl RequestReader<'_> {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// If a member cannot be read, is not supported, or contradicts another; also if the response
    /// or conversation that it continues is unknown or busy.
    pub fn read(&self, body: &Value) -> Result<ResponseCall, HttpError> {
        let mut request: ResponseBody = wire::read(body)?;
        let asked = &request.asked;
        refuse(asked)?;
        if let Transport::Socket(_) = self.transport {
            check_event(body, asked)?;
        }
        let context = |asked: &CreateResponse, space: [u8; 16], warnings: &mut Warnings| {
            self.conversation(asked, space, warnings)
        };
        if asked.background != Some(true) || !self.store.is_kept() {
            return self.call(request, body, context);
        }
        let seed = self.seed(&mut request.sampling.0);
        let call = self.call(request, body, context)?;
        let mut body = body.clone();
        if let Some(body) = body.as_object_mut() {
            body.insert("seed".into(), seed.into());
            body.shift_remove("input");
            // It is no item of the turn.
            if call.view.compacts {
                body.insert("input".into(), json!([{ "type": TRIGGER }]));
            }
        }
        Ok(ResponseCall { body: Some(body.to_string()), ..call })
    }

    /// Reads a request again whose response was cut off. `turn` holds its input and what it
    /// continues.
    ///
    /// # Errors
    /// As [`read`](Self::read), except for what it continues.
    pub fn read_again(&self, body: &Value, turn: &StoredTurn) -> Result<ResponseCall, HttpError> {
        let (parent, input) = (turn.parent.clone(), turn.input.clone());
        let context = Continuation { parent, input, lease: None };
        self.call(wire::read(body)?, body, |_, _, _| Ok(context))
    }

    /// Gives the answer a seed, so that it can be computed again, and returns it.
    fn seed(&self, sampling: &mut SamplingOptions) -> u64 {
        let seed = sampling.over(&self.service.defaults).seed.unwrap_or_else(random::seed);
        (sampling.seed, sampling.random_seed) = (Some(seed), false);
        seed
    }

    /// The call that `request` asks for in `body`; `context` gives the turn before, and what the
    /// request adds to it.
    fn call(
        &self,
        request: ResponseBody,
        body: &Value,
        context: impl FnOnce(
            &CreateResponse,
            [u8; 16],
            &mut Warnings,
        ) -> Result<Continuation, HttpError>,
    ) -> Result<ResponseCall, HttpError> {
        let mut warnings = Warnings::default();
        let ResponseBody { mut asked, thinking, options, sampling } = request;
        let ChatSampling(sampling) = sampling;
        let compacts = input::take_trigger(asked.input.as_mut().map(|input| &mut input.0))?;
        let options = options.without_progress()?;
        let space = self.space(&options);
        let context = context(&asked, space, &mut warnings)?;
        let items = self.items(context.parent.as_deref(), &context.input)?;
        let settings = items.iter().filter_map(|item| match &**item {
            Item::Configuration(item) => Some(item),
            _ => None,
        });
        settings::apply(&mut asked, settings)?;
        let mut tools = Tools::read(asked.tools.as_deref().unwrap_or_default(), &mut warnings)?;
        for item in &items {
            if let Item::Tools(item) = &**item {
                tools.extend(&item.tools, "input", Origin::Item, &mut warnings)?;
            }
        }
        let tool_choice = tools::choice(asked.tool_choice.as_deref(), &mut tools)?;
        let view = ItemView { compacts, ..view(&asked, &mut warnings) };
        warn(&asked, body, &mut warnings);
        let sampling = SamplingOptions {
            max_tokens: if view.nothing { Some(1) } else { asked.max_output_tokens },
            logprobs: view.logprobs.then(|| asked.top_logprobs.unwrap_or(0)),
            ..sampling
        };
        let thinking = thinking.asked(template_kwargs(&asked))?;
        let messages = self.messages(asked.instructions.as_deref(), &items)?;
        let mut request = ChatRequest {
            messages,
            tools: tools.functions.clone(),
            tool_choice,
            parallel_calls: asked.parallel_tool_calls.unwrap_or(true),
            reasoning_budget: thinking.budget,
            template_kwargs: thinking.kwargs,
            sampling,
            grammar: match grammar(asked.text.as_ref())? {
                None => wire::read::<ConstraintBody>(body)?.field()?.map(|field| field.source),
                grammar => grammar,
            },
            ..ChatRequest::default()
        };
        if compacts {
            summary::request_summary(&mut request, self.service);
        }
        let stream = asked.stream.unwrap_or(false);
        let response = self.response(asked, &request.sampling, warnings);
        let body = None;
        Ok(ResponseCall { request, options, space, stream, response, view, tools, context, body })
    }

    /// The part of the caches in which requests of these options find what they continue.
    pub fn space(&self, options: &RequestOptions) -> [u8; 16] {
        self.service.partition.within_key().of_options(options).space
    }

    /// The turn before, and what the request adds to it.
    ///
    /// # Errors
    /// If `input` is missing or cannot be read, or the response or conversation that it continues
    /// is unknown or busy.
    pub fn conversation(
        &self,
        asked: &CreateResponse,
        space: [u8; 16],
        warnings: &mut Warnings,
    ) -> Result<Continuation, HttpError> {
        let (parent, lease) = match (&asked.previous_response_id, &asked.conversation) {
            (Some(id), _) => (Some(self.parent(id, space)?), None),
            (None, Some(named)) => self.continued(conversation_id(named)?)?,
            (None, None) => (None, None),
        };
        let input = match &asked.input {
            None if parent.is_some() => Vec::new(),
            None => return Err(wire::missing("input")),
            Some(given) => {
                let ids = input::references(given, "input")?;
                let known = self.store.items(self.owner, space, &ids);
                input::read(given, "input", &known, warnings)?
            }
        };
        Ok(Continuation { parent, input, lease })
    }

    /// The last turn of the conversation `id`, and the right to change it.
    fn continued(&self, id: &str) -> Result<(Option<Arc<StoredTurn>>, Option<Lease>), HttpError> {
        let store = &self.store.conversations;
        if let Transport::Count = self.transport {
            let found = store.get(self.owner, id).ok_or_else(|| conversations::unknown(id))?;
            return Ok((found.last, None));
        }
        let lease = conversations::lease(store, self.owner, id)?;
        Ok((lease.last.clone(), Some(lease)))
    }

    /// The turn of the response `id`, which requests of other users or salts do not continue.
    fn parent(&self, id: &str, space: [u8; 16]) -> Result<Arc<StoredTurn>, HttpError> {
        let refused = |message: String| HttpError::invalid("previous_response_id", message);
        if let Transport::Socket(Some(recent)) = self.transport
            && recent.id == id
            && recent.turn.space == space
        {
            return Ok(Arc::clone(&recent.turn));
        }
        let stored = self.store.get(self.owner, id);
        match stored.filter(|stored| stored.turn.space == space) {
            Some(stored) if !stored.running => Ok(Arc::clone(&stored.turn)),
            Some(_) => Err(refused(format!("response {id} is still in progress"))),
            None => Err(refused(format!("previous response with id '{id}' not found"))
                .with_code("previous_response_not_found")),
        }
    }

    /// The items of the whole conversation, which may be no larger than a body may.
    ///
    /// # Errors
    /// If they are too large, or outputs and calls do not belong together.
    pub fn items(
        &self,
        parent: Option<&StoredTurn>,
        input: &[Arc<Item>],
    ) -> Result<Vec<Arc<Item>>, HttpError> {
        let mut items = conversation(parent, input);
        history::without_summarized(&mut items);
        input::check_outputs(&items)?;
        input::check_size(&items, self.limit, "input")?;
        Ok(items)
    }

    /// The messages that `items` are.
    ///
    /// # Errors
    /// If there are none.
    pub fn messages(
        &self,
        instructions: Option<&str>,
        items: &[Arc<Item>],
    ) -> Result<Vec<Message>, HttpError> {
        let messages = history::render(instructions, items);
        if messages.is_empty() {
            return Err(HttpError::invalid("input", "input holds nothing to answer"));
        }
        Ok(messages)
    }

    /// The response without its output.
    fn response(
        &self,
        asked: CreateResponse,
        sampling: &SamplingOptions,
        warnings: Warnings,
    ) -> Response {
        let background = asked.background.unwrap_or(false);
        let used = sampling.over(&self.service.defaults).params();
        Response {
            id: random::id("resp_"),
            created_at: unix_now(),
            status: if background { Status::Queued } else { Status::InProgress },
            background,
            frequency_penalty: used.frequency_penalty,
            max_output_tokens: asked.max_output_tokens,
            max_tool_calls: asked.max_tool_calls,
            model: self.service.info().name.clone(),
            parallel_tool_calls: asked.parallel_tool_calls.unwrap_or(true),
            presence_penalty: used.presence_penalty,
            reasoning: json!({
                "effort": asked.reasoning.as_ref().and_then(|options| options.effort.as_ref()),
                "summary": summary(&asked),
            }),
            service_tier: "default".into(),
            store: asked.store.unwrap_or(true),
            temperature: used.temperature,
            text: text_json(asked.text.as_ref()),
            tool_choice: asked.tool_choice.map_or_else(|| "auto".into(), |choice| choice.0),
            tools: tools::shown(asked.tools.unwrap_or_default()),
            top_logprobs: asked.top_logprobs.unwrap_or(0),
            top_p: used.top_p,
            truncation: "disabled".into(),
            conversation: asked.conversation.as_ref().and_then(|conversation| {
                Some(ConversationId { id: conversation_id(conversation).ok()?.to_owned() })
            }),
            instructions: asked.instructions,
            previous_response_id: asked.previous_response_id,
            prompt_cache_key: asked.prompt_cache_key,
            safety_identifier: asked.safety_identifier,
            user: asked.user,
            metadata: asked.metadata.unwrap_or_default(),
            warnings,
            ..Response::default()
        }
    }
}

/// Refuses members that would change the answer and are not supported.
pub(crate) fn refuse(asked: &CreateResponse) -> Result<(), HttpError> {
    let unstored = asked.background == Some(true) && asked.store == Some(false);
    let both = asked.conversation.is_some() && asked.previous_response_id.is_some();
    let refusals = [
        (both, "conversation", "cannot be used together with previous_response_id"),
        (asked.prompt.is_some(), "prompt", "is not supported: the server has no stored prompts"),
        (asked.max_output_tokens == Some(0), "max_output_tokens", "must be at least 1"),
        (unstored, "background", "needs store to be true"),
    ];
    if let Some((_, field, why)) = refusals.into_iter().find(|(refused, ..)| *refused) {
        return Err(HttpError::member(field, why));
    }
    let managed = asked.context_management.iter().flatten().enumerate();
    match managed.into_iter().find(|(_, entry)| entry.kind != "compaction") {
        Some((at, entry)) => {
            let problem = format!("must be compaction, not {}", entry.kind);
            Err(HttpError::member(&format!("context_management[{at}].type"), problem))
        }
        None => Ok(()),
    }
}

/// The id of the conversation that the member `conversation` names.
fn conversation_id(given: &Value) -> Result<&str, HttpError> {
    let id = given.as_str().or_else(|| given.get("id")?.as_str());
    id.ok_or_else(|| wrong("conversation", "an id, or an object with an id", given))
}

/// Refuses messages that ask for no response, or for one without its client.
fn check_event(body: &Value, asked: &CreateResponse) -> Result<(), HttpError> {
    const CREATE: &str = "response.create";
    let kind = body.get("type").unwrap_or(&Value::Null);
    if kind != CREATE {
        let problem = format!("must be {CREATE}, not {kind}");
        return Err(HttpError::member("type", problem).with_code("unknown_event"));
    }
    match asked.background {
        Some(true) => Err(HttpError::member("background", "is not supported over a WebSocket")),
        _ => Ok(()),
    }
}

/// The grammar that the text must match.
fn grammar(text: Option<&TextOptions>) -> Result<Option<GrammarSource>, HttpError> {
    let format = text.and_then(|text| text.format.as_ref());
    format.map_or(Ok(None), |format| format.grammar("text.format"))
}

fn view(asked: &CreateResponse, warnings: &mut Warnings) -> ItemView {
    let mut view = ItemView {
        summaries: summary(asked).is_some(),
        logprobs: asked.top_logprobs.is_some_and(|top| top > 0),
        nothing: asked.generate == Some(false),
        ..ItemView::default()
    };
    for name in asked.include.iter().flatten() {
        match name.as_str() {
            "reasoning.encrypted_content" => view.sealed = true,
            "message.output_text.logprobs" => view.logprobs = true,
            known if NEVER_PRESENT.contains(&known) => {}
            other => warnings.add(other, "include knows no such thing"),
        }
    }
    view
}

/// Warns of members that have no effect.
fn warn(asked: &CreateResponse, body: &Value, warnings: &mut Warnings) {
    warnings.add_given(body, &UNUSED_OF_RESPONSES);
    warnings.add_given(body, &UNUSED);
    let reasoning = &body["reasoning"];
    if reasoning["context"] == "current_turn" {
        warnings.add("reasoning.context", "the template decides which reasoning it renders");
    }
    if reasoning["mode"].as_str().is_some_and(|mode| mode != "standard") {
        warnings.add("reasoning.mode", "there is one");
    }
    if asked.context_management.as_ref().is_some_and(|entries| !entries.is_empty()) {
        let what = "a conversation is not compacted by itself; an item compaction_trigger does it";
        warnings.add("context_management", what);
    }
    if asked.truncation == Some(Truncation::Auto) {
        warnings.add("truncation", "a prompt that is too long is refused, not truncated");
    }
    warnings.add_tier(asked.service_tier.as_deref());
}

fn summary(asked: &CreateResponse) -> Option<SummaryKind> {
    let options = asked.reasoning.as_ref()?;
    options.summary.or(options.generate_summary).filter(|kind| *kind != SummaryKind::None)
}

fn template_kwargs(asked: &CreateResponse) -> Map<String, Value> {
    let mut kwargs = asked.chat_template_kwargs.clone().unwrap_or_default();
    let mut add = |name: &str, value: Value| {
        kwargs.entry(name).or_insert(value);
    };
    if let Some(effort) = asked.reasoning.as_ref().and_then(|options| options.effort.as_deref()) {
        add("reasoning_effort", effort.into());
    }
    if let Some(verbosity) = asked.text.as_ref().and_then(|text| text.verbosity.as_deref()) {
        add("verbosity", verbosity.into());
    }
    kwargs
}

fn text_json(text: Option<&TextOptions>) -> Value {
    let verbosity = text.and_then(|text| text.verbosity.as_deref()).unwrap_or("medium");
    let format = text.and_then(|text| text.format.as_ref());
    let format = format.map_or_else(|| json!({ "type": "text" }), Format::shown);
    json!({ "format": format, "verbosity": verbosity })
}
