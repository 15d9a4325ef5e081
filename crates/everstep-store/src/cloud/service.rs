//! The connections under the library, and an ear on every answer: the library's own errors tell neither codes nor clocks.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};
use aws_smithy_runtime_api::client::http::{HttpConnector as _, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest as WireRequest;
use aws_smithy_types::body::SdkBody;
use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http_body::{Body, Frame, SizeHint};
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};

use super::exchange::{Heard, WIRE, Wire};
use super::options::CloudOptions;
use crate::StoreErrorKind;
use crate::transport::body::Progress;
use crate::transport::failure::{Told, chain, element};
use crate::transport::network::Network;

/// Bytes of an error document that are read; they are a few hundred.
const DOCUMENT_BYTES: usize = 64 * 1024;
/// Time to reach instance metadata: outside of a cloud it is silent, and nobody should wait for it.
const METADATA_CONNECT: Duration = Duration::from_millis(2500);

/// Makes the library's connections.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    store: SharedHttpConnector,
    metadata: SharedHttpConnector,
    allow_http: bool,
}

impl Connector {
    /// One pool for the store and its token services, one for instance metadata.
    pub(super) fn new(network: &Network, options: &CloudOptions) -> Self {
        Self {
            store: network.store_connector(options.connect_timeout),
            metadata: network.direct_connector(METADATA_CONNECT),
            allow_http: options.allow_http,
        }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // The library allows plain http for instance metadata alone; our own option is never handed to it.
        let is_metadata = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        let connector = if is_metadata { &self.metadata } else { &self.store };
        Ok(HttpClient::new(Service {
            connector: connector.clone(),
            allow_http: is_metadata || self.allow_http,
        }))
    }
}

#[derive(Debug)]
struct Service {
    connector: SharedHttpConnector,
    allow_http: bool,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let wire = WIRE.try_with(Arc::clone).unwrap_or_default();
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        if request.uri().scheme_str() == Some("http") && !self.allow_http {
            let detail = format!("{host} is plain http, which anyone on the way can read: pass --allow-http");
            wire.hear(Some(Heard::Trouble(StoreErrorKind::Invalid, detail.clone())));
            return Err(broken(detail.into()));
        }
        let answer = self.send(request, host, &wire).await;
        if let Err(error) = &answer {
            wire.hear(Some(Heard::Trouble(StoreErrorKind::Unreachable, chain(error))));
        }
        answer
    }
}

impl Service {
    async fn send(&self, request: HttpRequest, host: String, wire: &Wire) -> Result<HttpResponse, HttpError> {
        let progress = wire.progress.clone();
        let request =
            request.map(|body| SdkBody::from_body_1_x(Counted { body, progress: progress.clone() }));
        let request = WireRequest::try_from(request).map_err(|error| broken(error.into()))?;
        let answer = self.connector.call(request).await.map_err(|error| broken(error.into()))?;
        progress.step();
        let answer = answer.try_into_http1x().map_err(|error| broken(error.into()))?;
        let (head, body) = answer.into_parts();
        if head.status.is_success() {
            let range = head.headers.get(http::header::CONTENT_RANGE).and_then(|range| range.to_str().ok());
            let size = range.and_then(|range| range.rsplit_once('/')?.1.parse().ok());
            wire.hear(Some(Heard::Success(size)));
            let body = HttpResponseBody::new(Counted { body: Read(body), progress });
            return Ok(HttpResponse::from_parts(head, body));
        }
        let document = read_document(body, &progress).await?;
        wire.hear(Some(Heard::Refusal { host, told: told(&head, &document) }));
        Ok(HttpResponse::from_parts(head, document.into()))
    }
}

fn broken(error: Box<dyn Error + Send + Sync>) -> HttpError {
    HttpError::new_boxed(HttpErrorKind::Unknown, error)
}

/// The start of an error's document.
async fn read_document(mut body: SdkBody, progress: &Progress) -> Result<Bytes, HttpError> {
    let mut document = BytesMut::new();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        progress.step();
        let Ok(bytes) = frame.map_err(broken)?.into_data() else { continue };
        let room = DOCUMENT_BYTES.saturating_sub(document.len());
        document.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if room == 0 {
            break;
        }
    }
    Ok(document.freeze())
}

/// What an answer says: both clouds speak XML, token services JSON or plain words.
fn told(head: &Parts, document: &[u8]) -> Told {
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let date = header("date").and_then(|date| DateTime::from_str(&date, DateTimeFormat::HttpDate).ok());
    let words = || String::from_utf8_lossy(&document[..document.len().min(300)]).trim().to_owned();
    let message = match element(document, "Message") {
        Some(message) => message.lines().next().unwrap_or_default().to_owned(),
        None => words(),
    };
    Told {
        status: head.status.as_u16(),
        code: header("x-ms-error-code").or_else(|| element(document, "Code")).unwrap_or_default(),
        message,
        request_id: header("x-ms-request-id").or_else(|| header("x-guploader-uploadid")),
        region: None,
        has_regions: false,
        date: date.and_then(|date| SystemTime::try_from(date).ok()),
    }
}

/// A body whose frames count as progress.
struct Counted<B> {
    body: B,
    progress: Progress,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            self.progress.step();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body of the connection, with the library's kind of error.
struct Read(SdkBody);

impl Body for Read {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        Pin::new(&mut self.0).poll_frame(context).map_err(broken)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
