//! The key-value table of a file and typed access to it.

use std::collections::HashMap;

use crate::error::{Counted, GgufError, Measured};
use crate::limits::{KEY_BYTES_MAX, METADATA_ENTRIES_MAX};
use crate::reader::Reader;
use crate::value::{Array, Elements, Kind, Value, ValueType};

/// Key length, one byte of key, value type and one byte of value.
const ENTRY_BYTES_MIN: u64 = 8 + 1 + 4 + 1;

#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    key: &'a str,
    /// Where the key begins in the file.
    offset: usize,
    value: Value<'a>,
}

/// The key-value table of a file, in the file's order.
#[derive(Clone, Debug, Default)]
pub struct Metadata<'a> {
    entries: Vec<Entry<'a>>,
    index: HashMap<&'a str, usize>,
}

impl<'a> Metadata<'a> {
    pub(crate) fn read(
        reader: &mut Reader<'a>,
        count: u64,
        count_offset: usize,
    ) -> Result<Self, GgufError> {
        if count > METADATA_ENTRIES_MAX {
            return Err(GgufError::TooMany {
                counted: Counted::MetadataEntries,
                offset: count_offset,
                found: count,
                limit: METADATA_ENTRIES_MAX,
            });
        }
        reader.expect_room(count, ENTRY_BYTES_MIN)?;
        let mut metadata = Self::default();
        for _ in 0..count {
            metadata.push(read_entry(reader)?)?;
        }
        Ok(metadata)
    }

