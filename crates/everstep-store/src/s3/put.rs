//! Writing: one PUT per object, whatever its size; never a multipart upload, never a chunked encoding.

use aws_sdk_s3::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextMut,
};
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::BoxError;
use aws_sdk_s3::operation::put_object::builders::PutObjectFluentBuilder;
use aws_sdk_s3::primitives::{ByteStream, SdkBody};
use aws_sdk_s3::types::{ServerSideEncryption, StorageClass};
use aws_smithy_types::base64;
use everstep_format::key::Key;

use super::errors::{Failure, is_error_document};
use super::options::Checksums;
use super::{S3Store, watched};
use crate::transport::body::{Progress, SegmentBody, in_one};
use crate::{Class, Payload, StoreErrorKind};

/// One object to write.
pub(super) struct Put<'a> {
    /// Its key.
    pub(super) key: &'a Key,
    /// Its bytes.
    pub(super) payload: &'a Payload,
    /// Its class.
    pub(super) class: Class,
    /// Whether it may be written only if nothing is there.
    pub(super) if_absent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signing {
    /// The signature covers the body.
    Body,
    /// It covers the head alone; TLS protects the body.
    Head,
}

impl S3Store {
    /// Writes; a body goes unsigned only where that is allowed, and until the store has refused it once.
    pub(super) async fn write(&self, put: &Put<'_>) -> Result<(), Failure> {
        if put.class != Class::Bulk || !self.may_leave_unsigned() {
            return self.write_with(put, Signing::Body).await;
        }
        match self.write_with(put, Signing::Head).await {
            Err(failure) if failure.may_want_a_signature() => {
                let signed = self.write_with(put, Signing::Body).await;
                if signed.is_ok() {
                    self.sign_all_bodies();
                }
                signed
            }
            result => result,
        }
    }

    async fn write_with(&self, put: &Put<'_>, signing: Signing) -> Result<(), Failure> {
        self.authorised(|| self.try_put(put, signing)).await
    }

    async fn try_put(&self, put: &Put<'_>, signing: Signing) -> Result<(), Failure> {
        let progress = Progress::default();
        let body = match signing {
            Signing::Body => SdkBody::from(in_one(put.payload)),
            Signing::Head => SegmentBody::sdk_body(put.payload, &progress),
        };
        let request = self.put_request(put)?.body(ByteStream::new(body)).customize();
        let hook = PutHook { payload: put.payload.clone(), progress: progress.clone() };
        let request = request.interceptor(hook);
        let request = match signing {
            Signing::Body => request,
            Signing::Head => request.disable_payload_signing(),
        };
        watched(self, &progress, request.send()).await.map(|_| ())
    }

    fn put_request(&self, put: &Put<'_>) -> Result<PutObjectFluentBuilder, Failure> {
        let length = i64::try_from(put.payload.len())
            .map_err(|_| Failure::new(StoreErrorKind::Invalid, "the object is too large for any store"))?;
        let options = &self.options;
        let class = options.storage_class.as_deref().filter(|_| put.class == Class::Bulk);
        let encrypted = options.kms_key.is_some();
        Ok(self
            .client
            .put_object()
            .bucket(&self.location.bucket)
            .key(self.location.root.key(put.key))
            .content_length(length)
            .set_if_none_match(put.if_absent.then(|| "*".to_owned()))
            .set_storage_class(class.map(StorageClass::from))
            .set_server_side_encryption(encrypted.then_some(ServerSideEncryption::AwsKms))
            .set_ssekms_key_id(options.kms_key.clone())
            .set_checksum_crc32_c(self.checksum(put.payload)))
    }

    fn checksum(&self, payload: &Payload) -> Option<String> {
        (self.options.checksums == Checksums::Crc32c).then(|| {
            let crc = payload.0.iter().fold(0, |crc, segment| crc32c::crc32c_append(crc, segment));
            base64::encode(crc.to_be_bytes())
        })
    }
}

/// Sends the body segment by segment once it is signed, and looks for errors that come with status 200.
#[derive(Debug)]
struct PutHook {
    payload: Payload,
    progress: Progress,
}

impl Intercept for PutHook {
    fn name(&self) -> &'static str {
        "everstep put"
    }

    fn modify_before_transmit(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        *context.request_mut().body_mut() = SegmentBody::sdk_body(&self.payload, &self.progress);
        Ok(())
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body = context.response().body().bytes().unwrap_or_default();
        match context.output_or_error() {
            Ok(_) if is_error_document(body) => Err("status 200 with an error document".into()),
            _ => Ok(()),
        }
    }
}
