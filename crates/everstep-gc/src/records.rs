//! What sessions leave behind that no checkpoint needs: signs of life, the cards by which ranks find each other, outcomes.
//! Nothing that is safe depends on these: they are advisory, and age is judged by the store's clock. A session refreshes its
//! sign of life while it lives, and nobody waits for a card for so long.

use everstep_format::key::{Prefix, StoredKind};
use everstep_store::Listed;

use crate::GcError;
use crate::report::Collected;
use crate::sweep::{Kind, Sweep};

/// Removes what is old of this shard.
pub(crate) async fn forget(sweep: &Sweep<'_>) -> Result<Collected, GcError> {
    let mut done = Collected::default();
    for prefix in [Prefix::sessions(), Prefix::cards()] {
        let mut token = None;
        loop {
            let page = sweep.repository.store().list(&prefix, token).await?;
            let old: Vec<&Listed> = page.objects.iter().filter(|object| is_old(sweep, object)).collect();
            sweep.remove(Kind::Records, &old, &mut done).await;
            match page.next {
                None => break,
                next => token = next,
            }
        }
    }
    Ok(done)
}

fn is_old(sweep: &Sweep<'_>, object: &Listed) -> bool {
    let session = match object.key.kind() {
        Some(
            StoredKind::Session(session) | StoredKind::Card(session, _) | StoredKind::Outcome(session, _),
        ) => session,
        _ => return false,
    };
    sweep.settings.shard.has_session(session)
        && sweep.signs.age(object.modified) >= sweep.settings.forget_after
}
