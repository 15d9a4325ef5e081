//! `memory://name`: this process's memory, for tests and trials. Two openings of one name see the same objects.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use async_trait::async_trait;
use everstep_format::key::{Key, Prefix};
use futures::TryStreamExt as _;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore as _, ObjectStoreExt as _, PutMode, PutPayload};

use crate::address::Root;
use crate::{Class, Create, Deleted, Listed, Object, Page, Payload, Span, Store, StoreError, StoreErrorKind};

const PAGE: usize = 1000;

static BY_NAME: LazyLock<Mutex<HashMap<Root, Arc<InMemory>>>> = LazyLock::new(Mutex::default);

/// Objects in memory.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    name: Root,
    objects: Arc<InMemory>,
}

impl MemoryStore {
    /// The store that every opening of `name` in this process shares; it lives as long as the process.
    pub fn named(name: &Root) -> Self {
        let mut stores = BY_NAME.lock().unwrap_or_else(PoisonError::into_inner);
        Self { name: name.clone(), objects: stores.entry(name.clone()).or_default().clone() }
    }

    /// A store that nobody else can open.
    pub fn private() -> Self {
        Self { name: Root::parse("").expect("an empty root is one"), objects: Arc::default() }
    }

    fn put_payload(body: Payload) -> PutPayload {
        body.0.into_iter().collect()
    }
}

fn path(key: &Key) -> Path {
    Path::from(key.as_str())
}

fn failed(operation: &'static str, key: impl std::fmt::Display, error: &object_store::Error) -> StoreError {
    let kind = match error {
        object_store::Error::NotFound { .. } => StoreErrorKind::NotFound,
        _ => StoreErrorKind::Invalid,
    };
    StoreError::new(kind, operation, key, error.to_string())
}

#[async_trait]
impl Store for MemoryStore {
    fn describe(&self) -> String {
        format!("memory://{}", self.name.as_str())
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        let read = self.objects.get_opts(&path(key), GetOptions::default()).await;
        let whole = read.map_err(|e| failed("get", key, &e))?;
        let bytes = whole.bytes().await.map_err(|e| failed("get", key, &e))?;
        let range =
            span.within(bytes.len() as u64).map_err(|(kind, why)| StoreError::new(kind, "get", key, why))?;
        let position = |at: u64| usize::try_from(at).expect("a position within a buffer");
        Ok(Object { bytes: bytes.slice(position(range.start)..position(range.end)) })
    }

    async fn put(&self, key: &Key, body: Payload, _class: Class) -> Result<(), StoreError> {
        let put = self.objects.put(&path(key), Self::put_payload(body)).await;
        put.map(|_| ()).map_err(|e| failed("put", key, &e))
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        match self.objects.put_opts(&path(key), Self::put_payload(body), PutMode::Create.into()).await {
            Ok(_) => Ok(Create::Created),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(Create::Exists),
            Err(error) => Err(failed("create", key, &error)),
        }
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        let below = Path::from(prefix.as_str());
        let found = match token {
            None => self.objects.list(Some(&below)),
            Some(after) => self.objects.list_with_offset(Some(&below), &Path::from(after)),
        };
        let found: Vec<_> = found.try_collect().await.map_err(|e| failed("list", prefix, &e))?;
        let more = found.len() > PAGE;
        let mut page = Page::default();
        for meta in found.into_iter().take(PAGE) {
            let (size, modified) = (meta.size, meta.last_modified.into());
            match Key::listed(meta.location.as_ref()) {
                Some(key) => page.objects.push(Listed { key, size, modified }),
                None => page.strays.push(meta.location.to_string()),
            }
        }
        page.next = page.objects.last().filter(|_| more).map(|last| last.key.to_string());
        Ok(page)
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        let mut results = Vec::with_capacity(keys.len());
        for key in keys {
            let result = match self.objects.delete(&path(key)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(failed("delete", key, &error)),
            };
            results.push(Deleted { key: key.clone(), result });
        }
        Ok(results)
    }

    async fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
