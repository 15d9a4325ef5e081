//! What is known is referenced, and only that.

use std::collections::BTreeSet;

use everstep_format::dtype::Dtype;
use everstep_format::id::ChunkId;
use everstep_save::{SaveCache, Shard};

use crate::bench::{Bench, bounds, many, noise, tensors, whole};
use crate::read_back::{contents, rows, tensor};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("model.layer.{n:05}.weight")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn saving_an_unchanged_state_again_uploads_nothing() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let names = names(300);
    let data: Vec<Vec<u8>> = (0..300).map(|n| noise(n, 40 * usize::try_from(n).unwrap() + 1)).collect();
    let first = bench.save(&mut session, &many(&names, &data)).await.unwrap();
    let packs = bench.spy.packs().len();
    let again = bench.save(&mut session, &many(&names, &data)).await.unwrap();
    assert_eq!((again.chunks_uploaded, again.bytes_uploaded, again.packs), (0, 0, 0));
    assert_eq!(again.chunks_reused, first.chunks_uploaded);
    assert_eq!(bench.spy.packs().len(), packs);
    assert_eq!(contents(&bench, &again.checkpoint).await, contents(&bench, &first.checkpoint).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_process_reads_the_index_and_uploads_nothing() {
    let mut bench = Bench::new().await;
    let mut session = bench.session().await;
    let (names, data) = (names(50), (0..50).map(|n| noise(n, 3000)).collect::<Vec<_>>());
    bench.save(&mut session, &many(&names, &data)).await.unwrap();
    session.close().await.unwrap();
    bench.cache = SaveCache::default();
    let mut session = bench.session().await;
    let again = bench.save(&mut session, &many(&names, &data)).await.unwrap();
    assert_eq!((again.chunks_uploaded, again.chunks_reused), (0, 50));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_save_do_not_grow_with_its_known_chunks() {
    let mut requests = BTreeSet::new();
    for count in [10, 3000] {
        let bench = Bench::new().await;
        let mut session = bench.session().await;
        let (names, data) = (names(count), (0..count as u64).map(|n| noise(n, 700)).collect::<Vec<_>>());
        bench.save(&mut session, &many(&names, &data)).await.unwrap();
        let before = bench.requests();
        let report = bench.save(&mut session, &many(&names, &data)).await.unwrap();
        assert_eq!((report.chunks_uploaded, report.chunks_reused), (0, count as u64));
        requests.insert(bench.requests() - before);
    }
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert!(requests.first().is_some_and(|count| *count <= 8), "{requests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_small_tensors_only_the_changed_ones_are_stored() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let names = names(20_000);
    let mut data: Vec<Vec<u8>> =
        (0..20_000_u64).map(|n| noise(n, 600 + usize::try_from(n % 5).unwrap() * 600)).collect();
    let first = bench.save(&mut session, &many(&names, &data)).await.unwrap();
    let mut changed = 0;
    for n in (0..20_000_usize).step_by(20) {
        data[n] = noise(n as u64 + 1_000_000, data[n].len());
        changed += data[n].len() as u64;
    }
    let second = bench.save(&mut session, &many(&names, &data)).await.unwrap();
    assert_eq!((second.chunks_uploaded, second.chunks_reused), (1000, 19_000));
    assert!(second.bytes_uploaded < changed + 1000 * 128 + 4096, "{} for {changed}", second.bytes_uploaded);
    assert!(second.bytes_uploaded * 100 < first.bytes_uploaded * 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_sharding_on_the_grid_makes_no_new_chunk() {
    let bench = Bench::with_blocks(400).await;
    let mut session = bench.session().await;
    let bytes = noise(1, 640 * 40);
    bench.save(&mut session, &tensors(vec![whole("w", Dtype::F32, &[640, 10], &bytes)])).await.unwrap();
    // Blocks are 40 rows; so are the edges of these shards.
    let shard = |first: u64, rows: u64| {
        let at = |row: u64| usize::try_from(row * 40).unwrap();
        let bytes = &bytes[at(first)..at(first + rows)];
        Shard { bounds: bounds(&[first, 0], &[rows, 10]), ..whole("w", Dtype::F32, &[640, 10], bytes) }
    };
    let state = tensors(vec![shard(480, 160), shard(0, 120), shard(120, 360)]);
    let report = bench.save(&mut session, &state).await.unwrap();
    assert_eq!((report.chunks_uploaded, report.chunks_reused), (0, 16));
    // An edge inside a block cuts that block and no other.
    let state = tensors(vec![shard(0, 140), shard(140, 500)]);
    let report = bench.save(&mut session, &state).await.unwrap();
    assert_eq!((report.chunks_uploaded, report.chunks_reused), (2, 15));
    assert_eq!(tensor(&bench, &report.checkpoint, "w").await, bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_one_row_stores_one_block() {
    let bench = Bench::with_blocks(1000).await;
    let mut session = bench.session().await;
    let mut bytes = noise(1, 400 * 100 * 4);
    bench.save(&mut session, &tensors(vec![whole("w", Dtype::F32, &[400, 100], &bytes)])).await.unwrap();
    bytes[123 * 400] ^= 1;
    let report =
        bench.save(&mut session, &tensors(vec![whole("w", Dtype::F32, &[400, 100], &bytes)])).await.unwrap();
    assert_eq!((report.chunks_uploaded, report.new_raw_bytes), (1, 4000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_name_among_scalars_leaves_most_shared_chunks_as_they_are() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let names = names(30_000);
    let values: Vec<Vec<u8>> = (0..30_000_u64).map(|n| n.to_le_bytes().to_vec()).collect();
    let first = bench.save(&mut session, &many(&names, &values)).await.unwrap();
    assert!(first.chunks_uploaded < 100, "{} chunks for 30,000 scalars", first.chunks_uploaded);
    let mut state = many(&names, &values);
    state.shards.push(whole("model.layer.00500.bias", Dtype::U8, &[8], b"inserted"));
    let second = bench.save(&mut session, &state).await.unwrap();
    assert!(second.chunks_uploaded < 10, "{} of {}", second.chunks_uploaded, first.chunks_uploaded);
    assert_eq!(tensor(&bench, &second.checkpoint, "model.layer.00500.bias").await, b"inserted");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_sparse_pack_is_stored_again() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let names = names(100);
    let mut data: Vec<Vec<u8>> = (0..100).map(|n| noise(n, 5000)).collect();
    bench.save(&mut session, &many(&names, &data)).await.unwrap();
    for (n, bytes) in data.iter_mut().enumerate().skip(30) {
        *bytes = noise(1000 + n as u64, 5000);
    }
    // The first pack is still whole among the parents: the 30 unchanged ones are referenced.
    let second = bench.save(&mut session, &many(&names, &data)).await.unwrap();
    assert_eq!((second.chunks_uploaded, second.chunks_reused), (70, 30));
    // Now the parent uses 30 % of it.
    let third = bench.save(&mut session, &many(&names, &data)).await.unwrap();
    assert_eq!((third.chunks_uploaded, third.chunks_reused), (30, 70));
    let fourth = bench.save(&mut session, &many(&names, &data)).await.unwrap();
    assert_eq!((fourth.chunks_uploaded, fourth.chunks_reused), (0, 100));
    assert_eq!(contents(&bench, &fourth.checkpoint).await.len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_runs_of_one_repository_do_not_share_unless_they_name_each_other() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let bytes = noise(9, 10_000);
    let state = tensors(vec![whole("w", Dtype::U8, &[10_000], &bytes)]);
    let first = bench.save(&mut session, &state).await.unwrap();
    let run = everstep_format::name::RunName::new("other").unwrap();
    let mut other = bench.repository.open_session(&run, everstep_repo::OpenOptions::default()).await.unwrap();
    let alone = bench.save(&mut other, &state).await.unwrap();
    assert_eq!(alone.chunks_uploaded, 1, "a chunk is only known from a parent");
    let engine = everstep_save::Engine::new(1).unwrap();
    let tools = everstep_save::Tools {
        pool: engine.pool(),
        settings: &bench.settings,
        progress: &(),
        cache: &bench.cache,
    };
    let run = everstep_format::name::RunName::new("fine-tune").unwrap();
    let mut third = bench.repository.open_session(&run, everstep_repo::OpenOptions::default()).await.unwrap();
    let options = everstep_save::SaveOptions {
        parents: everstep_repo::Parents::These(vec![first.checkpoint]),
        ..everstep_save::SaveOptions::at(1)
    };
    let tuned = everstep_save::save(&mut third, &state, options, &tools).await.unwrap();
    assert_eq!((tuned.chunks_uploaded, tuned.chunks_reused), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_names_chunks_by_their_raw_bytes() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let bytes = vec![7; 100_000];
    let report =
        bench.save(&mut session, &tensors(vec![whole("w", Dtype::U8, &[100_000], &bytes)])).await.unwrap();
    let rows = rows(&bench, &report.checkpoint).await;
    assert_eq!(rows[0].piece.as_ref().unwrap().chunk, ChunkId::of(&bytes));
    assert!(report.bytes_uploaded < 1000, "constant bytes take next to nothing");
}
