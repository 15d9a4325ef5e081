use everstep_format::card::{CalledAttempt, Occasion};
use everstep_format::id::ContentHash;
use everstep_format::name::{Ordinal, Step};
use everstep_format::outcome::Ending;
use everstep_store::MemoryStore;

use super::*;

const ATTEMPT: AttemptId = AttemptId([2; 16]);
const SAVE: SaveId = SaveId { session: SessionId([3; 16]), save: 7 };

fn run() -> RunName {
    RunName::new("gpt").unwrap()
}

fn card(save: SaveId) -> Card {
    let occasion = Occasion { save, run: run(), step: Step(5), world_size: 4 };
    Card::calling(occasion, CalledAttempt { id: ATTEMPT, ordinal: Ordinal(9), parents: vec![] })
}

fn part(n: u8, len: u64) -> PartRef {
    PartRef { blake3: ContentHash([n; 32]), len }
}

async fn put_part(store: &dyn Store, rank: u32, part: &PartRef) {
    let body = Bytes::from(vec![0; usize::try_from(part.len).unwrap()]);
    store.put(&Key::part(ATTEMPT, Rank(rank), part.blake3), body.into(), Class::Bulk).await.unwrap();
}

/// What every rendezvous must do; `hand_in` stores a part as a writer does before it reports.
async fn keeps_its_promises(meeting: &dyn Rendezvous, store: &dyn Store) {
    assert!(meeting.card(SAVE).await.unwrap().is_none());
    meeting.call(&card(SAVE)).await.unwrap();
    assert_eq!(meeting.card(SAVE).await.unwrap(), Some(card(SAVE)));
    assert!(meeting.card(SaveId { save: 8, ..SAVE }).await.unwrap().is_none());
    assert!(meeting.card(SaveId { session: SessionId([4; 16]), ..SAVE }).await.unwrap().is_none());

    assert!(meeting.reports(ATTEMPT, 1..4).await.unwrap().is_empty());
    for rank in [3, 1, 5] {
        let part = part(1, u64::from(rank));
        put_part(store, rank, &part).await;
        meeting.report(ATTEMPT, Rank(rank), &Report::Done(part, None)).await.unwrap();
    }
    let failed = Report::Failed("no space".to_owned());
    meeting.report(ATTEMPT, Rank(2), &failed).await.unwrap();
    let expected = [
        (Rank(1), Report::Done(part(1, 1), None)),
        (Rank(2), failed),
        (Rank(3), Report::Done(part(1, 3), None)),
    ];
    assert_eq!(meeting.reports(ATTEMPT, 1..4).await.unwrap(), BTreeMap::from(expected));
    assert!(meeting.reports(AttemptId([9; 16]), 1..4).await.unwrap().is_empty());

    assert!(meeting.outcome(SAVE).await.unwrap().is_none());
    let outcome = Outcome::committed(SAVE, ATTEMPT, Ordinal(9)).ended(Ending::Failed, "rank 2", &[Rank(2)]);
    meeting.conclude(&outcome).await.unwrap();
    assert_eq!(meeting.outcome(SAVE).await.unwrap(), Some(outcome));
}

#[tokio::test]
async fn both_kinds_of_rendezvous_pass_on_cards_reports_and_outcomes() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::private());
    keeps_its_promises(&StoreRendezvous::new(store.clone()), store.as_ref()).await;
    keeps_its_promises(&MemoryRendezvous::new(), store.as_ref()).await;
}

#[tokio::test]
async fn a_failure_beats_a_part_and_two_parts_of_one_rank_are_a_failure() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::private());
    let meeting = StoreRendezvous::new(store.clone());
    put_part(store.as_ref(), 1, &part(1, 10)).await;
    meeting.report(ATTEMPT, Rank(1), &Report::Failed("no answer".to_owned())).await.unwrap();
    put_part(store.as_ref(), 2, &part(1, 10)).await;
    put_part(store.as_ref(), 2, &part(2, 11)).await;
    let damaged = Bytes::from_static(b"{}");
    store.put(&Key::failed(ATTEMPT, Rank(3)), damaged.into(), Class::Control).await.unwrap();
    let reports = meeting.reports(ATTEMPT, 1..4).await.unwrap();
    let why = |rank| match &reports[&Rank(rank)] {
        Report::Failed(why) => why.clone(),
        Report::Done(part, _) => panic!("rank {rank} handed in {part:?}"),
    };
    assert_eq!(why(1), "no answer");
    assert!(why(2).contains("two processes"), "{}", why(2));
    assert!(why(3).contains("cannot be read"), "{}", why(3));
}

#[test]
fn looks_become_rarer_but_never_stop() {
    let meeting = StoreRendezvous::new(Arc::new(MemoryStore::private()));
    let pauses: Vec<u64> = [1, 2, 3, 4, 5, 6, u32::MAX].map(|looks| meeting.pause(looks).as_secs()).to_vec();
    assert_eq!(pauses, [1, 2, 4, 8, 10, 10, 10]);
    assert!(MemoryRendezvous::new().pause(u32::MAX) <= Duration::from_millis(100));
}

#[tokio::test]
async fn a_board_in_memory_does_not_grow_for_ever() {
    let meeting = MemoryRendezvous::new();
    for save in 0..1000 {
        let save = SaveId { save, ..SAVE };
        meeting.call(&card(save)).await.unwrap();
        meeting.conclude(&Outcome::committed(save, ATTEMPT, Ordinal(9))).await.unwrap();
    }
    let board = meeting.board();
    assert!(board.cards.len() <= 65 && board.outcomes.len() <= 65 && board.reports.is_empty());
}

#[test]
fn a_ticket_has_one_spelling() {
    let ticket = Ticket { run: run(), next: SAVE };
    let text = format!("gpt:{}:7", "03".repeat(16));
    assert_eq!(ticket.to_string(), text);
    assert_eq!(text.parse::<Ticket>().unwrap(), ticket);
    for bad in ["", "gpt", "gpt:7", &format!("{text}:1"), &format!(" {text}"), &text.replace(":7", ":-7")] {
        assert!(bad.parse::<Ticket>().is_err(), "{bad:?}");
    }
}
