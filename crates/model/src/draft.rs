//! A tiny model's file that tests take apart, change and write again.

use relight_gguf::writer::Value as NewValue;
use relight_gguf::{GgmlType, Gguf, Value, Writer};

use crate::recorded::TinyModel;

/// Keys and tensors of a file to be.
#[derive(Clone)]
pub(crate) struct Draft {
    keys: Vec<(String, NewValue)>,
    tensors: Vec<DraftTensor>,
}

#[derive(Clone)]
pub(crate) struct DraftTensor {
    pub(crate) name: String,
    pub(crate) dimensions: Vec<u64>,
    pub(crate) ggml_type: GgmlType,
    pub(crate) bytes: Vec<u8>,
}

impl Draft {
    /// Of `oracle/tiny/<name>.gguf`.
    pub(crate) fn tiny(name: &str) -> Self {
        let model = TinyModel::read(name);
        let gguf = Gguf::parse(&model.bytes).unwrap();
        let keys = gguf.metadata().iter();
        let tensors = gguf.tensors().iter().map(|tensor| DraftTensor {
            name: tensor.name().to_owned(),
            dimensions: tensor.dimensions().to_vec(),
            ggml_type: tensor.ggml_type(),
            bytes: gguf.data(tensor).to_vec(),
        });
        Self {
            keys: keys
                .map(|(key, value)| (key.to_owned(), copy(value)))
                .collect(),
            tensors: tensors.collect(),
        }
    }

    pub(crate) fn key(mut self, key: &str, value: impl Into<NewValue>) -> Self {
        self = self.without_key(key);
        self.keys.push((key.to_owned(), value.into()));
        self
    }

    pub(crate) fn without_key(mut self, key: &str) -> Self {
        self.keys.retain(|(known, _)| known != key);
        self
    }

    /// Adds or replaces an F32 tensor of zeros.
    pub(crate) fn zeros(mut self, name: &str, dimensions: &[u64]) -> Self {
        self = self.without_tensor(name);
        let elements: u64 = dimensions.iter().product();
        self.tensors.push(DraftTensor {
            name: name.to_owned(),
            dimensions: dimensions.to_vec(),
            ggml_type: GgmlType::F32,
            bytes: vec![0; 4 * usize::try_from(elements).unwrap()],
        });
        self
    }

    pub(crate) fn without_tensor(mut self, name: &str) -> Self {
        self.tensors.retain(|tensor| tensor.name != name);
        self
    }

    /// Changes every tensor.
    pub(crate) fn tensors(mut self, change: impl FnMut(&mut DraftTensor)) -> Self {
        self.tensors.iter_mut().for_each(change);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new(3);
        for (key, value) in &self.keys {
            writer = writer.metadata(key, value.clone());
        }
        for tensor in &self.tensors {
            let DraftTensor {
                name,
                dimensions,
                ggml_type,
                bytes,
            } = tensor;
            writer = writer.tensor(name, dimensions, *ggml_type, bytes);
        }
        writer.finish()
    }
}

fn copy(value: Value<'_>) -> NewValue {
    match value {
        Value::U8(value) => value.into(),
        Value::I8(value) => value.into(),
        Value::U16(value) => value.into(),
        Value::I16(value) => value.into(),
        Value::U32(value) => value.into(),
        Value::I32(value) => value.into(),
        Value::F32(value) => value.into(),
        Value::Bool(value) => value.into(),
        Value::String(value) => value.into(),
        Value::Array(array) => {
            NewValue::Array(array.element_type(), array.iter().map(copy).collect())
        }
        Value::U64(value) => value.into(),
        Value::I64(value) => value.into(),
        Value::F64(value) => value.into(),
    }
}
