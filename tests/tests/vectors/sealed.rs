//! Sealed JSON: bodies and what sealing makes of them.

use everstep_format::sealed;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Refusal, refusal, vectors};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SealedVectors {
    about: String,
    sealed: Vec<SealedVector>,
    refused: Vec<RefusedText>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SealedVector {
    name: String,
    body: String,
    sealed: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct RefusedText {
    name: String,
    text: String,
    refusal: Refusal,
}

#[test]
fn sealed_objects_agree_with_the_vectors() {
    let fresh = SealedVectors {
        about: "JSON objects before and after sealing. Refused: texts that a reader must not accept."
            .to_owned(),
        sealed: vec![
            sealed_vector("one field", r#"{"magic":"everstep-test"}"#),
            sealed_vector(
                "several fields",
                r#"{"magic":"everstep-test","version":1,"list":[1,2.5,null],"deep":{"a":true}}"#,
            ),
            sealed_vector("text beyond ASCII", r#"{"label":"Übung \"1\" \\ 日本"}"#),
        ],
        refused: refused(),
    };
    let stored = vectors("sealed.json", &fresh);
    assert_eq!(stored, fresh);
    for SealedVector { name, body, sealed } in &stored.sealed {
        let opened: serde_json::Value = sealed::open("vector", sealed.as_bytes()).unwrap();
        assert_eq!(opened, serde_json::from_str::<serde_json::Value>(body).unwrap(), "{name}");
    }
    for RefusedText { name, text, refusal: expected } in &stored.refused {
        assert_eq!(
            refusal(sealed::open::<serde_json::Value>("vector", text.as_bytes())),
            *expected,
            "{name}"
        );
    }
}

fn sealed_vector(name: &str, body: &str) -> SealedVector {
    SealedVector { name: name.to_owned(), body: body.to_owned(), sealed: seal(body) }
}

fn seal(body: &str) -> String {
    let raw = RawValue::from_string(body.to_owned()).unwrap();
    String::from_utf8(sealed::seal("vector", &raw).unwrap()).unwrap()
}

fn refused() -> Vec<RefusedText> {
    let good = seal(r#"{"magic":"everstep-test","step":1}"#);
    let refused =
        |name: &str, text: String| RefusedText { name: name.to_owned(), text, refusal: Refusal::Corrupt };
    vec![
        refused("no text", String::new()),
        refused("no seal", "{\"magic\":\"everstep-test\"}\n".to_owned()),
        refused("a changed value", good.replace("\"step\":1", "\"step\":2")),
        refused("a space that changes nothing for JSON", good.replace("\"step\":1", "\"step\": 1")),
        refused(
            "the seal in capitals",
            good[..good.len() - 67].to_owned() + &good[good.len() - 67..].to_uppercase(),
        ),
        refused("no newline at the end", good.trim_end().to_owned()),
        refused("a newline too many", good.clone() + "\n"),
        refused("a field after the seal", good.replace("\"}\n", "\",\"x\":1}\n")),
    ]
}
