//! Everything of a model that has to do with text.

use relight_gguf::Metadata;
use relight_model::text::{
    ChatTemplate, SpecialTexts, TemplateError, TemplateLimits, TextError, Tokenizer,
};
use relight_protocol::limits::{PROMPT_BYTES_MAX, TEMPLATE_FUEL_MAX};

/// Tokenizer and chat template of one model. Shared by the threads of the engine and never
/// changed.
#[derive(Debug)]
pub struct Language {
    tokenizer: Tokenizer,
    /// Why there is none, if there is none: chats are answered with it.
    template: Result<ChatTemplate, TemplateError>,
}

impl Language {
    /// Reads both from a model file; `template` replaces the one that is in it.
    ///
    /// # Errors
    /// If the file's vocabulary cannot be used. A template that does not compile is not an
    /// error here: plain completions work without one.
    pub fn from_gguf(metadata: &Metadata<'_>, template: Option<&str>) -> Result<Self, TextError> {
        let tokenizer = Tokenizer::from_gguf(metadata)?;
        let special = SpecialTexts::from_gguf(metadata, &tokenizer)?;
        let limits = TemplateLimits {
            fuel: TEMPLATE_FUEL_MAX,
            output_bytes: PROMPT_BYTES_MAX,
        };
        let template = ChatTemplate::from_gguf(metadata, template, special, limits);
        if let Err(error) = &template {
            tracing::warn!(%error, "chats cannot be served");
        }
        Ok(Self {
            tokenizer,
            template,
        })
    }

    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// # Errors
    /// Why there is no usable template.
    pub fn template(&self) -> Result<&ChatTemplate, &TemplateError> {
        self.template.as_ref()
    }
}
