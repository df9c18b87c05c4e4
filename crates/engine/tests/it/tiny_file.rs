//! Tiny models as files, and the configuration to load them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use relight_protocol::EngineConfig;
use relight_tiny_model::TinyModel;

/// A model file that is deleted with this value.
pub(crate) struct TinyFile {
    path: PathBuf,
}

impl TinyFile {
    pub(crate) fn of(model: &TinyModel) -> Self {
        Self::with_bytes(&model.build())
    }

    pub(crate) fn with_bytes(bytes: &[u8]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tiny-{}-{number}.gguf", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, bytes).unwrap();
        Self { path }
    }

    pub(crate) fn config(&self) -> EngineConfig {
        EngineConfig {
            model_path: self.path.clone(),
            arenas: None,
            context_tokens: None,
            slots: 4,
            pages: Some(40),
            threads: Some(1),
            batch_tokens: 256,
            speculation: relight_protocol::Speculation::Off,
            isa: None,
            chat_template: None,
        }
    }
}

impl Drop for TinyFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).unwrap();
    }
}
