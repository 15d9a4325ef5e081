//! Settings of an S3 store.

use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;

use crate::{StoreError, StoreErrorKind};

/// Where a repository lies in S3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Location {
    /// The bucket.
    pub bucket: String,
    /// The prefix of every key, as raw text without a slash at either end; empty for the whole bucket.
    pub root: String,
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
    Fixed(Credentials),
    /// This provider.
    Provider(SharedCredentialsProvider),
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
        let slash = if self.root.is_empty() { "" } else { "/" };
        format!("s3://{}{slash}{}", self.bucket, self.root)
    }

    /// The whole key of `key`, which may also be a prefix.
    pub(super) fn full(&self, key: &str) -> String {
        if self.root.is_empty() { key.to_owned() } else { format!("{}/{key}", self.root) }
    }

    /// The part of a whole key that is below the root.
    pub(super) fn relative<'a>(&self, full: &'a str) -> Option<&'a str> {
        match self.root.as_str() {
            "" => Some(full),
            root => full.strip_prefix(root)?.strip_prefix('/'),
        }
    }
}

/// A setting that cannot work.
pub(super) fn invalid(location: &S3Location, detail: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Invalid, "open", location.url(), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(bucket: &str, root: &str) -> S3Location {
        S3Location { bucket: bucket.to_owned(), root: root.to_owned() }
    }

    #[test]
    fn directory_buckets_are_refused_until_tested() {
        let refusal = S3Options::default().check(&location("fast--use1-az4--x-s3", "")).unwrap_err();
        assert_eq!(refusal.kind, StoreErrorKind::Invalid);
        assert!(refusal.detail.contains("directory buckets"), "{refusal}");
    }

    #[test]
    fn archive_classes_are_refused() {
        let options = S3Options { storage_class: Some("DEEP_ARCHIVE".to_owned()), ..S3Options::default() };
        assert!(options.check(&location("b", "")).unwrap_err().detail.contains("DEEP_ARCHIVE"));
        let options = S3Options { storage_class: Some("GLACIER_IR".to_owned()), ..S3Options::default() };
        options.check(&location("b", "")).unwrap();
    }

    #[test]
    fn an_empty_root_gives_no_leading_slash_and_a_root_takes_no_neighbour() {
        assert_eq!(location("b", "").full("runs/x"), "runs/x");
        assert_eq!(location("b", "exp").full("runs/x"), "exp/runs/x");
        assert_eq!(location("b", "exp").relative("exp/runs/x"), Some("runs/x"));
        assert_eq!(location("b", "exp").relative("exp1/runs/x"), None);
        assert_eq!(location("b", "").relative("runs/x"), Some("runs/x"));
    }
}
