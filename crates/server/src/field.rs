//! A JSON body read field by field. The body is never turned into a tree of values: an
//! object is a bounded list of keys with the raw text of their values, so that a hostile
//! body costs no more memory than its own length, and every error knows the path of the
//! field that it is about.

use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;

use relight_protocol::TokenId;
use relight_protocol::limits::{OBJECT_KEYS_MAX, VALUE_DEPTH_MAX};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::refusal::Refusal;

/// Longest piece of a client's value that an error message repeats.
const QUOTE_CHARS_MAX: usize = 40;

/// What a JSON value is, told by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Boolean,
    Number,
    Text,
    List,
    Object,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Number => "a number",
            Self::Text => "a string",
            Self::List => "a list",
            Self::Object => "an object",
        })
    }
}

/// One JSON value and where it stands in the body.
#[derive(Debug)]
pub(crate) struct Field<'a> {
    path: String,
    json: &'a str,
}

impl<'a> Field<'a> {
    /// Where the value stands, e.g. `messages[3].content`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The value as the client wrote it.
    pub(crate) fn json(&self) -> &'a str {
        self.json
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.json.as_bytes().first() {
            Some(b'n') => Kind::Null,
            Some(b't' | b'f') => Kind::Boolean,
            Some(b'"') => Kind::Text,
            Some(b'[') => Kind::List,
            Some(b'{') => Kind::Object,
            _ => Kind::Number,
        }
    }

    pub(crate) fn boolean(&self) -> Result<bool, Refusal> {
        match self.json {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.wrong_kind("a boolean")),
        }
    }

    /// A finite number within `range`.
    pub(crate) fn number(&self, range: &RangeInclusive<f64>) -> Result<f64, Refusal> {
        if self.kind() != Kind::Number {
            return Err(self.wrong_kind("a number"));
        }
        let outside = || {
            let (start, end) = (range.start(), range.end());
            self.invalid(&format!("must be between {start} and {end}"))
        };
        let value: f64 = serde_json::from_str(self.json).map_err(|_out_of_range| outside())?;
        if range.contains(&value) {
            Ok(value)
        } else {
            Err(outside())
        }
    }

    /// A whole number within `range`; `100.0` and `1e2` are whole.
    pub(crate) fn integer(&self, range: &RangeInclusive<i128>) -> Result<i128, Refusal> {
        if self.kind() != Kind::Number {
            return Err(self.wrong_kind("an integer"));
        }
        let value = self.whole_number()?;
        if range.contains(&value) {
            return Ok(value);
        }
        let (start, end) = (range.start(), range.end());
        Err(self.invalid(&if *end == i128::MAX {
            format!("must be at least {start}")
        } else {
            format!("must be between {start} and {end}")
        }))
    }

    fn whole_number(&self) -> Result<i128, Refusal> {
        if let Ok(value) = serde_json::from_str(self.json) {
            return Ok(value);
        }
        let value: f64 = serde_json::from_str(self.json)
            .map_err(|_out_of_range| self.invalid("is out of range"))?;
        if value.fract() != 0.0 {
            return Err(self.invalid("must be an integer"));
        }
        format!("{value:.0}")
            .parse()
            .map_err(|_overflow| self.invalid("is out of range"))
    }

    pub(crate) fn text(&self) -> Result<String, Refusal> {
        if self.kind() != Kind::Text {
            return Err(self.wrong_kind("a string"));
        }
        serde_json::from_str(self.json)
            .map_err(|error| self.invalid(&format!("is not a valid string ({error})")))
    }

    /// The elements of a list of at most `elements_max`.
    pub(crate) fn list(&self, elements_max: usize) -> Result<List<'a>, Refusal> {
        if self.kind() != Kind::List {
            return Err(self.wrong_kind("a list"));
        }
        let mut deserializer = serde_json::Deserializer::from_str(self.json);
        let elements = deserializer
            .deserialize_seq(ListVisitor { elements_max })
            .map_err(|_too_long| {
                self.refused(&format!("must not have more than {elements_max} elements"))
            })?;
        let path = self.path.clone();
        Ok(List { path, elements })
    }

    /// A list of at most `ids_max` token ids.
    pub(crate) fn token_ids(&self, ids_max: usize) -> Result<Vec<TokenId>, Refusal> {
        let list = self.list(ids_max)?;
        let ids: Result<Vec<u32>, _> = serde_json::from_str(self.json);
        if let Ok(ids) = ids {
            return Ok(ids.into_iter().map(TokenId).collect());
        }
        list.iter().map(|element| element.token_id()).collect()
    }

    fn token_id(&self) -> Result<TokenId, Refusal> {
        let id = self.integer(&(0..=i128::from(u32::MAX)))?;
        u32::try_from(id)
            .map(TokenId)
            .map_err(|_overflow| self.invalid("is out of range"))
    }

    /// The object, which has at most `OBJECT_KEYS_MAX` keys.
    pub(crate) fn object(&self) -> Result<Object<'a>, Refusal> {
        self.object_of(OBJECT_KEYS_MAX)
    }

    /// The object, which has at most `keys_max` keys.
    pub(crate) fn object_of(&self, keys_max: usize) -> Result<Object<'a>, Refusal> {
        if self.kind() != Kind::Object {
            return Err(self.wrong_kind("an object"));
        }
        Object::parse(&self.path, self.json.as_bytes(), keys_max)
    }

    /// Reads the whole value without keeping it: nesting within `VALUE_DEPTH_MAX`, valid
    /// strings, numbers in range. What passes can be handed on as JSON text.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let sound = Sound {
            depth_left: VALUE_DEPTH_MAX,
        };
        sound
            .deserialize(&mut serde_json::Deserializer::from_str(self.json))
            .map_err(|error| self.refused(&format!("cannot be read: {error}")))
    }

    /// "'path' MESSAGE".
    pub(crate) fn refused(&self, message: &str) -> Refusal {
        Refusal::invalid(&self.path, format!("'{}' {message}", self.path))
    }

    /// "'path' MESSAGE, not VALUE".
    pub(crate) fn invalid(&self, message: &str) -> Refusal {
        let value = self.quote();
        self.refused(&format!("{message}, not {value}"))
    }

    pub(crate) fn wrong_kind(&self, wanted: &str) -> Refusal {
        let found = self.kind();
        self.refused(&format!("must be {wanted}, not {found}"))
    }

    /// The value, cut to a length that fits a message.
    pub(crate) fn quote(&self) -> String {
        let mut quote: String = self.json.chars().take(QUOTE_CHARS_MAX).collect();
        if quote.len() < self.json.len() {
            quote.push('…');
        }
        quote
    }
}

