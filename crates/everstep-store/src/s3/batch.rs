//! Listing and batch deletes.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use aws_sdk_s3::config::interceptors::BeforeTransmitInterceptorContextMut;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::BoxError;
use aws_sdk_s3::operation::delete_objects::DeleteObjectsOutput;
use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::types::{Delete, Object as S3Object, ObjectIdentifier};
use aws_smithy_types::base64;
use everstep_format::key::{Key, Prefix};
use futures::stream::{self, StreamExt as _};
use md5::{Digest, Md5};

use super::errors::{Failure, kind_of_key};
use super::{S3Store, watched};
use crate::transport::body::Progress;
use crate::{Deleted, Listed, Page, StoreError, StoreErrorKind};

/// Requests in flight of a delete without batches.
const SINGLE_DELETES: usize = 16;
/// Keys in one DeleteObjects.
pub(super) const DELETE_KEYS: usize = 1000;

impl S3Store {
    /// One try at a page.
    pub(super) async fn try_list(&self, prefix: &Prefix, token: Option<&str>) -> Result<Page, Failure> {
        let progress = Progress::default();
        let request = self
            .client
            .list_objects_v2()
            .bucket(&self.location.bucket)
            .prefix(self.location.root.prefix(prefix))
            .set_continuation_token(token.map(str::to_owned));
        let answer = watched(self, &progress, request.send()).await?;
        self.page(&answer, token)
    }

    fn page(&self, answer: &ListObjectsV2Output, token: Option<&str>) -> Result<Page, Failure> {
        let mut page = Page { next: next_token(answer, token)?, ..Page::default() };
        for object in answer.contents() {
            let full = object.key().unwrap_or_default();
            match self.location.root.strip(full).and_then(Key::listed) {
                Some(key) => page.objects.push(listed(key, object)?),
                None => page.strays.push(full.to_owned()),
            }
        }
        Ok(page)
    }

    /// Deletes up to [`DELETE_KEYS`] keys, one by one where the store knows no batches.
    pub(super) async fn delete_batch(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        if !self.single_deletes.load(Ordering::Relaxed) {
            match self.authorised(|| self.try_delete(keys)).await {
                Ok(results) => return Ok(results),
                Err(failure) if self.wants_single_deletes(&failure, keys).await => {
                    self.single_deletes.store(true, Ordering::Relaxed);
                }
                Err(failure) => {
                    let first = keys.first().map_or("", Key::as_str);
                    return Err(self.error(failure, "delete", first));
                }
            }
        }
        let keys = keys.to_vec();
        let delete = |key: Key| async move { Deleted { result: self.delete_one(&key).await, key } };
        Ok(stream::iter(keys).map(delete).buffered(SINGLE_DELETES).collect().await)
    }

    /// Some stores know no batches, others judge a batch by a permission on the bucket that nobody has.
    async fn wants_single_deletes(&self, failure: &Failure, keys: &[Key]) -> bool {
        match (failure.status, keys.first()) {
            (Some(501), _) => true,
            (Some(403), Some(first)) => self.delete_one(first).await.is_ok(),
            _ => false,
        }
    }

    async fn delete_one(&self, key: &Key) -> Result<(), StoreError> {
        let try_one = || async {
            let progress = Progress::default();
            let request = self.client.delete_object().bucket(&self.location.bucket);
            let request = request.key(self.location.root.key(key));
            watched(self, &progress, request.send()).await.map(|_| ())
        };
        match self.authorised(try_one).await {
            Err(failure) if failure.code == "NoSuchKey" => Ok(()),
            result => result.map_err(|failure| self.error(failure, "delete", key.as_str())),
        }
    }

    /// One try at deleting up to [`DELETE_KEYS`] keys.
    pub(super) async fn try_delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, Failure> {
        let progress = Progress::default();
        let mut delete = Delete::builder().quiet(false);
        for key in keys {
            let id = ObjectIdentifier::builder().key(self.location.root.key(key)).build();
            delete =
                delete.objects(id.map_err(|error| Failure::new(StoreErrorKind::Invalid, error.to_string()))?);
        }
        let delete =
            delete.build().map_err(|error| Failure::new(StoreErrorKind::Invalid, error.to_string()))?;
        let request = self.client.delete_objects().bucket(&self.location.bucket).delete(delete);
        let answer = watched(self, &progress, request.customize().interceptor(Md5Hook).send()).await?;
        Ok(self.results(keys, &answer))
    }

    /// A result for every key that was asked for, also when the store is silent about one.
    fn results(&self, keys: &[Key], answer: &DeleteObjectsOutput) -> Vec<Deleted> {
        let mut told: HashMap<&str, Result<(), (StoreErrorKind, String)>> = HashMap::new();
        told.extend(answer.deleted().iter().filter_map(|done| Some((done.key()?, Ok(())))));
        for error in answer.errors() {
            let code = error.code().unwrap_or_default();
            if code != "NoSuchKey" {
                let detail = format!("the store answered {code}: {}", error.message().unwrap_or_default());
                told.insert(error.key().unwrap_or_default(), Err((kind_of_key(code), detail)));
            } else if let Some(key) = error.key() {
                told.insert(key, Ok(()));
            }
        }
        let result = |key: &Key| match told.get(self.location.root.key(key).as_str()) {
            Some(Ok(())) => Ok(()),
            Some(Err((kind, detail))) => Err(StoreError::new(*kind, "delete", key, detail)),
            None => {
                Err(StoreError::new(StoreErrorKind::Server, "delete", key, "the store says nothing about it"))
            }
        };
        keys.iter().map(|key| Deleted { key: key.clone(), result: result(key) }).collect()
    }
}

fn next_token(answer: &ListObjectsV2Output, token: Option<&str>) -> Result<Option<String>, Failure> {
    if !answer.is_truncated().unwrap_or(false) {
        return Ok(None);
    }
    match answer.next_continuation_token() {
        Some(next) if Some(next) != token => Ok(Some(next.to_owned())),
        _ => {
            Err(Failure::new(StoreErrorKind::Server, "the listing goes on, but the store does not say where"))
        }
    }
}

fn listed(key: Key, object: &S3Object) -> Result<Listed, Failure> {
    let size = object.size().and_then(|size| u64::try_from(size).ok());
    let size =
        size.ok_or_else(|| Failure::new(StoreErrorKind::Server, format!("no size of {key} in the listing")))?;
    let modified = object.last_modified().and_then(|time| SystemTime::try_from(*time).ok());
    Ok(Listed { key, size, modified: modified.unwrap_or(SystemTime::UNIX_EPOCH) })
}

/// Replaces the checksum header, which older stores do not know, by the Content-MD5 that all of them do.
#[derive(Debug)]
struct Md5Hook;

impl Intercept for Md5Hook {
    fn name(&self) -> &'static str {
        "everstep content md5"
    }

    fn modify_before_signing(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let request = context.request_mut();
        let md5 = Md5::digest(request.body().bytes().ok_or("the body is not in memory")?);
        let headers = request.headers_mut();
        let checksums: Vec<String> =
            headers.iter().map(|(name, _)| name.to_owned()).filter(is_checksum).collect();
        for name in checksums {
            headers.remove(name);
        }
        headers.insert("content-md5", base64::encode(md5));
        Ok(())
    }
}

fn is_checksum(name: &String) -> bool {
    name.starts_with("x-amz-checksum-") || name == "x-amz-sdk-checksum-algorithm"
}
