//! `Gguf::parse` on arbitrary bytes: refuses, or yields a table in which every element and
//! every tensor's data can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use relight_gguf::Gguf;

fuzz_target!(|bytes: &[u8]| {
    let Ok(gguf) = Gguf::parse(bytes) else {
        return;
    };
    for (key, value) in gguf.metadata().iter() {
        if let Some(array) = value.as_array() {
            assert_eq!(array.iter().count(), array.len(), "{key}");
        }
    }
    for tensor in gguf.tensors() {
        let row_bytes = tensor.ggml_type().row_bytes(tensor.columns());
        let bytes = row_bytes.and_then(|row_bytes| row_bytes.checked_mul(tensor.rows()));
        assert_eq!(bytes, Some(gguf.data(tensor).len() as u64));
    }
});
