//! Tiny models as files, and the configuration to load them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use relight_protocol::{EngineConfig, KvType};
use relight_tiny_model::TinyModel;

/// A model file that is deleted with the last of these values, and what its keys and values
/// are kept as.
pub(crate) struct TinyFile {
    file: Arc<OwnFile>,
    kv_type: KvType,
}

struct OwnFile(PathBuf);

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
        Self {
            file: Arc::new(OwnFile(path)),
            kv_type: KvType::F16,
        }
    }

    pub(crate) fn with_kv_type(&self, kv_type: KvType) -> Self {
        Self {
            file: Arc::clone(&self.file),
            kv_type,
        }
    }

    pub(crate) fn config(&self) -> EngineConfig {
        EngineConfig {
            model_path: self.file.0.clone(),
            arenas: None,
            context_tokens: None,
            slots: 4,
            pages: Some(40),
            threads: Some(1),
            batch_tokens: 256,
            speculation: relight_protocol::Speculation::Off,
            kv_type: self.kv_type,
            isa: None,
            chat_template: None,
        }
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}
