//! Connections and requests.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::respond::{Reply, cut, error, text};
use super::rules::Action;
use super::seen::Seen;
use super::tls::Certificate;
use super::{Shared, clock, objects, tokens};

/// A signature may be this old, or this much ahead.
const SIGNATURE_AGE: Duration = Duration::from_secs(15 * 60);

/// The listening side.
pub(super) struct Serving {
    pub(super) listener: TcpListener,
    pub(super) certificate: Option<Certificate>,
    pub(super) shared: Arc<Shared>,
}

impl Serving {
    /// Serves until told to stop; connections end with it.
    pub(super) fn run(self, stopped: oneshot::Receiver<()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be made").block_on(async {
            tokio::select! {
                _ = stopped => {}
                result = self.accept() => panic!("the stub stopped listening: {result:?}"),
            }
        });
    }

    async fn accept(self) -> io::Result<()> {
        self.listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await?;
            let shared = Arc::clone(&self.shared);
            match self.certificate.as_ref().map(|certificate| certificate.acceptor.clone()) {
                None => connections.spawn(connection(stream, shared)),
                Some(acceptor) => connections.spawn(async move {
                    // A client that does not trust the certificate hangs up; that is its right.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        connection(stream, shared).await;
                    }
                }),
            };
        }
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let service = service_fn(|request| serve(&shared, request));
    // A failed connection is the client's to notice, and often a rule's intent.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Answers one request; an error closes the connection.
async fn serve(shared: &Shared, request: Request<Incoming>) -> io::Result<Reply> {
    let (parts, mut body) = request.into_parts();
    let (number, action) = arrive(shared, &parts);
    if let Some(Action::ResetMidBody) = action {
        let _ = body.frame().await;
        return Err(closed());
    }
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    shared.state().seen[number].body_bytes = Some(body.len() as u64);
    let seen = shared.state().seen[number].clone();
    let mut reply = act(shared, &seen, body, action).await?;
    shared.state().seen[number].status = Some(reply.status().as_u16());
    let date = clock::http_date((shared.settings.clock)());
    reply.headers_mut().insert("date", HeaderValue::from_str(&date).map_err(io::Error::other)?);
    reply.headers_mut().insert("x-amz-request-id", HeaderValue::from(number));
    Ok(reply)
}

fn arrive(shared: &Shared, parts: &Parts) -> (usize, Option<Action>) {
    let seen = Seen::of(parts);
    let target = seen.target();
    let mut state = shared.state();
    // Every rule counts what it matches, also when an earlier one is taken.
    let actions: Vec<_> =
        state.rules.iter_mut().filter_map(|rule| rule.meet(&seen.method, &target)).collect();
    state.seen.push(seen);
    (state.seen.len() - 1, actions.into_iter().next())
}

async fn act(shared: &Shared, seen: &Seen, body: Bytes, action: Option<Action>) -> io::Result<Reply> {
    match action {
        None => Ok(perform(shared, seen, body)),
        Some(Action::Refuse(status, code)) => Ok(error(status, code, "")),
        Some(Action::RefuseWith200(code)) => Ok(error(200, code, "")),
        Some(Action::Answer(status, body)) => Ok(text(status, &body)),
        Some(Action::Drop | Action::ResetMidBody) => Err(closed()),
        Some(Action::DoThenDrop) => {
            perform(shared, seen, body);
            Err(closed())
        }
        Some(Action::DoThenAnswer(status, code)) => {
            perform(shared, seen, body);
            Ok(error(status, code, ""))
        }
        Some(Action::CutBody) => Ok(cut(perform(shared, seen, body)).await),
        Some(Action::HoldThenDo(gate)) => {
            gate.pass().await;
            Ok(perform(shared, seen, body))
        }
        Some(Action::DoThenHold(gate)) => {
            let reply = perform(shared, seen, body);
            gate.pass().await;
            Ok(reply)
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "closed by a rule")
}

fn perform(shared: &Shared, seen: &Seen, body: Bytes) -> Reply {
    if let Some(reply) = tokens::answer(shared, seen, &body) {
        return reply;
    }
    refusal(shared, seen).unwrap_or_else(|| objects::answer(shared, seen, body))
}

/// Why an S3 request is refused before anything is looked at.
fn refusal(shared: &Shared, seen: &Seen) -> Option<Reply> {
    let settings = &shared.settings;
    let now = (settings.clock)();
    if settings.google {
        let token = seen.header("authorization");
        return (token != Some("Bearer stub-token")).then(|| error(401, "AuthenticationRequired", ""));
    }
    let Some(key) = seen.access_key() else { return Some(error(403, "AccessDenied", "")) };
    match shared.state().tokens.use_key(key, now, settings.requests_per_key) {
        Some(true) => {}
        Some(false) => return Some(error(400, "ExpiredToken", "")),
        None if settings.access_keys.iter().any(|have| have == key) => {}
        None => return Some(error(403, "InvalidAccessKeyId", "")),
    }
    if is_skewed(seen, now) {
        return Some(error(403, "RequestTimeTooSkewed", ""));
    }
    if settings.region.as_deref().is_some_and(|region| seen.region() != Some(region)) {
        let region = settings.region.as_deref().unwrap_or_default();
        return Some(error(400, "AuthorizationHeaderMalformed", &format!("<Region>{region}</Region>")));
    }
    if settings.refuse_checksums && seen.headers.iter().any(|(name, _)| is_checksum(name)) {
        return Some(error(400, "InvalidArgument", ""));
    }
    let unsigned = seen.header("x-amz-content-sha256") == Some("UNSIGNED-PAYLOAD");
    (settings.refuse_unsigned && unsigned).then(|| error(403, "AccessDenied", ""))
}

fn is_skewed(seen: &Seen, now: SystemTime) -> bool {
    let Some(signed) = seen.header("x-amz-date").and_then(clock::signed_at) else { return true };
    now.duration_since(signed).unwrap_or_else(|ahead| ahead.duration()) > SIGNATURE_AGE
}

fn is_checksum(name: &str) -> bool {
    ["x-amz-checksum-", "x-amz-sdk-checksum", "x-amz-trailer"].iter().any(|start| name.starts_with(start))
}
