//! From settings to a client of the library: endpoint, account, credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::azure::{AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::list::PaginatedListStore;
use object_store::{ClientOptions, ObjectStore, RetryConfig};

use super::options::{CloudCredentials, CloudOptions};
use super::service::Connector;
use super::{Cloud, CloudLocation};
use crate::transport::failure::chain;
use crate::transport::network::{Network, bundle_of_environment};
use crate::{StoreError, StoreErrorKind};

/// Where Google's API is.
const GOOGLE: &str = "https://storage.googleapis.com";
/// Most keys that Azure takes in one batch.
const AZURE_DELETE_KEYS: usize = 256;

/// The library's client, and what was decided on the way to it.
#[derive(Debug)]
pub(super) struct Provider {
    client: Client,
    /// Whether requests go out without credentials, to a public bucket.
    anonymous: bool,
    authorised: AtomicBool,
    /// Where credentials come from, for people.
    pub(super) credentials: String,
    /// Where requests go.
    pub(super) endpoint: String,
    /// Whether that is not the vendor's usual place.
    pub(super) own_endpoint: bool,
}

#[derive(Debug)]
enum Client {
    Google(Arc<GoogleCloudStorage>),
    Azure(Arc<MicrosoftAzure>),
}

impl Provider {
    /// Resolves every setting.
    pub(super) fn new(location: &CloudLocation, options: &CloudOptions) -> Result<Self, StoreError> {
        let network = Network::load(&location.url(), bundle_of_environment().as_deref())?;
        let connector = Connector::new(&network, options);
        match location.cloud {
            Cloud::Google => google(location, options, connector),
            Cloud::Azure => azure(location, options, connector),
        }
    }

    /// Reads and writes.
    pub(super) fn objects(&self) -> &dyn ObjectStore {
        match &self.client {
            Client::Google(client) => client.as_ref(),
            Client::Azure(client) => client.as_ref(),
        }
    }

    /// Lists.
    pub(super) fn pages(&self) -> &dyn PaginatedListStore {
        match &self.client {
            Client::Google(client) => client.as_ref(),
            Client::Azure(client) => client.as_ref(),
        }
    }

    /// Keys that one delete may name.
    pub(super) fn delete_keys(&self) -> usize {
        match &self.client {
            Client::Google(_) => 1,
            Client::Azure(_) => AZURE_DELETE_KEYS,
        }
    }

    /// Sees to it that credentials are at hand; the library keeps and renews them.
    pub(super) async fn authorise(&self) -> object_store::Result<()> {
        if self.anonymous {
            return Ok(());
        }
        match &self.client {
            Client::Google(client) => client.credentials().get_credential().await.map(|_| ())?,
            Client::Azure(client) => client.credentials().get_credential().await.map(|_| ())?,
        }
        self.authorised.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether credentials have been at hand before.
    pub(super) fn has_been_authorised(&self) -> bool {
        self.authorised.load(Ordering::Relaxed)
    }
}

/// No retry of the library's: see the module.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn google(
    location: &CloudLocation,
    options: &CloudOptions,
    connector: Connector,
) -> Result<Provider, StoreError> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(&location.bucket)
        .with_client_options(ClientOptions::new())
        .with_retry(no_retries())
        .with_http_connector(connector);
    builder = match &options.credentials {
        CloudCredentials::Environment => builder,
        CloudCredentials::Token(token) => builder.with_bearer_token(&token.0),
        CloudCredentials::AccountKey(_) => return Err(invalid(location, "an account key is Azure's")),
    };
    let own = options.endpoint_url.clone().or_else(|| builder.get_config_value(&GoogleConfigKey::BaseUrl));
    let endpoint = check_endpoint(location, options, own.as_deref().unwrap_or(GOOGLE))?;
    if own.is_some() {
        builder = builder.with_base_url(&endpoint);
    }
    let said = |key: GoogleConfigKey| builder.get_config_value(&key).is_some_and(|value| !value.is_empty());
    let credentials = if said(GoogleConfigKey::BearerToken) {
        "a bearer token"
    } else if said(GoogleConfigKey::ServiceAccount) || said(GoogleConfigKey::ServiceAccountKey) {
        "a service account (GOOGLE_SERVICE_ACCOUNT)"
    } else if said(GoogleConfigKey::ApplicationCredentials) {
        "GOOGLE_APPLICATION_CREDENTIALS"
    } else {
        "gcloud's application default credentials, else instance metadata (no GOOGLE_* variable names any)"
    };
    let anonymous = builder.get_config_value(&GoogleConfigKey::SkipSignature).as_deref() == Some("true");
    let client = Client::Google(Arc::new(builder.build().map_err(|error| refused(location, &error))?));
    Ok(Provider {
        client,
        anonymous,
        authorised: AtomicBool::new(false),
        credentials: credentials.to_owned(),
        endpoint,
        own_endpoint: own.is_some(),
    })
}

