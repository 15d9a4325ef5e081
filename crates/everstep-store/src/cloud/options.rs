//! Settings of a store of Google or Azure.

use std::fmt;
use std::time::Duration;

/// A text that no output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Where credentials come from.
#[derive(Debug, Clone, Default)]
pub enum CloudCredentials {
    /// What the vendor's variables and files say: for Google `GOOGLE_SERVICE_ACCOUNT`, `GOOGLE_APPLICATION_CREDENTIALS`,
    /// gcloud's own file, instance metadata; for Azure `AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_STORAGE_SAS_TOKEN`, client
    /// secret, workload identity, managed identity.
    #[default]
    Environment,
    /// A bearer token.
    Token(Secret),
    /// The key of an Azure account.
    AccountKey(Secret),
}

/// Settings of a store of Google or Azure; the default is what the environment says.
#[derive(Debug, Clone)]
pub struct CloudOptions {
    /// The Azure storage account; else `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT`.
    pub account: Option<String>,
    /// The endpoint; else `GOOGLE_BASE_URL` or `AZURE_STORAGE_ENDPOINT`, else the vendor's.
    pub endpoint_url: Option<String>,
    /// Whether the endpoint may be plain `http://`.
    pub allow_http: bool,
    /// Where credentials come from.
    pub credentials: CloudCredentials,
    /// Time to open a connection.
    pub connect_timeout: Duration,
    /// Time without any byte moving after which a request is given up; there is no limit to its whole time.
    pub idle_timeout: Duration,
}

impl Default for CloudOptions {
    fn default() -> Self {
        Self {
            account: None,
            endpoint_url: None,
            allow_http: false,
            credentials: CloudCredentials::default(),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
        }
    }
}
