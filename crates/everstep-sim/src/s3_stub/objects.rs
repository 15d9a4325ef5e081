//! Buckets and what is in them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderValue, Method};

use super::clock::{http_date, iso};
use super::respond::{Reply, bytes, error, text};
use super::seen::Seen;
use super::xml::{elements, escape, parameter, percent_decode};
use super::{Shared, State};

/// One stored object.
#[derive(Debug, Clone)]
struct Stored {
    bytes: Bytes,
    modified: SystemTime,
}

/// Every object, by bucket and raw key.
#[derive(Debug, Default)]
pub(super) struct Objects(BTreeMap<(String, String), Stored>);

impl Objects {
    pub(super) fn all(&self, bucket: &str) -> Vec<(String, Bytes)> {
        let of_bucket = self.0.iter().filter(|((of, _), _)| of == bucket);
        of_bucket.map(|((_, key), stored)| (key.clone(), stored.bytes.clone())).collect()
    }

    pub(super) fn store(&mut self, bucket: &str, key: &str, bytes: Bytes, modified: SystemTime) {
        self.0.insert((bucket.to_owned(), key.to_owned()), Stored { bytes, modified });
    }

    /// Up to `count` objects after `after` whose keys start with `prefix`, in order.
    fn page(&self, bucket: &str, prefix: &str, after: &str, count: usize) -> Vec<(&str, &Stored)> {
        let start = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        let owned = |text: &str| (bucket.to_owned(), text.to_owned());
        let range = self.0.range((start.map(owned), Bound::Unbounded));
        let matching = range.take_while(|((of, key), _)| of == bucket && key.starts_with(prefix));
        matching.take(count).map(|((_, key), stored)| (key.as_str(), stored)).collect()
    }
}

/// Does what an S3 request asks for.
pub(super) fn answer(shared: &Shared, seen: &Seen, body: Bytes) -> Reply {
    let path = percent_decode(&seen.raw_path);
    let path = path.strip_prefix('/').unwrap_or(&path);
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    if !shared.settings.buckets.iter().any(|have| have == bucket) {
        return error(404, "NoSuchBucket", &format!("<BucketName>{}</BucketName>", escape(bucket)));
    }
    let mut state = shared.state();
    let now = (shared.settings.clock)();
    let call = Call { bucket, key, seen, shared };
    match (&seen.method, key) {
        (&Method::GET, "") => call.list(&state),
        (&Method::POST, "") if shared.settings.google || shared.settings.no_batch_delete => {
            error(501, "NotImplemented", "")
        }
        (&Method::POST, "") if seen.query.contains("delete") => call.delete(&mut state, &body),
        (&Method::PUT, key) if !key.is_empty() => call.put(&mut state, body, now),
        (&Method::GET | &Method::HEAD, _) => call.get(&state),
        (&Method::DELETE, key)
            if shared.settings.google
                && !state.objects.0.contains_key(&(bucket.to_owned(), key.to_owned())) =>
        {
            error(404, "NoSuchKey", "")
        }
        (&Method::DELETE, _) => {
            state.objects.0.remove(&(bucket.to_owned(), key.to_owned()));
            text(204, "")
        }
        _ => error(501, "NotImplemented", ""),
    }
}

struct Call<'a> {
    bucket: &'a str,
    key: &'a str,
    seen: &'a Seen,
    shared: &'a Shared,
}

