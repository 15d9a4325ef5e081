//! Credentials: fetched once per process, kept until shortly before they end, and, when there are none, an error that
//! says where they were looked for.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_config::ecs::EcsCredentialsProvider;
use aws_config::environment::credentials::EnvironmentVariableCredentialsProvider;
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use futures::future::{Either, select};

use super::errors::chain;
use crate::{StoreError, StoreErrorKind, World};

/// New credentials are fetched at least this long before the old ones end, if these live long enough.
const MARGIN: Duration = Duration::from_secs(5 * 60);
/// After a failed refresh of credentials that still hold, the next try waits at most this long.
const RETRY: Duration = Duration::from_secs(30);
/// Attempts at the instance metadata service; outside of a cloud it is silent, and nobody should wait for it.
pub(super) const METADATA_ATTEMPTS: u32 = 1;
/// Time for the instance metadata service.
pub(super) const METADATA_LIMIT: Duration = Duration::from_millis(2500);

/// One place to look for credentials.
#[derive(Debug)]
pub(super) struct Source {
    name: String,
    limit: Duration,
    provider: SharedCredentialsProvider,
}

impl Source {
    fn new(name: impl Into<String>, seconds: u64, provider: impl ProvideCredentials + 'static) -> Self {
        let limit = Duration::from_secs(seconds);
        Self { name: name.into(), limit, provider: SharedCredentialsProvider::new(provider) }
    }

    /// A provider that the caller brings.
    pub(super) fn own(provider: impl ProvideCredentials + 'static) -> Self {
        Self::new("the given provider", 60, provider)
    }

    async fn fetch(&self, world: &dyn World) -> Result<Credentials, CredentialsError> {
        let fetch = pin!(self.provider.provide_credentials());
        match select(fetch, world.sleep(self.limit)).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => Err(CredentialsError::provider_timed_out(self.limit)),
        }
    }
}

/// How providers reach the network.
#[derive(Debug)]
pub(super) struct Reach {
    /// Through the proxy, if there is one: token services.
    pub(super) proxied: ProviderConfig,
    /// Never through a proxy: container and instance metadata.
    pub(super) direct: ProviderConfig,
}

/// The places that the vendor's tools look at, in their order. A profile that was named by option is the only one.
pub(super) fn usual_sources(profile: Option<&str>, reach: &Reach) -> Vec<Source> {
    let profiles = ProfileFileCredentialsProvider::builder().configure(&reach.proxied);
    if let Some(name) = profile {
        return vec![Source::new(format!("profile {name}"), 60, profiles.profile_name(name).build())];
    }
    let web = WebIdentityTokenCredentialsProvider::builder().configure(&reach.proxied).build();
    let container = EcsCredentialsProvider::builder().configure(&reach.direct).build();
    let metadata =
        aws_config::imds::Client::builder().configure(&reach.direct).max_attempts(METADATA_ATTEMPTS).build();
    let instance = ImdsCredentialsProvider::builder().configure(&reach.direct).imds_client(metadata).build();
    vec![
        Source::new("environment", 1, EnvironmentVariableCredentialsProvider::new()),
        Source::new("profile", 60, profiles.build()),
        Source::new("web identity", 20, web),
        Source::new("container", 10, container),
        Source { limit: METADATA_LIMIT, ..Source::new("instance metadata", 0, instance) },
    ]
}

/// Where credentials came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The source that gave them.
    pub(crate) source: String,
    /// Those asked before it, each with why it gave none.
    pub(crate) before: Vec<String>,
}

/// Credentials, kept and refreshed: one fetch at a time, whoever asks.
pub(super) struct CredentialCache {
    sources: Vec<Source>,
    world: Arc<dyn World>,
    state: tokio::sync::Mutex<State>,
}

#[derive(Default)]
struct State {
    held: Option<Held>,
    /// What the store called expired; getting the same again is no refresh.
    rejected: Option<Credentials>,
    /// The last failed fetch, for those who waited while it ran.
    failed: Option<(Duration, StoreError)>,
}

struct Held {
    credentials: Credentials,
    origin: Origin,
    refresh_at: Option<SystemTime>,
}

impl CredentialCache {
    /// An empty cache in front of `sources`.
    pub(super) fn new(sources: Vec<Source>, world: Arc<dyn World>) -> Self {
        Self { sources, world, state: tokio::sync::Mutex::default() }
    }

    /// Credentials that hold now.
    pub(super) async fn current(&self) -> Result<Credentials, StoreError> {
        let arrived = self.world.elapsed();
        let mut state = self.state.lock().await;
        let now = self.world.now();
        if let Some(held) = &state.held
            && held.refresh_at.is_none_or(|at| now < at)
        {
            return Ok(held.credentials.clone());
        }
        match &state.failed {
            Some((when, error)) if *when >= arrived => Err(error.clone()),
            _ => self.refresh(&mut state).await,
        }
    }

