//! A diagnosis of a place where a repository is, or is to be.

use std::time::Duration;

use everstep_format::feature::Operation;
use everstep_repo::Repository as Inner;
pub use everstep_store::doctor::{Check, Health, Seen, Side};

use crate::repository::Engine;
use crate::{Error, Options};

/// Looks at the store of `address` and at the repository in it, if there is one. Nothing is changed but keys below
/// `probe/`. What is wrong is in the checks.
///
/// # Errors
/// `InvalidArgument` for an address or setting that cannot work at all.
pub fn diagnose(address: &str, options: &Options) -> Result<Vec<Check>, Error> {
    let engine = Engine::new(options)?;
    let world = Engine::world();
    engine.wait(async {
        let examination = everstep_store::doctor::examine(address, &options.store, world.clone()).await?;
        let mut checks = examination.checks;
        if let Some(store) = examination.store {
            checks.push(repository(Inner::open(store, world).await));
        }
        Ok::<_, Error>(checks)
    })
}

/// What stands between deleting objects at `address` and freeing space: old versions that the bucket keeps, locks.
///
/// # Errors
/// `InvalidArgument`, `Unreachable`, `PermissionDenied`.
pub fn diagnose_deletion(address: &str, options: &Options) -> Result<Vec<Check>, Error> {
    let engine = Engine::new(options)?;
    let examined = everstep_store::doctor::examine_deletion(address, &options.store, Engine::world());
    engine.wait(examined)
}

/// Meets another process, perhaps of another host, at the store of `address` under `name`: each side creates keys that the
/// other must see in its listings at once. The listening side starts first; each waits for the other's next key at most
/// `patience`.
///
/// # Errors
/// `Unreachable` when the other side does not answer, `InvalidArgument` for a name that was used before.
pub fn meet(
    address: &str,
    options: &Options,
    as_whom: (&str, Side),
    patience: Duration,
) -> Result<Seen, Error> {
    let engine = Engine::new(options)?;
    let (store, world) = engine.open_store(address)?;
    let met = everstep_store::doctor::meet(&store, world.as_ref(), as_whom, patience);
    engine.wait(met)
}

fn repository(opened: Result<Inner, everstep_repo::RepoError>) -> Check {
    let name = "repository";
    let config = match &opened {
        Ok(repository) => repository.config(),
        Err(everstep_repo::RepoError::NotFound(_)) => {
            return Check::new(name, Health::Sound, "none here yet").advise("`ckpt-inspect init` makes one");
        }
        Err(error) if error.is_unsupported() => {
            return Check::new(name, Health::Refused, error.to_string()).advise("upgrade Everstep");
        }
        Err(everstep_repo::RepoError::Store(error)) => {
            return Check::new(name, Health::Failed, error.to_string());
        }
        Err(error) => {
            return Check::new(name, Health::Refused, error.to_string()).advise(
                "everstep.json is damaged: put back the copy of it that you keep, or that a replica has",
            );
        }
    };
    let found = format!("{}, format {}", config.id, config.version_name);
    match config.requires.check(Operation::Write) {
        Ok(()) => Check::new(name, Health::Sound, found),
        Err(error) => Check::new(name, Health::Warning, format!("{found}: {error}"))
            .advise("it can be read; to write to it, upgrade Everstep"),
    }
}