/// A list whose elements are not read yet.
#[derive(Debug)]
pub(crate) struct List<'a> {
    path: String,
    elements: Vec<&'a RawValue>,
}

impl<'a> List<'a> {
    pub(crate) fn len(&self) -> usize {
        self.elements.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Field<'a>> + '_ {
        self.elements
            .iter()
            .enumerate()
            .map(|(index, element)| Field {
                path: format!("{}[{index}]", self.path),
                json: element.get(),
            })
    }
}

/// An object whose values are not read yet. Of a repeated key the last value counts, as in
/// every JSON reader that clients are likely to have been tested with.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    path: String,
    entries: Vec<(String, &'a RawValue)>,
}

impl<'a> Object<'a> {
    /// Parses a whole HTTP body.
    pub(crate) fn from_body(body: &'a [u8]) -> Result<Self, Refusal> {
        match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') => Self::parse("", body, OBJECT_KEYS_MAX),
            _ => Err(Refusal::Invalid {
                param: None,
                message: "the body must be a JSON object".to_owned(),
            }),
        }
    }

    fn parse(path: &str, json: &'a [u8], keys_max: usize) -> Result<Self, Refusal> {
        let key_at_fault = RefCell::new(None);
        let seed = ObjectSeed {
            keys_max,
            key_at_fault: &key_at_fault,
        };
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let parsed = seed
            .deserialize(&mut deserializer)
            .and_then(|entries| deserializer.end().map(|()| entries));
        match parsed {
            Ok(entries) => Ok(Self {
                path: path.to_owned(),
                entries,
            }),
            Err(error) if path.is_empty() => Err(Refusal::Invalid {
                param: key_at_fault.take(),
                message: format!("the body is not valid JSON: {error}"),
            }),
            // The text was read once already, so this is a bound or a key that is no string.
            Err(error) => Err(Refusal::invalid(
                path,
                format!("'{path}' cannot be read: {error}"),
            )),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value at `key`; `null` counts as absent.
    pub(crate) fn field(&self, key: &str) -> Option<Field<'a>> {
        let (_key, value) = self.entries.iter().find(|(name, _value)| name == key)?;
        let field = Field {
            path: join(&self.path, key),
            json: value.get(),
        };
        (field.kind() != Kind::Null).then_some(field)
    }

    /// The value at whichever of `keys` is there, the first in order of `keys`.
    ///
    /// # Errors
    /// If two of them are there and do not say the same.
    pub(crate) fn field_of(&self, keys: &[&str]) -> Result<Option<Field<'a>>, Refusal> {
        let mut found: Option<Field<'a>> = None;
        for field in keys.iter().filter_map(|key| self.field(key)) {
            match &found {
                None => found = Some(field),
                Some(first) if first.json == field.json => {}
                Some(first) => {
                    let message = format!("contradicts '{}', another name of it", first.path);
                    return Err(field.refused(&message));
                }
            }
        }
        Ok(found)
    }

