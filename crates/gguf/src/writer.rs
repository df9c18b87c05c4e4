//! Writes GGUF files: for tests and for tools that build models. It writes what it is told,
//! so that tests can also build files that a reader must refuse.

use crate::ggml_type::GgmlType;
use crate::limits::ALIGNMENT_DEFAULT;
use crate::value::{self, ValueType};

/// A metadata value to write.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    /// Element type and elements, which must be of that type.
    Array(ValueType, Vec<Self>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(..) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    fn write(&self, target: &mut Vec<u8>) {
        match self {
            Self::U8(value) => target.push(*value),
            Self::I8(value) => target.extend_from_slice(&value.to_le_bytes()),
            Self::U16(value) => target.extend_from_slice(&value.to_le_bytes()),
            Self::I16(value) => target.extend_from_slice(&value.to_le_bytes()),
            Self::U32(value) => target.extend_from_slice(&value.to_le_bytes()),
            Self::I32(value) => target.extend_from_slice(&value.to_le_bytes()),
            Self::F32(value) => target.extend_from_slice(&value.to_le_bytes()),
            Self::U64(value) => target.extend_from_slice(&value.to_le_bytes()),
            Self::I64(value) => target.extend_from_slice(&value.to_le_bytes()),
            Self::F64(value) => target.extend_from_slice(&value.to_le_bytes()),
            Self::Bool(value) => target.push(u8::from(*value)),
            Self::String(value) => write_string(value, target),
            Self::Array(element, values) => {
                target.extend_from_slice(&element.number().to_le_bytes());
                target.extend_from_slice(&(values.len() as u64).to_le_bytes());
                for value in values {
                    value.write(target);
                }
            }
        }
    }
}

macro_rules! value_from {
    ($($rust:ty => $variant:ident),+ $(,)?) => {$(
        impl From<$rust> for Value {
            fn from(value: $rust) -> Self {
                Self::$variant(value)
            }
        }

        impl From<Vec<$rust>> for Value {
            fn from(values: Vec<$rust>) -> Self {
                let values = values.into_iter().map(Self::$variant).collect();
                Self::Array(ValueType::$variant, values)
            }
        }
    )+};
}

value_from! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32,
    bool => Bool, String => String, u64 => U64, i64 => I64, f64 => F64,
}

/// What a reader found, to be written again.
impl From<value::Value<'_>> for Value {
    fn from(value: value::Value<'_>) -> Self {
        match value {
            value::Value::U8(value) => Self::U8(value),
            value::Value::I8(value) => Self::I8(value),
            value::Value::U16(value) => Self::U16(value),
            value::Value::I16(value) => Self::I16(value),
            value::Value::U32(value) => Self::U32(value),
            value::Value::I32(value) => Self::I32(value),
            value::Value::F32(value) => Self::F32(value),
            value::Value::Bool(value) => Self::Bool(value),
            value::Value::String(value) => Self::from(value),
            value::Value::Array(array) => {
                Self::Array(array.element_type(), array.iter().map(Self::from).collect())
            }
            value::Value::U64(value) => Self::U64(value),
            value::Value::I64(value) => Self::I64(value),
            value::Value::F64(value) => Self::F64(value),
        }
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<&[&str]> for Value {
    fn from(values: &[&str]) -> Self {
        let values = values.iter().map(|value| Self::from(*value)).collect();
        Self::Array(ValueType::String, values)
    }
}

/// Collects metadata and tensors and lays them out as one file.
#[derive(Debug)]
pub struct Writer {
    version: u32,
    alignment: u32,
    metadata_count: u64,
    metadata: Vec<u8>,
    tensor_count: u64,
    tensor_infos: Vec<u8>,
    data: Vec<u8>,
    /// Bytes of all tensors so far, those included that the caller writes himself.
    data_bytes: u64,
}

impl Writer {
    /// A file without metadata and tensors, in `version` of the format.
    #[must_use]
    pub fn new(version: u32) -> Self {
        Self {
            version,
            alignment: ALIGNMENT_DEFAULT,
            metadata_count: 0,
            metadata: Vec::new(),
            tensor_count: 0,
            tensor_infos: Vec::new(),
            data: Vec::new(),
            data_bytes: 0,
        }
    }

    /// Adds a metadata entry.
    #[must_use]
    pub fn metadata(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        write_string(key, &mut self.metadata);
        self.metadata
            .extend_from_slice(&value.value_type().number().to_le_bytes());
        value.write(&mut self.metadata);
        self.metadata_count = self.metadata_count.saturating_add(1);
        self
    }

    /// Aligns tensor data to `alignment` bytes and says so in the metadata. To be called
    /// before the first tensor.
    #[must_use]
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = alignment;
        self.metadata("general.alignment", alignment)
    }

    /// Adds a tensor: dimensions in ggml's order (row length first) and its stored blocks.
    #[must_use]
    pub fn tensor(
        mut self,
        name: &str,
        dimensions: &[u64],
        ggml_type: GgmlType,
        bytes: &[u8],
    ) -> Self {
        self = self.announce(name, dimensions, ggml_type, bytes.len() as u64);
        pad(&mut self.data, self.alignment);
        self.data.extend_from_slice(bytes);
        self
    }

    /// Adds a tensor of `bytes` bytes that are too many to collect here. The caller writes
    /// them behind [`Writer::head`]: every tensor in the order of this table, each padded
    /// with zeros to the alignment.
    #[must_use]
    pub fn announce(
        mut self,
        name: &str,
        dimensions: &[u64],
        ggml_type: GgmlType,
        bytes: u64,
    ) -> Self {
        let alignment = u64::from(self.alignment).max(1);
        let offset = self.data_bytes.next_multiple_of(alignment);
        let infos = &mut self.tensor_infos;
        write_string(name, infos);
        let rank = u32::try_from(dimensions.len()).unwrap_or(u32::MAX);
        infos.extend_from_slice(&rank.to_le_bytes());
        for dimension in dimensions {
            infos.extend_from_slice(&dimension.to_le_bytes());
        }
        infos.extend_from_slice(&ggml_type.number().to_le_bytes());
        infos.extend_from_slice(&offset.to_le_bytes());
        self.data_bytes = offset.saturating_add(bytes);
        self.tensor_count = self.tensor_count.saturating_add(1);
        self
    }

    /// The bytes of the file before the data of its first tensor.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        let mut head = b"GGUF".to_vec();
        head.extend_from_slice(&self.version.to_le_bytes());
        head.extend_from_slice(&self.tensor_count.to_le_bytes());
        head.extend_from_slice(&self.metadata_count.to_le_bytes());
        head.extend_from_slice(&self.metadata);
        head.extend_from_slice(&self.tensor_infos);
        pad(&mut head, self.alignment);
        head
    }

    /// The bytes of the whole file.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let mut file = self.head();
        file.append(&mut self.data);
        pad(&mut file, self.alignment);
        file
    }
}

fn write_string(value: &str, target: &mut Vec<u8>) {
    target.extend_from_slice(&(value.len() as u64).to_le_bytes());
    target.extend_from_slice(value.as_bytes());
}

fn pad(bytes: &mut Vec<u8>, alignment: u32) {
    let alignment = usize::try_from(alignment).unwrap_or(1).max(1);
    let padded = bytes.len().checked_next_multiple_of(alignment);
    bytes.resize(padded.unwrap_or(bytes.len()), 0);
}
