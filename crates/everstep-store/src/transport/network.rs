//! Connections: certificates, proxy, pool.

use std::time::Duration;

use aws_sdk_s3::config::SharedHttpClient;
use aws_smithy_http_client::Connector;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_runtime_api::client::http::{HttpConnectorSettings, SharedHttpConnector, http_client_fn};
use everstep_format::panics::caught;

use crate::{StoreError, StoreErrorKind};

/// Idle connections are kept shorter than stores keep them, so that a request seldom meets one that is just closing.
const POOL_IDLE: Duration = Duration::from_secs(15);
/// A file of certificates that replaces the system's.
pub(crate) const CA_BUNDLE: &str = "AWS_CA_BUNDLE";

/// The bundle that the environment names.
pub(crate) fn bundle_of_environment() -> Option<String> {
    std::env::var(CA_BUNDLE).ok().filter(|path| !path.is_empty())
}

/// Certificates and proxy.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    tls: TlsContext,
    proxy: ProxyConfig,
}

impl Network {
    /// Trusts the certificates in `bundle`, else those of the system; `address` is named in errors.
    ///
    /// # Errors
    /// Invalid for a bundle that cannot be used.
    pub(crate) fn load(address: &str, bundle: Option<&str>) -> Result<Self, StoreError> {
        let trusted = match bundle {
            Some(path) => trust_store(address, path)?,
            None => TrustStore::default(),
        };
        let refuse = |what: String| invalid(address, format!("{CA_BUNDLE}: {what}"));
        let tls = TlsContext::builder()
            .with_trust_store(trusted)
            .build()
            .map_err(|error| refuse(error.to_string()))?;
        let network = Self { tls, proxy: ProxyConfig::from_env() };
        // The library panics on a certificate that it cannot read; that is the user's file, not a bug of ours.
        let build = || network.connector(HttpConnectorSettings::default(), ProxyConfig::disabled());
        caught(build).ok_or_else(|| refuse("holds a damaged certificate".to_owned()))?;
        Ok(network)
    }

    fn connector(&self, settings: HttpConnectorSettings, proxy: ProxyConfig) -> Connector {
        Connector::builder()
            .connector_settings(settings)
            .pool_idle_timeout(POOL_IDLE)
            .proxy_config(proxy)
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .tls_context(self.tls.clone())
            .build()
    }

    /// One pool of connections for a store. It has no read timeout: that would count the time of an upload.
    pub(crate) fn store_connector(&self, connect_timeout: Duration) -> SharedHttpConnector {
        let settings = HttpConnectorSettings::builder().connect_timeout(connect_timeout).build();
        SharedHttpConnector::new(self.connector(settings, self.proxy.clone()))
    }

    /// As [`Network::store_connector`], never through a proxy: for what is on this machine or beside it.
    pub(crate) fn direct_connector(&self, connect_timeout: Duration) -> SharedHttpConnector {
        let settings = HttpConnectorSettings::builder().connect_timeout(connect_timeout).build();
        SharedHttpConnector::new(self.connector(settings, ProxyConfig::disabled()))
    }

    /// The proxy of the environment.
    pub(crate) fn proxy(&self) -> ProxyConfig {
        self.proxy.clone()
    }

    /// Connections for credentials are not kept: they are rare, and outlive the runtime that opened them.
    pub(crate) fn credential_client(&self, proxy: ProxyConfig) -> SharedHttpClient {
        let network = self.clone();
        http_client_fn(move |settings, _| {
            SharedHttpConnector::new(network.connector(settings.clone(), proxy.clone()))
        })
    }
}

fn trust_store(address: &str, path: &str) -> Result<TrustStore, StoreError> {
    let pem =
        std::fs::read(path).map_err(|error| invalid(address, format!("{CA_BUNDLE} {path}: {error}")))?;
    let has_one = pem.windows(16).any(|window| window == b"BEGIN CERTIFICAT");
    if !has_one {
        return Err(invalid(address, format!("{CA_BUNDLE} {path} holds no certificate in PEM form")));
    }
    Ok(TrustStore::empty().with_pem_certificate(pem))
}

fn invalid(address: &str, detail: String) -> StoreError {
    StoreError::new(StoreErrorKind::Invalid, "open", address, detail)
}