    /// All keys in the order of the body, each with its value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Field<'a>)> + '_ {
        self.entries.iter().map(|(key, value)| {
            let field = Field {
                path: join(&self.path, key),
                json: value.get(),
            };
            (key.as_str(), field)
        })
    }

    /// The value at `key`, or an error that says what is missing.
    pub(crate) fn required(&self, key: &str) -> Result<Field<'a>, Refusal> {
        self.field(key).ok_or_else(|| {
            let path = join(&self.path, key);
            Refusal::invalid(&path, format!("'{path}' is missing"))
        })
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// Remembers the key whose value is being read, so that a syntax error inside it, such as a
/// bare `NaN`, can name the field.
struct ObjectSeed<'k> {
    keys_max: usize,
    key_at_fault: &'k RefCell<Option<String>>,
}

impl<'a> DeserializeSeed<'a> for ObjectSeed<'_> {
    type Value = Vec<(String, &'a RawValue)>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for ObjectSeed<'_> {
    type Value = Vec<(String, &'a RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries: Vec<(String, &'a RawValue)> = Vec::new();
        // Repeated keys count too: each of them is looked for among the ones before it.
        let mut keys_count = 0;
        while let Some(key) = map.next_key::<String>()? {
            if keys_count == self.keys_max {
                let message = format!("more than {keys_count} keys in one object");
                return Err(serde::de::Error::custom(message));
            }
            keys_count += 1;
            let name = key.chars().take(QUOTE_CHARS_MAX).collect();
            self.key_at_fault.replace(Some(name));
            let value = map.next_value()?;
            self.key_at_fault.replace(None);
            match entries.iter_mut().find(|(known, _value)| *known == key) {
                Some((_key, last)) => *last = value,
                None => entries.push((key, value)),
            }
        }
        Ok(entries)
    }
}

struct ListVisitor {
    elements_max: usize,
}

impl<'a> Visitor<'a> for ListVisitor {
    type Value = Vec<&'a RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} elements", self.elements_max)
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            if elements.len() == self.elements_max {
                return Err(serde::de::Error::invalid_length(elements.len(), &self));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}

/// Any JSON value, read in full and dropped. Unlike `IgnoredAny` it decodes every string and
/// number, and it counts how deep values are nested.
#[derive(Clone, Copy)]
struct Sound {
    depth_left: usize,
}

impl Sound {
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        let depth_left = self.depth_left.checked_sub(1);
        depth_left
            .map(|depth_left| Self { depth_left })
            .ok_or_else(|| E::custom(format!("nested more than {VALUE_DEPTH_MAX} levels deep")))
    }
}

impl<'a> DeserializeSeed<'a> for Sound {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Sound {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _value: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _value: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _value: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _value: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _value: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while seq.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while map.next_entry_seed(inner, inner)?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests;