impl Call<'_> {
    fn put(&self, state: &mut State, body: Bytes, now: SystemTime) -> Reply {
        let there = state.objects.0.contains_key(&(self.bucket.to_owned(), self.key.to_owned()));
        let condition = if self.shared.settings.google {
            self.seen.header("x-goog-if-generation-match") == Some("0")
        } else {
            self.seen.header("if-none-match") == Some("*")
        };
        if condition && there && !self.shared.settings.ignore_conditions {
            return error(412, "PreconditionFailed", "");
        }
        let tag = entity_tag(&body);
        state.objects.store(self.bucket, self.key, body, now);
        let mut reply = text(200, "");
        reply.headers_mut().insert("etag", tag);
        reply
    }

    fn get(&self, state: &State) -> Reply {
        let Some(stored) = state.objects.0.get(&(self.bucket.to_owned(), self.key.to_owned())) else {
            return error(404, "NoSuchKey", &format!("<Key>{}</Key>", escape(self.key)));
        };
        let mut reply = match self.seen.header("range") {
            None => bytes(200, stored.bytes.clone()),
            Some(range) => ranged(range, &stored.bytes),
        };
        let modified = HeaderValue::from_str(&http_date(stored.modified)).expect("a date is a header value");
        reply.headers_mut().insert("last-modified", modified);
        reply.headers_mut().insert("etag", entity_tag(&stored.bytes));
        reply
    }

    fn list(&self, state: &State) -> Reply {
        let value = |name| parameter(&self.seen.query, name).unwrap_or_default();
        let (prefix, token) = (value("prefix"), value("continuation-token"));
        let after = token.strip_prefix("after:").map_or_else(|| value("start-after"), str::to_owned);
        let count = self.shared.settings.page_keys;
        let mut page = state.objects.page(self.bucket, &prefix, &after, count + 1);
        let more = page.len() > count;
        page.truncate(count);
        let next = page
            .last()
            .filter(|_| more)
            .map(|(key, _)| format!("<NextContinuationToken>after:{}</NextContinuationToken>", escape(key)));
        let contents: String = page.iter().map(|(key, stored)| contents(key, stored)).collect();
        text(
            200,
            &format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult><Name>{}</Name>\
                 <IsTruncated>{more}</IsTruncated>{}{contents}</ListBucketResult>",
                self.bucket,
                next.unwrap_or_default()
            ),
        )
    }

    fn delete(&self, state: &mut State, body: &[u8]) -> Reply {
        if self.seen.header("content-md5").is_none() && self.seen.header("x-amz-checksum-crc32").is_none() {
            return error(400, "InvalidRequest", "");
        }
        let keys = elements(&String::from_utf8_lossy(body), "Key");
        if keys.len() > 1000 {
            return error(400, "MalformedXML", "");
        }
        let mut results = String::new();
        for key in keys {
            if self.shared.settings.undeletable.as_ref().is_some_and(|part| key.contains(part)) {
                let (key, code) = (escape(&key), "AccessDenied");
                results.push_str(&format!("<Error><Key>{key}</Key><Code>{code}</Code></Error>"));
                continue;
            }
            state.objects.0.remove(&(self.bucket.to_owned(), key.clone()));
            results.push_str(&format!("<Deleted><Key>{}</Key></Deleted>", escape(&key)));
        }
        text(
            200,
            &format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DeleteResult>{results}</DeleteResult>"),
        )
    }
}

/// Any text that differs where bodies do will do.
fn entity_tag(body: &Bytes) -> HeaderValue {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    HeaderValue::from_str(&format!("\"{:016x}\"", hasher.finish())).expect("digits are a header value")
}

fn contents(key: &str, stored: &Stored) -> String {
    let (key, modified, size) = (escape(key), iso(stored.modified), stored.bytes.len());
    format!("<Contents><Key>{key}</Key><LastModified>{modified}</LastModified><Size>{size}</Size></Contents>")
}

fn ranged(range: &str, whole: &Bytes) -> Reply {
    let bounds = range.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let bounds = bounds.and_then(|(first, last)| Some((first.parse().ok()?, last.parse::<usize>().ok()?)));
    let Some((first, last)) =
        bounds.filter(|(first, last): &(usize, usize)| first <= last && *first < whole.len())
    else {
        return error(416, "InvalidRange", "");
    };
    let last = last.min(whole.len() - 1);
    let mut reply = bytes(206, whole.slice(first..=last));
    let told = HeaderValue::from_str(&format!("bytes {first}-{last}/{}", whole.len()));
    reply.headers_mut().insert("content-range", told.expect("digits are a header value"));
    reply
}