fn azure(
    location: &CloudLocation,
    options: &CloudOptions,
    connector: Connector,
) -> Result<Provider, StoreError> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(&location.bucket)
        .with_client_options(ClientOptions::new())
        .with_retry(no_retries())
        .with_http_connector(connector);
    builder = match &options.credentials {
        CloudCredentials::Environment => with_cli_key(builder),
        CloudCredentials::Token(token) => builder.with_bearer_token_authorization(&token.0),
        CloudCredentials::AccountKey(key) => builder.with_access_key(&key.0),
    };
    let account = options
        .account
        .clone()
        .or_else(|| builder.get_config_value(&AzureConfigKey::AccountName))
        .or_else(|| variable("AZURE_STORAGE_ACCOUNT"));
    let account = account.ok_or_else(|| {
        invalid(location, "no storage account: pass --account, or set AZURE_STORAGE_ACCOUNT_NAME")
    })?;
    builder = builder.with_account(&account);
    let own = options.endpoint_url.clone().or_else(|| builder.get_config_value(&AzureConfigKey::Endpoint));
    let usual = format!("https://{account}.blob.core.windows.net");
    let endpoint = check_endpoint(location, options, own.as_deref().unwrap_or(&usual))?;
    builder = builder.with_endpoint(endpoint.clone());
    let credentials = azure_source(&builder);
    let anonymous = builder.get_config_value(&AzureConfigKey::SkipSignature).as_deref() == Some("true");
    let client = Client::Azure(Arc::new(builder.build().map_err(|error| refused(location, &error))?));
    Ok(Provider {
        client,
        anonymous,
        authorised: AtomicBool::new(false),
        credentials: credentials.to_owned(),
        endpoint,
        own_endpoint: own.is_some(),
    })
}

/// The name of the key's variable that Azure's own command line reads.
fn with_cli_key(builder: MicrosoftAzureBuilder) -> MicrosoftAzureBuilder {
    match (builder.get_config_value(&AzureConfigKey::AccessKey), variable("AZURE_STORAGE_KEY")) {
        (None, Some(key)) => builder.with_access_key(key),
        _ => builder,
    }
}

/// The library's order.
fn azure_source(builder: &MicrosoftAzureBuilder) -> &'static str {
    let said = |key: AzureConfigKey| builder.get_config_value(&key).is_some_and(|value| !value.is_empty());
    let client = said(AzureConfigKey::ClientId) && said(AzureConfigKey::AuthorityId);
    if said(AzureConfigKey::Token) {
        "a bearer token"
    } else if said(AzureConfigKey::AccessKey) {
        "an account key"
    } else if client && said(AzureConfigKey::FederatedTokenFile) {
        "workload identity (AZURE_FEDERATED_TOKEN_FILE)"
    } else if client && said(AzureConfigKey::ClientSecret) {
        "a client secret"
    } else if said(AzureConfigKey::SasKey) {
        "a shared access signature"
    } else if builder.get_config_value(&AzureConfigKey::UseAzureCli).as_deref() == Some("true") {
        "Azure's command line"
    } else {
        "managed identity (no AZURE_STORAGE_* variable names a key, token, client or signature)"
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The endpoint without a slash at its end, if it may be used.
fn check_endpoint(
    location: &CloudLocation,
    options: &CloudOptions,
    endpoint: &str,
) -> Result<String, StoreError> {
    let url = url::Url::parse(endpoint).ok().filter(url::Url::has_host);
    match url.as_ref().map(url::Url::scheme) {
        Some("https") => Ok(endpoint.trim_end_matches('/').to_owned()),
        Some("http") if options.allow_http => Ok(endpoint.trim_end_matches('/').to_owned()),
        Some("http") => Err(invalid(
            location,
            format!("endpoint {endpoint} is plain http, which anyone on the way can read: pass --allow-http"),
        )),
        _ => Err(invalid(location, format!("endpoint {endpoint:?} is not a URL of https:// (or http://)"))),
    }
}

fn refused(location: &CloudLocation, error: &object_store::Error) -> StoreError {
    invalid(location, chain(error))
}

fn invalid(location: &CloudLocation, detail: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Invalid, "open", location.url(), detail)
}
