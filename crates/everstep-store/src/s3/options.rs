//! Settings of an S3 store.

use std::fmt;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;

use crate::address::Root;
use crate::{StoreError, StoreErrorKind};

/// Where a repository lies in S3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Location {
    /// The bucket.
    pub bucket: String,
    /// The prefix of every key.
    pub root: Root,
}

/// Checksums that the store is asked to verify, besides Everstep's own hash from end to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Checksums {
    /// None, unless an operation cannot do without: every compatible store understands this.
    #[default]
    WhenRequired,
    /// `x-amz-checksum-crc32c` with every object, as a header.
    Crc32c,
}

/// Where credentials come from.
#[derive(Debug, Clone, Default)]
pub enum S3Credentials {
    /// What the vendor's tools would find: environment, profile (static, SSO, role, process), web identity,
    /// container, instance metadata.
    #[default]
    Chain,
    /// These keys.
    Fixed(Keys),
    /// This provider.
    Provider(SharedCredentialsProvider),
}

/// Keys to sign with.
#[derive(Clone)]
pub struct Keys {
    /// The access key, which is no secret.
    pub access_key: String,
    /// The secret key.
    pub secret_key: String,
    /// The session token that belongs to temporary keys.
    pub token: Option<String>,
    /// When temporary keys end.
    pub expires: Option<SystemTime>,
}

impl Keys {
    /// As the SDK takes them.
    pub(super) fn to_credentials(&self) -> Credentials {
        let Self { access_key, secret_key, token, expires } = self.clone();
        Credentials::new(access_key, secret_key, token, expires, "given keys")
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Settings of an S3 store; the default is what AWS and its tools would do.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// A named profile; beats keys in the environment.
    pub profile: Option<String>,
    /// The region; else environment, profile, instance metadata; else `us-east-1` for an endpoint of one's own.
    pub region: Option<String>,
    /// The endpoint; else `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, the profile's `endpoint_url`.
    pub endpoint_url: Option<String>,
    /// Whether the endpoint may be plain `http://`.
    pub allow_http: bool,
    /// Whether the bucket goes into the path instead of the host name. By default it does for an endpoint of one's
    /// own, and for a bucket with dots, whose host name no certificate covers.
    pub path_style: Option<bool>,
    /// Checksums that the store verifies.
    pub checksums: Checksums,
    /// Whether the bodies of bulk objects may go unsigned over https (they are hashed from end to end anyway).
    pub unsigned_bulk: bool,
    /// The id of a KMS key with which the store encrypts every object.
    pub kms_key: Option<String>,
    /// The storage class of bulk objects.
    pub storage_class: Option<String>,
    /// Where credentials come from.
    pub credentials: S3Credentials,
    /// Time to open a connection.
    pub connect_timeout: Duration,
    /// Time without any byte moving after which a request is given up; there is no limit to its whole time.
    pub idle_timeout: Duration,
}

impl Default for S3Options {
    fn default() -> Self {
        Self {
            profile: None,
            region: None,
            endpoint_url: None,
            allow_http: false,
            path_style: None,
            checksums: Checksums::default(),
            unsigned_bulk: true,
            kms_key: None,
            storage_class: None,
            credentials: S3Credentials::default(),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// Suffixes of directory buckets and of their access points, whose keys are not listed in order.
const DIRECTORY_SUFFIXES: [&str; 2] = ["--x-s3", "--xa-s3"];
/// Classes whose objects must be thawed before they can be read.
const ARCHIVES: [&str; 2] = ["GLACIER", "DEEP_ARCHIVE"];

impl S3Options {
    /// Refuses what can be refused without asking anybody.
    pub(super) fn check(&self, location: &S3Location) -> Result<(), StoreError> {
        if DIRECTORY_SUFFIXES.iter().any(|suffix| location.bucket.ends_with(suffix)) {
            let detail = "directory buckets (S3 Express One Zone) are not supported: they list keys in no order; \
                          use a general purpose bucket";
            return Err(invalid(location, detail));
        }
        match self.storage_class.as_deref() {
            Some(class) if ARCHIVES.contains(&class) => Err(invalid(
                location,
                format!(
                    "storage class {class} cannot be read without a restore; use STANDARD, STANDARD_IA or GLACIER_IR"
                ),
            )),
            _ => Ok(()),
        }
    }
}

impl S3Location {
    /// The address for people.
    pub(super) fn url(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.root.as_str())
    }
}

/// A setting that cannot work.
pub(super) fn invalid(location: &S3Location, detail: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Invalid, "open", location.url(), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(bucket: &str) -> S3Location {
        S3Location { bucket: bucket.to_owned(), root: Root::parse("").unwrap() }
    }

    #[test]
    fn directory_buckets_are_refused_until_tested() {
        let refusal = S3Options::default().check(&location("fast--use1-az4--x-s3")).unwrap_err();
        assert_eq!(refusal.kind, StoreErrorKind::Invalid);
        assert!(refusal.detail.contains("directory buckets"), "{refusal}");
    }

    #[test]
    fn archive_classes_are_refused() {
        let options = S3Options { storage_class: Some("DEEP_ARCHIVE".to_owned()), ..S3Options::default() };
        assert!(options.check(&location("b")).unwrap_err().detail.contains("DEEP_ARCHIVE"));
        let options = S3Options { storage_class: Some("GLACIER_IR".to_owned()), ..S3Options::default() };
        options.check(&location("b")).unwrap();
    }

    #[test]
    fn keys_show_no_secret() {
        let keys = Keys {
            access_key: "AKID".to_owned(),
            secret_key: "hidden".to_owned(),
            token: Some("hidden".to_owned()),
            expires: None,
        };
        let shown =
            format!("{:?}", S3Options { credentials: S3Credentials::Fixed(keys), ..S3Options::default() });
        assert!(shown.contains("AKID") && !shown.contains("hidden"), "{shown}");
    }
}
