//! Memory, pack sizes, order of progress, speed.

use std::sync::atomic::{AtomicU64, Ordering};

use everstep_format::dtype::Dtype;
use everstep_format::limits;
use everstep_save::Progress;

use crate::bench::{Bench, many, noise, tensors, whole};
use crate::read_back::{contents, rows};

const MIB: u64 = 1 << 20;

fn mixed(count: u64) -> (Vec<String>, Vec<Vec<u8>>) {
    let len = |n: u64| usize::try_from(200 + n % 9 * 20_000).unwrap();
    ((0..count).map(|n| format!("t{n:04}")).collect(), (0..count).map(|n| noise(n, len(n))).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_in_flight_keep_within_the_setting() {
    let mut bench = Bench::new().await;
    bench.settings.bytes_in_flight = 2 * MIB;
    bench.settings.pack_target = 100_000;
    let mut session = bench.session().await;
    let (names, data) = mixed(300);
    let report = bench.save(&mut session, &many(&names, &data)).await.unwrap();
    assert!(report.bytes_uploaded > 8 * MIB, "enough to go beyond the bound: {}", report.bytes_uploaded);
    let most = bench.spy.most_outstanding.load(Ordering::SeqCst);
    assert!(most <= 2 * MIB, "{most} bytes were under way");
    assert!(most > MIB / 4, "uploads overlap: {most}");
    let found = contents(&bench, &report.checkpoint).await;
    assert!(names.iter().zip(&data).all(|(name, bytes)| found[&(name.clone(), None)] == *bytes));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_that_is_too_small_for_one_chunk_is_raised_and_the_save_ends() {
    let mut bench = Bench::new().await;
    bench.settings.bytes_in_flight = 0;
    bench.settings.uploads = 0;
    let mut session = bench.session().await;
    let bytes = noise(1, usize::try_from(20 * MIB).unwrap());
    let shard = || whole("w", Dtype::U8, &[20 * MIB], &bytes);
    let report = bench.save(&mut session, &tensors(vec![shard()])).await.unwrap();
    assert_eq!(report.new_raw_bytes, 20 * MIB);
    assert!(bench.spy.most_outstanding.load(Ordering::SeqCst) <= 40 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn packs_end_at_their_target_and_never_pass_the_limit() {
    for target in [0, 300_000, u64::MAX] {
        let mut bench = Bench::with_blocks(6 * MIB).await;
        bench.settings.pack_target = target;
        let mut session = bench.session().await;
        let (mut names, mut data) = mixed(400);
        names.extend(["huge", "large"].map(str::to_owned));
        data.extend([
            noise(1, usize::try_from(21 * MIB).unwrap()),
            noise(2, usize::try_from(4 * MIB).unwrap()),
        ]);
        let report = bench.save(&mut session, &many(&names, &data)).await.unwrap();
        let packs = bench.spy.packs();
        assert_eq!(
            (report.packs, report.bytes_uploaded),
            (packs.len() as u64, packs.iter().map(|(_, len)| len).sum())
        );
        assert!(packs.iter().all(|(_, len)| *len <= limits::PACK_BYTES));
        if target == 300_000 {
            let small = packs.iter().filter(|(_, len)| *len < 500_000).count();
            assert_eq!(packs.len() - small, 5, "chunks of 4 MiB and more have packs of their own");
        }
        for row in rows(&bench, &report.checkpoint).await {
            let piece = row.piece.unwrap();
            let alone = piece.raw_len >= limits::OWN_PACK_BYTES;
            assert!(!alone || piece.location.pack_len < piece.raw_len + 256);
        }
    }
}

#[derive(Default)]
struct Heard {
    planned: AtomicU64,
    processed: AtomicU64,
    uploaded: AtomicU64,
}

impl Progress for Heard {
    fn planned(&self, raw_bytes: u64) {
        self.planned.fetch_add(raw_bytes, Ordering::SeqCst);
    }

    fn processed(&self, raw_bytes: u64) {
        self.processed.fetch_add(raw_bytes, Ordering::SeqCst);
    }

    fn uploaded(&self, bytes: u64) {
        self.uploaded.fetch_add(bytes, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_adds_up_to_the_report() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let (names, mut data) = mixed(100);
    for _ in 0..2 {
        let heard = Heard::default();
        let report = bench.save_telling(&mut session, &many(&names, &data), &heard).await.unwrap();
        assert_eq!(heard.planned.into_inner(), report.raw_bytes);
        assert_eq!(heard.processed.into_inner(), report.raw_bytes);
        assert_eq!(heard.uploaded.into_inner(), report.bytes_uploaded);
        data[50] = noise(7, data[50].len());
    }
}

#[test]
fn a_save_works_on_a_runtime_of_one_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let bench = Bench::new().await;
        let mut session = bench.session().await;
        let (names, data) = mixed(50);
        let report = bench.save(&mut session, &many(&names, &data)).await.unwrap();
        assert_eq!(contents(&bench, &report.checkpoint).await.len(), 50);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn without_compression_chunks_are_stored_as_they_are() {
    let mut bench = Bench::new().await;
    bench.settings.compress = false;
    let mut session = bench.session().await;
    let zeros = vec![0; 100_000];
    let shard = whole("w", Dtype::F32, &[25_000], &zeros);
    let report = bench.save(&mut session, &tensors(vec![shard])).await.unwrap();
    assert!(report.bytes_uploaded >= 100_000);
    assert_eq!(contents(&bench, &report.checkpoint).await[&("w".to_owned(), None)], zeros);
}
