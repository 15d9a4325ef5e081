//! Answers.

use std::io;

use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;

use super::xml::escape;

/// An answer whose body may break off.
pub(super) type Reply = Response<BoxBody<Bytes, io::Error>>;

/// An answer with a body.
pub(super) fn bytes(status: u16, body: Bytes) -> Reply {
    let mut reply = Response::new(Full::new(body).map_err(|never| match never {}).boxed());
    *reply.status_mut() = http::StatusCode::from_u16(status).expect("the stub's statuses are valid");
    reply
}

/// An answer with a text.
pub(super) fn text(status: u16, body: &str) -> Reply {
    bytes(status, Bytes::copy_from_slice(body.as_bytes()))
}

/// An error document. `details` are further elements.
pub(super) fn error(status: u16, code: &str, details: &str) -> Reply {
    let code = escape(code);
    text(
        status,
        &format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>by the stub</Message>\
             {details}</Error>"
        ),
    )
}

/// The same answer, which breaks off in the middle of its body.
pub(super) async fn cut(reply: Reply) -> Reply {
    let (mut head, body) = reply.into_parts();
    let whole = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    head.headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(whole.len()));
    let half = whole.slice(..whole.len() / 2);
    let broken = io::Error::new(io::ErrorKind::ConnectionReset, "cut by a rule");
    let frames = futures::stream::iter([Ok(Frame::data(half)), Err(broken)]);
    Response::from_parts(head, BodyExt::boxed(StreamBody::new(frames)))
}
