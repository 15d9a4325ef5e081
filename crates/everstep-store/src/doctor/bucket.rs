//! What only S3 can say of itself.

use super::{Check, Health};
use crate::s3::S3Store;
use crate::{StoreError, StoreErrorKind};

/// Looks at credentials, endpoint and the bucket's own rules.
pub(super) async fn examine(store: &S3Store, checks: &mut Vec<Check>) {
    checks.push(credentials(store).await);
    checks.push(Check::new("endpoint", Health::Sound, store.addressing()));
    checks.push(match store.harmful_rules().await {
        Ok(rules) if rules.is_empty() => {
            Check::new("lifecycle", Health::Sound, "no rule deletes or freezes objects of the repository")
        }
        Ok(rules) => Check::new("lifecycle", Health::Warning, rules.join("; ")).advise(
            "take the repository's prefix out of these rules: they destroy checkpoints that are in use",
        ),
        Err(error) => unknown("lifecycle", &error),
    });
    examine_deletion(store, checks).await;
}

/// Looks at what stands between deleting and freeing space.
pub(super) async fn examine_deletion(store: &S3Store, checks: &mut Vec<Check>) {
    checks.push(match store.is_versioned().await {
        Ok(false) => Check::new("versions", Health::Sound, "the bucket keeps no old versions"),
        Ok(true) => {
            Check::new("versions", Health::Warning, "the bucket keeps deleted objects as old versions")
                .advise("deleting frees no space until a rule expires noncurrent versions")
        }
        Err(error) => unknown("versions", &error),
    });
    checks.push(match store.is_locked().await {
        Ok(false) => Check::new("lock", Health::Sound, "new objects are not locked"),
        Ok(true) => {
            Check::new("lock", Health::Warning, "new objects are locked against deletion for a while")
                .advise("what expires meanwhile cannot be deleted before its lock ends")
        }
        Err(error) => unknown("lock", &error),
    });
}

async fn credentials(store: &S3Store) -> Check {
    let Some(origin) = store.origin().await else {
        return Check::new("credentials", Health::Unknown, "none at hand");
    };
    let before = match origin.before.is_empty() {
        true => String::new(),
        false => format!(", after {}", origin.before.join("; ")),
    };
    Check::new("credentials", Health::Sound, format!("from {}{before}", origin.source))
}

/// Many stores do not answer these questions, and few trainers may ask them.
fn unknown(name: &'static str, error: &StoreError) -> Check {
    let why = match error.kind {
        StoreErrorKind::Denied => "these credentials may not ask",
        StoreErrorKind::Invalid | StoreErrorKind::NotFound => "the store cannot be asked",
        _ => "no answer",
    };
    Check::new(name, Health::Unknown, format!("{why}: {}", error.detail))
}