    fn push(&mut self, entry: Entry<'a>) -> Result<(), GgufError> {
        if self.index.insert(entry.key, self.entries.len()).is_some() {
            return Err(GgufError::DuplicateKey {
                offset: entry.offset,
                key: entry.key.to_owned(),
            });
        }
        self.entries.push(entry);
        Ok(())
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys and values in the file's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a str, Value<'a>)> + '_ {
        self.entries.iter().map(|entry| (entry.key, entry.value))
    }

    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.entry(key).map(|entry| entry.value)
    }

    /// Where the entry of `key` begins in the file.
    pub(crate) fn offset(&self, key: &str) -> Option<usize> {
        self.entry(key).map(|entry| entry.offset)
    }

    fn entry(&self, key: &str) -> Option<&Entry<'a>> {
        self.entries.get(*self.index.get(key)?)
    }

    fn require(&self, key: &str) -> Result<&Entry<'a>, GgufError> {
        self.entry(key).ok_or_else(|| GgufError::MissingKey {
            key: key.to_owned(),
        })
    }

    /// An integer of any width that fits.
    ///
    /// # Errors
    /// `MissingKey`, `WrongType`, or `OutOfRange`.
    pub fn u32(&self, key: &str) -> Result<u32, GgufError> {
        self.integer(key, ValueType::U32)
    }

    /// An integer of any width that fits.
    ///
    /// # Errors
    /// `MissingKey`, `WrongType`, or `OutOfRange`.
    pub fn u64(&self, key: &str) -> Result<u64, GgufError> {
        self.integer(key, ValueType::U64)
    }

    /// # Errors
    /// `MissingKey` or `WrongType`.
    pub fn f32(&self, key: &str) -> Result<f32, GgufError> {
        let entry = self.require(key)?;
        let value = entry.value.as_f32();
        value.ok_or_else(|| wrong_type(entry, Kind::One(ValueType::F32)))
    }

    /// # Errors
    /// `MissingKey` or `WrongType`.
    pub fn bool(&self, key: &str) -> Result<bool, GgufError> {
        let entry = self.require(key)?;
        let value = entry.value.as_bool();
        value.ok_or_else(|| wrong_type(entry, Kind::One(ValueType::Bool)))
    }

    /// # Errors
    /// `MissingKey` or `WrongType`.
    pub fn str(&self, key: &str) -> Result<&'a str, GgufError> {
        let entry = self.require(key)?;
        let value = entry.value.as_str();
        value.ok_or_else(|| wrong_type(entry, Kind::One(ValueType::String)))
    }

    /// An array of any element type.
    ///
    /// # Errors
    /// `MissingKey` or `WrongType`.
    pub fn array(&self, key: &str) -> Result<Array<'a>, GgufError> {
        let entry = self.require(key)?;
        let value = entry.value.as_array();
        value.ok_or_else(|| wrong_type(entry, Kind::AnyArray))
    }

    /// The elements of an array of strings.
    ///
    /// # Errors
    /// `MissingKey` or `WrongType`.
    pub fn strings(&self, key: &str) -> Result<Elements<'a, &'a str>, GgufError> {
        let array = self.array_of(key, ValueType::String)?;
        Ok(array.convert(|value| value.as_str()))
    }

    /// The elements of an array of `f32`.
    ///
    /// # Errors
    /// `MissingKey` or `WrongType`.
    pub fn f32s(&self, key: &str) -> Result<Elements<'a, f32>, GgufError> {
        let array = self.array_of(key, ValueType::F32)?;
        Ok(array.convert(|value| value.as_f32()))
    }

    /// The elements of an array of bools.
    ///
    /// # Errors
    /// `MissingKey` or `WrongType`.
    pub fn bools(&self, key: &str) -> Result<Elements<'a, bool>, GgufError> {
        let array = self.array_of(key, ValueType::Bool)?;
        Ok(array.convert(|value| value.as_bool()))
    }

    /// The elements of an array of integers of any width that all fit.
    ///
    /// # Errors
    /// `MissingKey`, `WrongType`, or `OutOfRange`.
    pub fn i32s(&self, key: &str) -> Result<Elements<'a, i32>, GgufError> {
        self.integers(key, ValueType::I32)
    }

    /// The elements of an array of integers of any width that all fit. Writers store counts
    /// per layer as `i32`.
    ///
    /// # Errors
    /// `MissingKey`, `WrongType`, or `OutOfRange`.
    pub fn u32s(&self, key: &str) -> Result<Elements<'a, u32>, GgufError> {
        self.integers(key, ValueType::U32)
    }

    fn array_of(&self, key: &str, element: ValueType) -> Result<Array<'a>, GgufError> {
        let entry = self.require(key)?;
        entry
            .value
            .as_array()
            .filter(|array| array.element_type() == element)
            .ok_or_else(|| wrong_type(entry, Kind::ArrayOf(element)))
    }

    fn integer<T: TryFrom<i128>>(&self, key: &str, expected: ValueType) -> Result<T, GgufError> {
        let entry = self.require(key)?;
        let Some(found) = entry.value.as_integer() else {
            return Err(wrong_type(entry, Kind::One(expected)));
        };
        T::try_from(found).map_err(|_range| out_of_range(entry, expected, found))
    }

    fn integers<T: TryFrom<i128>>(
        &self,
        key: &str,
        expected: ValueType,
    ) -> Result<Elements<'a, T>, GgufError> {
        let entry = self.require(key)?;
        let array = entry
            .value
            .as_array()
            .ok_or_else(|| wrong_type(entry, Kind::ArrayOf(expected)))?;
        for value in array {
            let Some(found) = value.as_integer() else {
                return Err(wrong_type(entry, Kind::ArrayOf(expected)));
            };
            T::try_from(found).map_err(|_range| out_of_range(entry, expected, found))?;
        }
        Ok(array.convert(|value| T::try_from(value.as_integer()?).ok()))
    }
}

fn read_entry<'a>(reader: &mut Reader<'a>) -> Result<Entry<'a>, GgufError> {
    let offset = reader.offset();
    let key = reader.string(Measured::Key, KEY_BYTES_MAX)?;
    if key.is_empty() {
        return Err(GgufError::Empty {
            measured: Measured::Key,
            offset,
        });
    }
    Ok(Entry {
        key,
        offset,
        value: Value::read(reader)?,
    })
}

fn wrong_type(entry: &Entry<'_>, expected: Kind) -> GgufError {
    GgufError::WrongType {
        key: entry.key.to_owned(),
        offset: entry.offset,
        expected,
        found: entry.value.kind(),
    }
}

fn out_of_range(entry: &Entry<'_>, expected: ValueType, found: i128) -> GgufError {
    GgufError::OutOfRange {
        key: entry.key.to_owned(),
        offset: entry.offset,
        expected,
        found,
    }
}

/// Turns the absence of a key into `None`, and leaves a key of the wrong type an error.
pub trait Optional<T> {
    /// # Errors
    /// Every error but `MissingKey`.
    fn optional(self) -> Result<Option<T>, GgufError>;
}

impl<T> Optional<T> for Result<T, GgufError> {
    fn optional(self) -> Result<Option<T>, GgufError> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(GgufError::MissingKey { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
