//! From settings to a client: endpoint, region, TLS, proxy, credentials.

use std::sync::Arc;
use std::time::SystemTime;

use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::imds::region::ImdsRegionProvider;
use aws_config::meta::region::ProvideRegion;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    IdentityCache, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    StalledStreamProtectionConfig,
};
use aws_smithy_async::time::TimeSource;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_runtime_api::client::http::http_client_fn;
use aws_types::service_config::ServiceConfigKey;

use super::credentials::{
    Cached, CredentialCache, METADATA_ATTEMPTS, METADATA_LIMIT, Reach, Source, shared, usual_sources,
};
use super::options::{S3Credentials, S3Location, S3Options, invalid};
use crate::transport::network::{CA_BUNDLE, Network, bundle_of_environment};
use crate::{StoreError, World};

/// The region that is signed for when an endpoint of one's own names none.
const ANY_REGION: &str = "us-east-1";

/// A client and what was decided on the way to it.
#[derive(Debug)]
pub(super) struct Connected {
    /// The client.
    pub(super) client: Client,
    /// The credentials that it signs with.
    pub(super) credentials: Arc<CredentialCache>,
    /// The region that is signed for.
    pub(super) region: String,
    /// Whether the bucket goes into the path.
    pub(super) path_style: bool,
    /// The endpoint, unless it is the vendor's.
    pub(super) endpoint: Option<String>,
    /// Whether bodies are protected on their way.
    pub(super) https: bool,
}

/// What to connect to.
pub(super) struct Connect<'a> {
    /// Where.
    pub(super) location: &'a S3Location,
    /// How.
    pub(super) options: &'a S3Options,
    /// By which clock.
    pub(super) world: &'a Arc<dyn World>,
}

impl Connect<'_> {
    /// Resolves every setting, and fetches credentials, so that a wrong setting is told at once.
    pub(super) async fn run(&self) -> Result<Connected, StoreError> {
        let environment = bundle_of_environment();
        let network = Network::load(&self.location.url(), environment.as_deref())?;
        let config = self.load_config(&network).await;
        let network = match configured(&config, CA_BUNDLE, "ca_bundle").filter(|_| environment.is_none()) {
            Some(of_profile) => Network::load(&self.location.url(), Some(&of_profile))?,
            None => network,
        };
        let reach = reach(&network, self.world);
        let endpoint = self.endpoint(&config)?;
        let region = match self.configured_region(&reach).await {
            Some(region) => region,
            None => self.fallback_region(endpoint.is_some(), &reach).await?,
        };
        let credentials = self.credentials(&region, reach);
        credentials.current().await?;
        let path_style = self.path_style(endpoint.is_some());
        let mut builder = self
            .base_config(&config, &network)
            .region(region.clone())
            .credentials_provider(Cached(Arc::clone(&credentials)))
            .force_path_style(path_style);
        builder.set_endpoint_url(endpoint.clone());
        let client = Client::from_conf(builder.build());
        let https = endpoint.as_ref().is_none_or(|url| url.starts_with("https://"));
        Ok(Connected { client, credentials, region: region.to_string(), path_style, endpoint, https })
    }

    /// Environment and profile, but no credentials. Without any region the loader would ask the metadata service for
    /// one, patiently; ours is resolved apart.
    async fn load_config(&self, network: &Network) -> SdkConfig {
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(network.credential_client(network.proxy()))
            .time_source(WorldClock(Arc::clone(self.world)))
            .retry_config(RetryConfig::disabled())
            .no_credentials()
            .region(Region::from_static(ANY_REGION));
        if let Some(profile) = &self.options.profile {
            loader = loader.profile_name(profile);
        }
        loader.load().await
    }

    async fn configured_region(&self, reach: &Reach) -> Option<Region> {
        if let Some(region) = &self.options.region {
            return Some(Region::new(region.clone()));
        }
        let mut profile = ProfileFileRegionProvider::builder().configure(&reach.proxied);
        if let Some(name) = &self.options.profile {
            profile = profile.profile_name(name);
        }
        match EnvironmentVariableRegionProvider::new().region().await {
            None => profile.build().region().await,
            region => region,
        }
    }

    async fn fallback_region(&self, own_endpoint: bool, reach: &Reach) -> Result<Region, StoreError> {
        if own_endpoint {
            return Ok(Region::from_static(ANY_REGION));
        }
        let metadata = aws_config::imds::Client::builder()
            .configure(&reach.direct)
            .max_attempts(METADATA_ATTEMPTS)
            .operation_timeout(METADATA_LIMIT)
            .build();
        let provider = ImdsRegionProvider::builder().configure(&reach.direct).imds_client(metadata).build();
        let profile = self.options.profile.as_deref().unwrap_or("default, or AWS_PROFILE");
        provider.region().await.ok_or_else(|| {
            invalid(
                self.location,
                format!(
                    "no region: pass --region. Tried the option --region, AWS_REGION, AWS_DEFAULT_REGION, \
                     `region` of the profile ({profile}), and instance metadata"
                ),
            )
        })
    }

    /// The endpoint by option, environment or profile; checked.
    fn endpoint(&self, config: &SdkConfig) -> Result<Option<String>, StoreError> {
        let Some(endpoint) = self.options.endpoint_url.clone().or_else(|| configured_endpoint(config)) else {
            return Ok(None);
        };
        let scheme = match url::Url::parse(&endpoint) {
            Ok(url) if url.has_host() => url.scheme().to_owned(),
            _ => return Err(invalid(self.location, format!("endpoint {endpoint:?} is not a URL"))),
        };
        match scheme.as_str() {
            "https" => Ok(Some(endpoint)),
            "http" if self.options.allow_http => Ok(Some(endpoint)),
            "http" => Err(invalid(
                self.location,
                format!(
                    "endpoint {endpoint} is plain http, which anyone on the way can read: pass --allow-http"
                ),
            )),
            _ => Err(invalid(self.location, format!("endpoint {endpoint} is neither https:// nor http://"))),
        }
    }

    fn path_style(&self, own_endpoint: bool) -> bool {
        self.options.path_style.unwrap_or(own_endpoint || self.location.bucket.contains('.'))
    }

    fn credentials(&self, region: &Region, reach: Reach) -> Arc<CredentialCache> {
        let world = Arc::clone(self.world);
        let own = |source| Arc::new(CredentialCache::new(vec![source], Arc::clone(&world)));
        match &self.options.credentials {
            S3Credentials::Fixed(keys) => own(Source::own(keys.to_credentials())),
            S3Credentials::Provider(provider) => own(Source::own(provider.clone())),
            S3Credentials::Chain => {
                let profile = self.options.profile.clone();
                let reach = Reach {
                    proxied: reach.proxied.with_region(Some(region.clone())),
                    direct: reach.direct.with_region(Some(region.clone())),
                };
                shared((profile.clone(), region.to_string()), || {
                    CredentialCache::new(usual_sources(profile.as_deref(), &reach), world)
                })
            }
        }
    }

    /// No retries, no time limits and no cache of the SDK's: retries, idle limits and credentials are ours.
    fn base_config(&self, config: &SdkConfig, network: &Network) -> aws_sdk_s3::config::Builder {
        let connector = network.store_connector(self.options.connect_timeout);
        aws_sdk_s3::config::Builder::from(config)
            .http_client(http_client_fn(move |_, _| connector.clone()))
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .identity_cache(IdentityCache::no_cache())
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
    }
}

