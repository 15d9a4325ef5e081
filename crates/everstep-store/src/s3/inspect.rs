//! What a bucket says of itself, for a diagnosis.

use aws_sdk_s3::types::{BucketVersioningStatus, ExpirationStatus, LifecycleRule};

use super::credentials::Origin;
use super::errors::Failure;
use super::{S3Store, watched};
use crate::StoreError;
use crate::transport::body::Progress;

/// Classes whose objects must be thawed before they can be read.
const FROZEN: [&str; 2] = ["GLACIER", "DEEP_ARCHIVE"];

impl S3Store {
    /// Where the credentials came from.
    pub(crate) async fn origin(&self) -> Option<Origin> {
        self.credentials.origin().await
    }

    /// Endpoint, style of addresses and region, for people.
    pub(crate) fn addressing(&self) -> String {
        let endpoint = self.endpoint.as_deref().unwrap_or("Amazon's own endpoint");
        let style = if self.path_style { "in the path" } else { "in the host name" };
        format!("{endpoint}, the bucket {style}, signed for region {}", self.region)
    }

    /// Rules of the bucket that would delete objects of this repository, or make them unreadable.
    pub(crate) async fn harmful_rules(&self) -> Result<Vec<String>, StoreError> {
        let ask = || async {
            let request = self.client.get_bucket_lifecycle_configuration().bucket(&self.location.bucket);
            watched(self, &Progress::default(), request.send()).await
        };
        match self.authorised(ask).await {
            Ok(answer) => Ok(answer.rules().iter().filter_map(|rule| self.harm(rule)).collect()),
            Err(failure) if failure.code == "NoSuchLifecycleConfiguration" => Ok(Vec::new()),
            Err(failure) => Err(self.asked(failure)),
        }
    }

    /// Whether the bucket keeps old versions, so that deleting frees no space.
    pub(crate) async fn is_versioned(&self) -> Result<bool, StoreError> {
        let ask = || async {
            let request = self.client.get_bucket_versioning().bucket(&self.location.bucket);
            watched(self, &Progress::default(), request.send()).await
        };
        let answer = self.authorised(ask).await.map_err(|failure| self.asked(failure))?;
        Ok(answer.status() == Some(&BucketVersioningStatus::Enabled))
    }

    /// Whether new objects are locked against deletion.
    pub(crate) async fn is_locked(&self) -> Result<bool, StoreError> {
        let ask = || async {
            let request = self.client.get_object_lock_configuration().bucket(&self.location.bucket);
            watched(self, &Progress::default(), request.send()).await
        };
        match self.authorised(ask).await {
            Ok(answer) => {
                let rule = answer.object_lock_configuration().and_then(|lock| lock.rule());
                Ok(rule.is_some_and(|rule| rule.default_retention().is_some()))
            }
            Err(failure) if failure.code.starts_with("ObjectLockConfigurationNotFound") => Ok(false),
            Err(failure) if failure.code == "NoSuchObjectLockConfiguration" => Ok(false),
            Err(failure) => Err(self.asked(failure)),
        }
    }

    fn asked(&self, failure: Failure) -> StoreError {
        self.error(failure, "inspect", &self.location.bucket)
    }

    fn harm(&self, rule: &LifecycleRule) -> Option<String> {
        let touches = rule.status() == &ExpirationStatus::Enabled && !wants_tags(rule);
        if !touches || !overlap(prefix(rule), self.location.root.as_str()) {
            return None;
        }
        let frozen = rule.transitions().iter().filter_map(|transition| transition.storage_class());
        let frozen = frozen.map(|class| class.as_str()).find(|class| FROZEN.contains(class));
        let expires =
            rule.expiration().filter(|expiration| expiration.days().is_some() || expiration.date().is_some());
        let when = match (expires.map(|expiration| expiration.days()), frozen) {
            (Some(Some(days)), _) => format!("deletes objects after {days} days"),
            (Some(None), _) => "deletes objects on a date".to_owned(),
            (None, Some(class)) => format!("moves objects to {class}, where they cannot be read"),
            (None, None) => return None,
        };
        let id = rule.id().unwrap_or("without a name");
        Some(format!("rule {id:?} (prefix {:?}) {when}", prefix(rule)))
    }
}

/// Our objects have no tags.
fn wants_tags(rule: &LifecycleRule) -> bool {
    rule.filter().is_some_and(|filter| {
        filter.tag().is_some() || filter.and().is_some_and(|and| !and.tags().is_empty())
    })
}

fn prefix(rule: &LifecycleRule) -> &str {
    let of_filter = rule.filter().and_then(|filter| filter.prefix().or_else(|| filter.and()?.prefix()));
    #[expect(deprecated, reason = "old rules have their prefix here")]
    let of_rule = rule.prefix();
    of_filter.or(of_rule).unwrap_or_default()
}

/// Whether some key below `root` starts with `prefix`.
fn overlap(prefix: &str, root: &str) -> bool {
    let below = if root.is_empty() { String::new() } else { format!("{root}/") };
    below.starts_with(prefix) || prefix.starts_with(&below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_matters_when_its_prefix_and_the_repository_overlap() {
        assert!(overlap("", "exp/a") && overlap("exp", "exp/a") && overlap("exp/a/packs/", "exp/a"));
        assert!(overlap("logs/", ""));
        assert!(!overlap("exp/ab", "exp/a") && !overlap("logs/", "exp/a"));
    }
}
