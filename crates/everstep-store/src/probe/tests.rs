use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::*;
use crate::testing::StillWorld;
use crate::{Class, Deleted, MemoryStore, Object, Page, Payload, StoreErrorKind};

/// Ways in which stores break, or only lose replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    Honest,
    /// Ignores the condition: always stores, always says so.
    IgnoresCondition,
    /// Looks first and stores later, with time for others in between.
    LooksThenStores,
    /// Tells the loser the truth, but stores its bytes all the same.
    StoresLosersToo,
    /// Refuses a late create of a race, but not one that comes after it.
    ForgetsLater,
    /// Listings lag behind.
    ListsNothing,
    /// The reply to every nth create is lost.
    LosesEvery(usize),
    /// Says `Exists` to everyone, as after a retry whose first reply was lost.
    NobodyWins,
}

#[derive(Debug)]
struct Double {
    inner: MemoryStore,
    habit: Habit,
    creates: AtomicUsize,
}

#[async_trait]
impl Store for Double {
    fn describe(&self) -> String {
        "double".to_owned()
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        self.inner.get(key, span).await
    }

    async fn put(&self, key: &Key, body: Payload, class: Class) -> Result<(), StoreError> {
        self.inner.put(key, body, class).await
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        let number = self.creates.fetch_add(1, Ordering::Relaxed);
        match self.habit {
            Habit::IgnoresCondition => {
                self.put(key, body, Class::Control).await?;
                Ok(Create::Created)
            }
            Habit::LooksThenStores => {
                if self.get(key, Span::Whole).await.is_ok() {
                    return Ok(Create::Exists);
                }
                tokio::task::yield_now().await;
                self.put(key, body, Class::Control).await?;
                Ok(Create::Created)
            }
            Habit::StoresLosersToo => match self.inner.create(key, body.clone()).await? {
                Create::Exists => self.put(key, body, Class::Control).await.map(|()| Create::Exists),
                won => Ok(won),
            },
            Habit::ForgetsLater if number % 41 == 40 => {
                self.put(key, body, Class::Control).await.map(|()| Create::Created)
            }
            Habit::LosesEvery(nth) if number.is_multiple_of(nth) => {
                self.inner.create(key, body).await?;
                let lost = StoreError::new(StoreErrorKind::Unreachable, "create", key, "reply lost");
                Ok(Create::Unknown(lost))
            }
            Habit::NobodyWins => self.inner.create(key, body).await.map(|_| Create::Exists),
            _ => self.inner.create(key, body).await,
        }
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        match self.habit {
            Habit::ListsNothing => Ok(Page::default()),
            _ => self.inner.list(prefix, token).await,
        }
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        self.inner.delete(keys).await
    }

    async fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

async fn report_of(habit: Habit) -> ProbeReport {
    let inner = MemoryStore::private();
    let double = Double { inner: inner.clone(), habit, creates: AtomicUsize::new(0) };
    let report = probe(&double, &StillWorld::new(5), ProbeSettings::default()).await.unwrap();
    let left = list_all(&inner, &Prefix::everything()).await.unwrap();
    assert!(left.is_empty(), "the probe cleans up after itself, left {left:?}");
    report
}

async fn why_not_atomic(habit: Habit) -> String {
    match report_of(habit).await.verdict {
        Verdict::NotAtomic { why } => why,
        other => panic!("{habit:?} was judged {other:?}"),
    }
}

#[tokio::test]
async fn an_honest_store_has_one_winner_in_each_of_four_rounds() {
    let report = report_of(Habit::Honest).await;
    assert_eq!(report.verdict, Verdict::Atomic);
    assert_eq!(report.rounds, vec![Round { winners: 1, losers: 39, unknown: 0, broken: None }; 4]);
}

#[tokio::test]
async fn a_store_that_ignores_the_condition_is_found_out() {
    assert!(why_not_atomic(Habit::IgnoresCondition).await.contains("40 of 40 writers"));
}

#[tokio::test]
async fn a_store_that_looks_first_and_stores_later_is_found_out_by_the_race_alone() {
    assert!(why_not_atomic(Habit::LooksThenStores).await.contains("told that they won"));
}

#[tokio::test]
async fn a_store_that_keeps_a_losers_bytes_is_found_out() {
    assert!(why_not_atomic(Habit::StoresLosersToo).await.contains("winner's bytes"));
}

#[tokio::test]
async fn a_store_that_accepts_a_later_create_is_found_out() {
    assert!(why_not_atomic(Habit::ForgetsLater).await.contains("second time"));
}

#[tokio::test]
async fn a_store_whose_listing_lags_is_found_out() {
    assert!(why_not_atomic(Habit::ListsNothing).await.contains("listing"));
}

#[tokio::test]
async fn lost_replies_prove_nothing_either_way() {
    // The first contender of a round wins; every 41st create is the first of its round while the winner is unknown.
    assert!(matches!(report_of(Habit::LosesEvery(1)).await.verdict, Verdict::Unproven { .. }));
    assert!(matches!(report_of(Habit::NobodyWins).await.verdict, Verdict::Unproven { .. }));
}

#[tokio::test]
async fn a_few_lost_replies_cost_more_rounds_but_no_verdict() {
    let report = report_of(Habit::LosesEvery(60)).await;
    assert_eq!(report.verdict, Verdict::Atomic);
    assert!(report.rounds.iter().any(|round| round.unknown > 0));
}

#[tokio::test]
async fn no_two_contenders_send_the_same_bytes() {
    let seen = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let world = StillWorld::new(1);
    let store = MemoryStore::private();
    let settings = ProbeSettings { body_bytes: 100, ..ProbeSettings::default() };
    let (id, begun) = (SessionId([0; 16]), AtomicU32::new(0));
    let probe = Probe { store: &store, world: &world, settings, id, begun };
    for who in 0..100 {
        assert!(seen.lock().unwrap().insert(probe.body(who)));
    }
}
