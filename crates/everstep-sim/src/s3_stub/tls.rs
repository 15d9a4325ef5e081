//! A certificate for `localhost`, made when the stub starts.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// A certificate that signs itself.
pub(super) struct Certificate {
    /// What clients must trust.
    pub(super) pem: String,
    /// Accepts connections with it.
    pub(super) acceptor: TlsAcceptor,
}

impl Certificate {
    pub(super) fn new() -> Self {
        let made =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate can be made");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a made key is a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("key and certificate belong together");
        Self { pem: made.cert.pem(), acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}
