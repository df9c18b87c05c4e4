//! What all handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use relight_protocol::{Fault, ModelCard};
use relight_supervisor::Status;

use crate::clock::unix_seconds;
use crate::config::ServerConfig;
use crate::failure::Failure;
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::request_body::BodyReader;
use crate::service::Service;

/// Longest piece of a client's model name that the log repeats.
const NAME_CHARS_MAX: usize = 80;

/// One server.
pub(crate) struct App {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) config: ServerConfig,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) bodies: BodyReader,
    /// When the server started, in seconds since 1970.
    pub(crate) started: u64,
    has_warned_of_name: AtomicBool,
}

impl App {
    pub(crate) fn new(service: Arc<dyn Service>, config: ServerConfig) -> Self {
        Self {
            service,
            config,
            metrics: Arc::new(Metrics::new()),
            bodies: BodyReader::new(),
            started: unix_seconds(),
            has_warned_of_name: AtomicBool::new(false),
        }
    }

    /// The name of the model in answers.
    pub(crate) fn model_name(&self, card: Option<&ModelCard>) -> String {
        let configured = self.config.served_names.first().map(String::as_str);
        let name = configured.or_else(|| card.map(|card| card.name.as_str()));
        name.unwrap_or("none").to_owned()
    }

    /// Whether a client may call the model `name`.
    pub(crate) fn is_served(&self, name: &str, card: &ModelCard) -> bool {
        name == card.name || self.config.served_names.iter().any(|served| served == name)
    }

    /// There is one model, so a wrong name is served too; the log says so once.
    pub(crate) fn warn_of_name(&self, name: &str, card: &ModelCard) {
        if self.is_served(name, card) || self.has_warned_of_name.swap(true, Ordering::Relaxed) {
            return;
        }
        let asked: String = name.chars().take(NAME_CHARS_MAX).collect();
        let served = self.model_name(Some(card));
        tracing::warn!(
            asked,
            served,
            "a client asks for a model that is not here; it gets the one that is"
        );
    }

    /// Why there is no model.
    pub(crate) fn no_model(&self) -> Failure {
        match self.service.health().status {
            Status::Starting | Status::Loading => Refusal::ModelLoading.into(),
            Status::Ready
            | Status::Degraded
            | Status::Recovering
            | Status::Failed
            | Status::Draining
            | Status::Stopped => Failure::Failed {
                failure: Fault::EngineUnavailable.into(),
                prompt_param: None,
            },
        }
    }
}
