//! Metadata values. Scalars are decoded; strings and arrays are views into the file's
//! bytes, checked element by element when they are read.

use std::fmt;

use crate::error::{Counted, GgufError, Measured};
use crate::limits::{ARRAY_DEPTH_MAX, ARRAY_ELEMENTS_MAX, STRING_BYTES_MAX};
use crate::reader::Reader;

/// Type of a value or of an array's elements, with the numbers that stand for it in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    /// Every type, indexed by its number.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The number that stands for this type in files.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, GgufError> {
        let offset = reader.offset();
        let found = reader.u32()?;
        Self::ALL
            .into_iter()
            .find(|candidate| candidate.number() == found)
            .ok_or_else(|| GgufError::UnknownValueType {
                offset,
                found,
                limit: Self::F64.number(),
            })
    }

    /// Bytes of an element; for strings and arrays, of the shortest possible one.
    fn bytes_min(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
            Self::Array => 12,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        })
    }
}

/// What a value is, for messages: a scalar or an array of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    One(ValueType),
    ArrayOf(ValueType),
    AnyArray,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(value_type) => write!(formatter, "{value_type}"),
            Self::ArrayOf(element) => write!(formatter, "array of {element}"),
            Self::AnyArray => formatter.write_str("array"),
        }
    }
}

/// One metadata value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(&'a str),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, GgufError> {
        let value_type = ValueType::read(reader)?;
        Self::read_as(value_type, reader, ARRAY_DEPTH_MAX)
    }

    fn read_as(
        value_type: ValueType,
        reader: &mut Reader<'a>,
        depth_left: u32,
    ) -> Result<Self, GgufError> {
        Ok(match value_type {
            ValueType::U8 => Self::U8(u8::from_le_bytes(reader.array()?)),
            ValueType::I8 => Self::I8(i8::from_le_bytes(reader.array()?)),
            ValueType::U16 => Self::U16(u16::from_le_bytes(reader.array()?)),
            ValueType::I16 => Self::I16(i16::from_le_bytes(reader.array()?)),
            ValueType::U32 => Self::U32(u32::from_le_bytes(reader.array()?)),
            ValueType::I32 => Self::I32(i32::from_le_bytes(reader.array()?)),
            ValueType::F32 => Self::F32(f32::from_le_bytes(reader.array()?)),
            ValueType::U64 => Self::U64(u64::from_le_bytes(reader.array()?)),
            ValueType::I64 => Self::I64(i64::from_le_bytes(reader.array()?)),
            ValueType::F64 => Self::F64(f64::from_le_bytes(reader.array()?)),
            ValueType::Bool => Self::Bool(read_bool(reader)?),
            ValueType::String => {
                Self::String(reader.string(Measured::StringValue, STRING_BYTES_MAX)?)
            }
            ValueType::Array => Self::Array(Array::read(reader, depth_left)?),
        })
    }

    /// What this value is, for messages.
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::One(match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(array) => return Kind::ArrayOf(array.element),
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        })
    }

    /// The value of any integer type.
    #[must_use]
    pub fn as_integer(&self) -> Option<i128> {
        match *self {
            Self::U8(value) => Some(value.into()),
            Self::I8(value) => Some(value.into()),
            Self::U16(value) => Some(value.into()),
            Self::I16(value) => Some(value.into()),
            Self::U32(value) => Some(value.into()),
            Self::I32(value) => Some(value.into()),
            Self::U64(value) => Some(value.into()),
            Self::I64(value) => Some(value.into()),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) | Self::Array(_) => None,
        }
    }

    #[must_use]
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Self::F32(value) => Some(value),
            _ => None,
        }
    }

    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    #[must_use]
    pub fn as_str(&self) -> Option<&'a str> {
        match *self {
            Self::String(value) => Some(value),
            _ => None,
        }
    }

    #[must_use]
    pub fn as_array(&self) -> Option<Array<'a>> {
        match *self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }
}

fn read_bool(reader: &mut Reader<'_>) -> Result<bool, GgufError> {
    let offset = reader.offset();
    match reader.array()? {
        [0] => Ok(false),
        [1] => Ok(true),
        [found] => Err(GgufError::InvalidBool { offset, found }),
    }
}

/// An array value: a view of elements that were all checked when the file was parsed.
#[derive(Clone, Copy, Debug)]
pub struct Array<'a> {
    element: ValueType,
    len: usize,
    bytes: Reader<'a>,
}

impl<'a> Array<'a> {
    fn read(reader: &mut Reader<'a>, depth_left: u32) -> Result<Self, GgufError> {
        let offset = reader.offset();
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return Err(GgufError::NestedTooDeep {
                offset,
                limit: ARRAY_DEPTH_MAX,
            });
        };
        let element = ValueType::read(reader)?;
        let offset = reader.offset();
        let found = reader.u64()?;
        let too_many = GgufError::TooMany {
            counted: Counted::ArrayElements,
            offset,
            found,
            limit: ARRAY_ELEMENTS_MAX,
        };
        if found > ARRAY_ELEMENTS_MAX {
            return Err(too_many);
        }
        let len = usize::try_from(found).map_err(|_narrow| too_many)?;
        reader.expect_room(found, element.bytes_min())?;
        let start = *reader;
        match element {
            ValueType::Bool | ValueType::String | ValueType::Array => {
                for _ in 0..len {
                    Value::read_as(element, reader, depth_left)?;
                }
            }
            _ => {
                reader.take(found.saturating_mul(element.bytes_min()))?;
            }
        }
        Ok(Self {
            element,
            len,
            bytes: Reader::new(reader.since(&start), start.offset()),
        })
    }

    /// Type of every element.
    #[must_use]
    pub fn element_type(&self) -> ValueType {
        self.element
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in order.
    #[must_use]
    pub fn iter(&self) -> Elements<'a, Value<'a>> {
        self.convert(Some)
    }

    pub(crate) fn convert<T>(&self, convert: fn(Value<'a>) -> Option<T>) -> Elements<'a, T> {
        Elements {
            array: *self,
            convert,
        }
    }
}

impl<'a> IntoIterator for Array<'a> {
    type Item = Value<'a>;
    type IntoIter = Elements<'a, Value<'a>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Array<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.element == other.element && self.len == other.len && self.iter().eq(other.iter())
    }
}

/// The elements of an array as values of one Rust type, decoded as they are asked for.
#[derive(Clone, Debug)]
pub struct Elements<'a, T> {
    /// What is left.
    array: Array<'a>,
    /// Total over the elements of this array; checked by whoever made the iterator.
    convert: fn(Value<'a>) -> Option<T>,
}

impl<T> Iterator for Elements<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.array.len = self.array.len.checked_sub(1)?;
        let value = Value::read_as(self.array.element, &mut self.array.bytes, ARRAY_DEPTH_MAX);
        (self.convert)(value.ok()?)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.array.len, Some(self.array.len))
    }
}

impl<T> ExactSizeIterator for Elements<'_, T> {}
