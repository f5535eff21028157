//! JSON text to a value, with the paths of duplicate fields.
//!
//! Of a field that is given twice the last one counts, and two objects are merged, as Go's decoder
//! does.

use crate::bounds;
use memchr::memmem;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// The text is not JSON.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct SyntaxError(pub String);

/// The value and the paths of duplicate fields (`spec.ports[0].name`). One that is deeper or larger
/// than [`bounds`] allow is an error.
pub fn parse(text: &[u8]) -> Result<(Value, Vec<String>), SyntaxError> {
    let mut state = State::default();
    let text = readable(text);
    let mut deserializer = serde_json::Deserializer::from_slice(&text);
    let value = Seed(&mut state)
        .deserialize(&mut deserializer)
        .map_err(syntax_error)?;
    deserializer.end().map_err(syntax_error)?;
    bounds::check(&value).map_err(|error| SyntaxError(error.to_string()))?;
    Ok((value, state.duplicates))
}

/// The value alone, within the same bounds. Of a field that is given twice the last one counts.
pub fn read(text: &[u8]) -> Result<Value, SyntaxError> {
    let value = serde_json::from_slice(&readable(text)).map_err(syntax_error)?;
    bounds::check(&value).map_err(|error| SyntaxError(error.to_string()))?;
    Ok(value)
}

/// The text with U+FFFD in the place of half a surrogate pair (a lone `\ud800`), as Go reads it.
pub fn readable(text: &[u8]) -> Cow<'_, [u8]> {
    let mut mended = Cow::Borrowed(text);
    let half = |start: &[u8]| memmem::find(text, start).is_some();
    if !half(br"\ud") && !half(br"\uD") {
        return mended;
    }
    let mut at = 0;
    while at < text.len() {
        at += match (text.get(at), code_unit(text, at), code_unit(text, at + 6)) {
            (_, Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (_, Some(0xd800..=0xdfff), _) => {
                if let Some(escape) = mended.to_mut().get_mut(at..at + 6) {
                    escape.copy_from_slice(br"\ufffd");
                }
                6
            }
            // Past an escaped backslash, which starts nothing.
            (Some(b'\\'), ..) => 2,
            _ => 1,
        };
    }
    mended
}

/// What the `\u` escape that starts here stands for.
fn code_unit(text: &[u8], at: usize) -> Option<u16> {
    let digits = text.get(at..at.checked_add(6)?)?.strip_prefix(br"\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Write `80.0` and `8e1` as `80`. Where Kubernetes reads a body without its type, every number
/// without a fraction will do for an integer.
pub fn whole_numbers(value: &mut Value) {
    const EXACT: f64 = (1u64 << 53) as f64;
    match value {
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = number
                .as_f64()
                .filter(|float| float.fract() == 0.0 && float.abs() <= EXACT)
            {
                *value = Value::from(whole as i64);
            }
        }
        _ => {}
    }
}

fn syntax_error(error: serde_json::Error) -> SyntaxError {
    SyntaxError(if error.is_eof() {
        "unexpected end of JSON input".into()
    } else {
        error.to_string()
    })
}

#[derive(Default)]
struct State {
    path: String,
    duplicates: Vec<String>,
}

impl State {
    /// Go one step down; the result takes the path back up.
    fn enter(&mut self, key: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        length
    }

    fn note_duplicate(&mut self) {
        if !super::is_enough(&self.duplicates) && !self.duplicates.contains(&self.path) {
            self.duplicates.push(self.path.clone());
        }
    }
}

struct Seed<'a>(&'a mut State);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let Self(state) = self;
        let mut items = Vec::new();
        let length = state.path.len();
        loop {
            let _ = write!(state.path, "[{}]", items.len());
            let item = seq.next_element_seed(Seed(state))?;
            state.path.truncate(length);
            match item {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self(state) = self;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let length = state.enter(&key);
            if map.contains_key(&key) {
                state.note_duplicate();
            }
            let value = access.next_value_seed(Seed(state))?;
            state.path.truncate(length);
            match map.get_mut(&key) {
                Some(earlier) => merge(earlier, value),
                None => {
                    map.insert(key, value);
                }
            }
        }
        Ok(Value::Object(map))
    }
}

fn merge(earlier: &mut Value, later: Value) {
    match (earlier, later) {
        (Value::Object(earlier), Value::Object(later)) => {
            for (key, value) in later {
                merge(earlier.entry(key).or_insert(Value::Null), value);
            }
        }
        (earlier, later) => *earlier = later,
    }
}