fn configured_endpoint(config: &SdkConfig) -> Option<String> {
    let of_s3 = configured(config, "AWS_ENDPOINT_URL", "endpoint_url");
    of_s3.or_else(|| config.endpoint_url().map(str::to_owned))
}

/// What environment or profile say for S3.
fn configured(config: &SdkConfig, variable: &str, field: &str) -> Option<String> {
    let key = ServiceConfigKey::builder().service_id("S3").env(variable).profile(field).build();
    config.service_config().zip(key.ok()).and_then(|(service, key)| service.load_config(key))
}

fn reach(network: &Network, world: &Arc<dyn World>) -> Reach {
    let config = |proxy| {
        ProviderConfig::without_region()
            .with_behavior_version(Some(BehaviorVersion::latest()))
            .with_time_source(WorldClock(Arc::clone(world)))
            .with_http_client(network.credential_client(proxy))
    };
    Reach { proxied: config(network.proxy()), direct: config(ProxyConfig::disabled()) }
}

/// The world's clock, for signatures and expiry.
#[derive(Debug)]
struct WorldClock(Arc<dyn World>);

impl TimeSource for WorldClock {
    fn now(&self) -> SystemTime {
        self.0.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemWorld;
    use crate::address::Root;

    #[test]
    fn a_bucket_goes_into_the_path_for_dots_and_for_an_endpoint_of_ones_own() {
        let world: Arc<dyn World> = Arc::new(SystemWorld::new());
        let style = |bucket: &str, own_endpoint, path_style| {
            let location = S3Location { bucket: bucket.to_owned(), root: Root::parse("").unwrap() };
            let options = S3Options { path_style, ..S3Options::default() };
            Connect { location: &location, options: &options, world: &world }.path_style(own_endpoint)
        };
        assert!(style("ckpt.team.prod", false, None));
        assert!(!style("ckpt", false, None));
        assert!(style("ckpt", true, None));
        assert!(!style("ckpt", true, Some(false)));
    }
}
