use super::*;

fn failure(status: u16, code: &str) -> Failure {
    Failure {
        kind: kind_of_status(status),
        status: Some(status),
        code: code.to_owned(),
        detail: String::new(),
    }
}

#[test]
fn c14_only_the_answers_that_mean_it_say_that_an_object_exists() {
    assert!(exists(&failure(412, "PreconditionFailed")));
    assert!(exists(&failure(409, "BlobAlreadyExists")));
    for code in ["ContainerBeingDeleted", "OperationAborted", ""] {
        assert!(!exists(&failure(409, code)) && !failure(409, code).is_refusal(), "{code} proves nothing");
    }
}

#[test]
fn a_body_is_sent_in_small_pieces_that_are_not_copied() {
    let body =
        Payload(vec![Bytes::from(vec![1; 3 * FRAME_BYTES + 1]), Bytes::new(), Bytes::from_static(b"x")]);
    let framed = framed(&body);
    let lengths: Vec<usize> = framed.iter().map(Bytes::len).collect();
    assert_eq!(lengths, [FRAME_BYTES, FRAME_BYTES, FRAME_BYTES, 1, 1]);
    assert_eq!(framed.iter().next().unwrap().as_ptr(), body.0[0].as_ptr());
}

#[test]
fn a_listing_out_of_order_is_refused() {
    let meta = |name: &str| ObjectMeta {
        location: Path::parse(name).unwrap(),
        last_modified: Default::default(),
        size: 0,
        e_tag: None,
        version: None,
    };
    in_order(&[meta("a-b/x"), meta("a/b"), meta("a0")]).unwrap();
    let refusal = in_order(&[meta("a/b"), meta("a-b/x")]).unwrap_err();
    assert_eq!(refusal.kind, StoreErrorKind::Invalid);
}
