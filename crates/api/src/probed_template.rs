//! The chat templates of a service, with what each takes of conversations.

use crate::error::{ApiError, template_error};
use crate::message_rules::{MessageRules, SystemPlace};
use crate::template_message::CallForm;
use text::tool_formats::hermes::HERMES;
use text::{ChatTemplate, TextAssets, ToolFormat};

/// A template that was probed when it was loaded.
#[derive(Debug)]
pub(crate) struct ProbedTemplate {
    pub template: ChatTemplate,
    /// How calls are written, if that is known.
    pub format: Option<&'static ToolFormat>,
    pub rules: MessageRules,
    /// Calls and their results are texts of messages.
    pub calls_as_text: bool,
}

impl ProbedTemplate {
    /// Probes a template. Calls are in `format`, or in the one that the template shows; if it has
    /// no place for tools and shows none, in Hermes' format.
    pub fn new(
        template: ChatTemplate,
        assets: &TextAssets,
        format: Option<&'static ToolFormat>,
    ) -> Self {
        let format = format.or_else(|| ToolFormat::detect(template.source()));
        let rules = MessageRules::of(assets, &template, format);
        let format = if rules.tools { format } else { format.or(Some(&HERMES)) };
        let calls_as_text = !rules.calls && format.is_some();
        Self { template, format, rules, calls_as_text }
    }

    /// How the template takes calls.
    pub fn call_form(&self) -> CallForm {
        let Self { format, calls_as_text: as_text, .. } = *self;
        CallForm { format, as_text, text_arguments: self.rules.text_arguments }
    }

    /// The format of calls in which tools are described in the system message, if the template does
    /// not render them.
    pub fn describes(&self) -> Option<&'static ToolFormat> {
        self.format.filter(|_| !self.rules.tools)
    }

    /// Says in the log what the template does not take.
    fn report(&self) {
        if let Some(format) = self.describes() {
            tracing::info!(
                "the chat template has no place for tools: they are described in the system \
                 message, and calls have the format {format}"
            );
        }
        if self.rules.system != SystemPlace::Anywhere {
            tracing::debug!(
                "the chat template does not take system messages anywhere ({:?}): they become part \
                 of messages that it takes",
                self.rules.system
            );
        }
    }
}

/// The templates of a service: for conversations with and without tools.
#[derive(Debug)]
pub(crate) struct ProbedTemplates {
    /// The template replaces those of the checkpoint.
    replaced: bool,
    plain: Result<ProbedTemplate, ApiError>,
    /// The template for conversations with tools, where the checkpoint has one.
    with_tools: Option<Result<ProbedTemplate, ApiError>>,
}

impl ProbedTemplates {
    /// Probes `replacement`, or the templates of the checkpoint.
    pub fn new(
        replacement: Option<ChatTemplate>,
        assets: &TextAssets,
        format: Option<&'static ToolFormat>,
    ) -> Self {
        let replaced = replacement.is_some();
        let own = |tools| assets.templates.get(None, tools).map_err(template_error);
        let probed = |template| ProbedTemplate::new(template, assets, format);
        let plain = replacement.map_or_else(|| own(false), Ok);
        let with_tools = own(true);
        let with_tools = (!replaced && with_tools != plain).then(|| with_tools.map(probed));
        let templates = Self { replaced, plain: plain.map(probed), with_tools };
        if let Ok(template) = templates.of(true) {
            template.report();
        }
        templates
    }

    /// The template of a conversation, which `offers_tools` or not.
    ///
    /// # Errors
    /// If there is none, or its syntax is wrong.
    pub fn of(&self, offers_tools: bool) -> Result<&ProbedTemplate, ApiError> {
        let with_tools = self.with_tools.as_ref().filter(|_| offers_tools);
        with_tools.unwrap_or(&self.plain).as_ref().map_err(Clone::clone)
    }

    /// The template that replaces those of the checkpoint.
    pub fn replacement(&self) -> Option<&ChatTemplate> {
        self.plain.as_ref().ok().filter(|_| self.replaced).map(|probed| &probed.template)
    }
}
