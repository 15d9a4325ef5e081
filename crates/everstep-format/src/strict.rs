//! JSON as the specification means it. By itself serde takes a list for a struct, an object for the name of a variant, and
//! does not look into what it skips: another reader, which follows the specification, would call such an object damaged.

use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};

/// Parses `json`, all of it, as one value.
///
/// # Errors
/// Whatever is wrong with it, also where nobody looks at what is there.
pub(crate) fn from_slice<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    let mut source = serde_json::Deserializer::from_slice(json);
    let value = T::deserialize(Strict(&mut source))?;
    source.end()?;
    Ok(value)
}

/// A deserializer, visitor or seed that hands its strictness on to all that is nested in it.
struct Strict<T>(T);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(Strict(visitor))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(Strict(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, Strict(visitor))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Strict(visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_str(Variant(visitor))
    }

    // JSON says what each value is. What is skipped is parsed as well.
    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Strict<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<V::Value, E> {
        self.0.visit_bool(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<V::Value, E> {
        self.0.visit_i64(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<V::Value, E> {
        self.0.visit_u64(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        self.0.visit_f64(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<V::Value, E> {
        self.0.visit_str(value)
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Strict(inner))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Strict(inner))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Strict(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, pairs: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Strict(pairs))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    // Skipped names are parsed, too: half a surrogate pair is not JSON anywhere.
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(Strict(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Strict(seed))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(source))
    }
}

/// Takes the name of a variant, and nothing else: no variant of the format carries anything.
struct Variant<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for Variant<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<V::Value, E> {
        self.0.visit_enum(name.into_deserializer())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::{Map, Value};

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Inner {
        number: u64,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        Yes,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Outer {
        inner: Inner,
        #[serde(default)]
        word: Option<Word>,
        #[serde(default)]
        list: Vec<Inner>,
        #[serde(default)]
        map: BTreeMap<String, Inner>,
        #[serde(flatten)]
        extra: Map<String, Value>,
    }

    fn outer(json: &str) -> Option<Outer> {
        from_slice(json.as_bytes()).ok()
    }

    #[test]
    fn what_is_well_formed_is_read_as_ever() {
        let json = r#" {"inner":{"number":18446744073709551615,"other":[1,{}]},"word":"yes","list":[{"number":1}],
            "map":{"a":{"number":2}},"more":[null,true,-1,0.5,"x",{"y":{}}]} "#;
        assert_eq!(outer(json), serde_json::from_str(json).unwrap());
        assert!(outer(json).is_some_and(|outer| outer.extra.len() == 1 && outer.word == Some(Word::Yes)));
    }

    #[test]
    fn a_list_is_no_struct_wherever_it_stands() {
        for json in [
            "[[1]]",
            r#"{"inner":[1]}"#,
            r#"{"inner":{"number":1},"list":[[1]]}"#,
            r#"{"inner":{"number":1},"map":{"a":[1]}}"#,
            r#"{"inner":{"number":1},"word":{"yes":null}}"#,
        ] {
            assert_eq!(outer(json), None, "{json}");
        }
        assert!(from_slice::<Inner>(b"[1]").is_err());
    }

    #[test]
    fn what_nobody_looks_at_is_json_all_the_same() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        for (value, good) in [
            ("1e308", true),
            ("1e309", false),
            (r#""\ud83d\ude00""#, true),
            (r#""\ud83d""#, false),
            (r#"{"\ud83d":1}"#, false),
            ("NaN", false),
            (deep(125).as_str(), true),
            (deep(126).as_str(), false),
        ] {
            let json = format!(r#"{{"inner":{{"number":1,"other":{value}}}}}"#);
            assert_eq!(outer(&json).is_some(), good, "{value}");
        }
        assert_eq!(outer(r#"{"inner":{"number":1}}{"#), None);
    }
}