    /// Where the credentials at hand came from.
    pub(super) async fn origin(&self) -> Option<Origin> {
        self.state.lock().await.held.as_ref().map(|held| held.origin.clone())
    }

    /// Forgets credentials that the store called expired.
    pub(super) async fn reject(&self, used: &Credentials) {
        let mut state = self.state.lock().await;
        if state.held.as_ref().is_some_and(|held| same(&held.credentials, used)) {
            state.held = None;
        }
        state.rejected = Some(used.clone());
    }

    async fn refresh(&self, state: &mut State) -> Result<Credentials, StoreError> {
        let had = state.held.is_some() || state.rejected.is_some();
        match self.fetch(had, state.rejected.as_ref()).await {
            Ok((credentials, origin)) => {
                let refresh_at = credentials.expiry().map(|expiry| self.refresh_time(expiry));
                *state = State {
                    held: Some(Held { credentials: credentials.clone(), origin, refresh_at }),
                    ..State::default()
                };
                Ok(credentials)
            }
            Err(error) => self.make_do(state, error),
        }
    }

    /// Old credentials that still hold are better than none.
    fn make_do(&self, state: &mut State, error: StoreError) -> Result<Credentials, StoreError> {
        let now = self.world.now();
        let left = |held: &Held| held.credentials.expiry().and_then(|expiry| expiry.duration_since(now).ok());
        if let Some(held) = &mut state.held
            && let Some(left) = left(held)
        {
            tracing::warn!(%error, "credentials could not be refreshed, those at hand hold a little longer");
            held.refresh_at = Some(now + RETRY.min(left / 4));
            return Ok(held.credentials.clone());
        }
        state.failed = Some((self.world.elapsed(), error.clone()));
        Err(error)
    }

    /// Tries the sources in order, until one gives credentials or fails in a way that is not "none here".
    async fn fetch(
        &self,
        had: bool,
        rejected: Option<&Credentials>,
    ) -> Result<(Credentials, Origin), StoreError> {
        let mut tried = Vec::new();
        for source in &self.sources {
            match source.fetch(&*self.world).await {
                Ok(again) if rejected.is_some_and(|old| same(old, &again)) => {
                    let why = "the store calls these credentials expired, and no newer ones were given";
                    return Err(failed(had, &format!("{}: {why}", source.name)));
                }
                Ok(credentials) => {
                    return Ok((credentials, Origin { source: source.name.clone(), before: tried }));
                }
                Err(none @ CredentialsError::CredentialsNotLoaded(_)) => {
                    tried.push(format!("{}: {}", source.name, chain(&none)));
                }
                Err(error) => {
                    tried.push(format!("{}: {}", source.name, chain(&error)));
                    return Err(failed(had, &tried.join("; ")));
                }
            }
        }
        Err(failed(had, &tried.join("; ")))
    }

    /// A while before `expiry`, so that a request can still finish, and not the same moment for every process.
    fn refresh_time(&self, expiry: SystemTime) -> SystemTime {
        let left = expiry.duration_since(self.world.now()).unwrap_or_default();
        let margin = MARGIN.min(left / 4);
        expiry - margin.mul_f64(1.0 + self.world.random_fraction())
    }
}

impl fmt::Debug for CredentialCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.sources.iter().map(|source| &source.name).collect();
        f.debug_struct("CredentialCache").field("sources", &names).finish_non_exhaustive()
    }
}

fn failed(had: bool, tried: &str) -> StoreError {
    let (kind, what) = match had {
        true => (StoreErrorKind::CredentialsExpired, "credentials could not be renewed"),
        false => (StoreErrorKind::Denied, "no credentials"),
    };
    StoreError::new(kind, "open", "credentials", format!("{what}; tried in this order: {tried}"))
}

fn same(left: &Credentials, right: &Credentials) -> bool {
    left.access_key_id() == right.access_key_id() && left.session_token() == right.session_token()
}

/// The cache as the SDK takes it.
#[derive(Debug)]
pub(super) struct Cached(pub(super) Arc<CredentialCache>);

impl ProvideCredentials for Cached {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            self.0.current().await.map_err(CredentialsError::provider_error)
        })
    }
}

/// What one fetch per process is shared by: the profile named by option, and the region of the token service.
pub(super) type SharedBy = (Option<String>, String);

static SHARED: LazyLock<Mutex<HashMap<SharedBy, Arc<CredentialCache>>>> = LazyLock::new(Mutex::default);

/// The process's cache for `by`, made by `make` on first use.
pub(super) fn shared(by: SharedBy, make: impl FnOnce() -> CredentialCache) -> Arc<CredentialCache> {
    let mut caches = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(caches.entry(by).or_insert_with(|| Arc::new(make())))
}

#[cfg(test)]
mod tests;
