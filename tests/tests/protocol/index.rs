//! Indexes along the chain of trust: decision, footer, row group.

use std::sync::Arc;

use bytes::Bytes;
use everstep_format::bounds::Bounds;
use everstep_format::codec::Codec;
use everstep_format::dtype::Dtype;
use everstep_format::id::{AttemptId, ChunkId, ContentHash, PackId};
use everstep_format::index;
use everstep_format::invariant::rows_are_sound;
use everstep_format::key::{Key, PackAddress};
use everstep_format::limits;
use everstep_format::name::{Rank, Step};
use everstep_format::refs::Refs;
use everstep_format::row::{ElementType, Kind, Location, Piece, Row};
use everstep_repo::{Checkpoint, CommitOutcome, Draft, IndexReader, Parents, RepoError, Repository};
use everstep_restore::{CheckpointReader, RestoreError, Settings, Tools};
use everstep_store::{Class, Counts, MemoryStore, Meter, Store};

use crate::stage::{Stage, now, run, save, upload};

fn name(number: u64) -> String {
    format!("layer.{number:06}.weight")
}

/// One piece of 64 bytes with a chunk of its own; 100 of them share a pack.
fn row(attempt: AttemptId, number: u64) -> Row {
    let chunk = ChunkId::of(&number.to_le_bytes());
    let pack = PackId(ContentHash::of(&(number / 100).to_le_bytes()).0);
    Row {
        name: name(number).into(),
        kind: Kind::Tensor,
        element: ElementType::Dtype(Dtype::F32),
        shape: vec![16].into(),
        bounds: Bounds::whole(&[16]),
        alias_of: None,
        rank: None,
        piece: Some(Piece {
            chunk,
            chunk_offset: 0,
            raw_len: 64,
            location: Location {
                pack: PackAddress { attempt, rank: Rank(0), pack },
                pack_len: 1 << 20,
                pack_offset: 4096 + (number % 100) * 64,
                stored_len: 64,
                codec: Codec::Raw,
            },
        }),
    }
}

/// A committed checkpoint with a real index of `rows` rows, and a newer one above it.
async fn indexed(stage: &Stage, rows: u64) -> (Checkpoint, Vec<Row>) {
    let mut session = stage.session(now("a")).await;
    let attempt = session.begin(Step(1), 1, Parents::Latest).await.unwrap();
    let rows: Vec<Row> = (0..rows).map(|number| row(attempt.id, number)).collect();
    let encoded = index::write(rows_are_sound(&rows).unwrap()).unwrap();
    let refs = Refs::of(&rows);
    let (refs_bytes, refs_reference) = refs.to_bytes().unwrap();
    stage.shelf.plant(Key::index(attempt.id, encoded.reference.blake3).as_str(), encoded.bytes);
    stage.shelf.plant(Key::refs(attempt.id, refs_reference.blake3).as_str(), refs_bytes);
    let draft = upload(&session, &attempt).await.unwrap();
    let draft = Draft { index: encoded.reference, refs: refs_reference, owners: refs.owners(), ..draft };
    let CommitOutcome::Committed(checkpoint) = session.commit(attempt, draft).await.unwrap() else {
        panic!("nothing stands in the way");
    };
    save(&mut session, 2).await.unwrap();
    stage.shelf.take_calls();
    (checkpoint, rows)
}

fn reader(stage: &Stage, checkpoint: &Checkpoint) -> IndexReader {
    IndexReader::new(stage.shelf.clone(), checkpoint.clone())
}

fn requests(stage: &Stage) -> usize {
    stage.shelf.take_calls().len()
}

#[tokio::test]
async fn a_small_index_is_one_request_for_any_number_of_names() {
    let stage = Stage::new().await;
    let (checkpoint, rows) = indexed(&stage, 40_000).await;
    assert!(checkpoint.manifest.index.len <= limits::INDEX_SMALL_BYTES);
    let reader = reader(&stage, &checkpoint);
    for number in [0, 16_383, 16_384, 39_999] {
        assert_eq!(reader.named(&name(number)).await.unwrap(), [row(checkpoint.manifest.attempt, number)]);
    }
    assert_eq!(reader.named("nothing").await.unwrap(), []);
    assert_eq!(reader.all().await.unwrap(), rows);
    assert_eq!(requests(&stage), 1);
    assert_eq!(stage.repository.refs(&checkpoint).await.unwrap(), Refs::of(&rows));
}

#[tokio::test]
async fn a_name_in_a_large_index_costs_the_footer_and_one_row_group() {
    let stage = Stage::new().await;
    let (checkpoint, rows) = indexed(&stage, 160_000).await;
    assert!(checkpoint.manifest.index.len > limits::INDEX_SMALL_BYTES);
    let reader = reader(&stage, &checkpoint);
    assert_eq!(reader.named(&name(70_000)).await.unwrap(), [row(checkpoint.manifest.attempt, 70_000)]);
    assert_eq!(requests(&stage), 2);
    assert_eq!(reader.clone().named(&name(3)).await.unwrap().len(), 1);
    assert_eq!(requests(&stage), 1, "the footer is known by now");
    assert_eq!(reader.named("zzz").await.unwrap(), []);
    assert_eq!(requests(&stage), 0);
    assert_eq!(reader.all().await.unwrap(), rows);
    assert_eq!(requests(&stage), rows.len().div_ceil(limits::INDEX_GROUP_ROWS));
}

/// The same objects in a store that counts.
async fn counted(stage: &Stage) -> (Repository, Arc<Counts>) {
    let memory = MemoryStore::private();
    for key in stage.shelf.keys("") {
        let key = Key::listed(&key).unwrap();
        memory.put(&key, stage.shelf.read(&key).unwrap().into(), Class::Bulk).await.unwrap();
    }
    let counts = Arc::new(Counts::default());
    let store = Arc::new(Meter::new(memory, counts.clone()));
    (Repository::open(store, stage.world.clone()).await.unwrap(), counts)
}

/// What a rank does first: it plans what it will read, here a whole tensor.
async fn plan(reader: &CheckpointReader) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let tools = Tools { pool: &pool, settings: &Settings::default(), progress: &() };
    let boxes = [(name(3), Bounds::whole(&[16]))];
    assert_eq!(reader.estimate(&boxes, &tools).await.unwrap().raw_bytes, 64);
    assert!(reader.entry(&name(7)).await.unwrap().is_some());
}

#[tokio::test]
async fn eight_ranks_of_a_node_read_the_index_once_when_one_hands_it_on() {
    for rows in [100, 160_000] {
        let stage = Stage::new().await;
        let (checkpoint, _) = indexed(&stage, rows).await;
        let len = checkpoint.manifest.index.len;
        let (repository, counts) = counted(&stage).await;
        let rank = || CheckpointReader::new(&repository, checkpoint.clone());
        let before = counts.snapshot();
        for _ in 0..2 {
            plan(&rank()).await;
        }
        assert_eq!(counts.snapshot().since(&before).bytes_read, 2 * len, "each by itself");

        let before = counts.snapshot();
        let first = rank();
        let file = first.index_file().await.unwrap();
        plan(&first).await;
        for _ in 1..8 {
            plan(&rank().with_index_file(file.clone()).unwrap()).await;
        }
        let spent = counts.snapshot().since(&before);
        assert_eq!((spent.bytes_read, spent.gets), (len, len.div_ceil(limits::INDEX_SMALL_BYTES)));
        assert_eq!(first.index_file().await.unwrap(), file);
        assert_eq!(counts.snapshot().since(&before), spent, "it is kept");
    }
}

#[tokio::test]
async fn an_index_file_that_is_not_the_checkpoints_own_is_refused() {
    let (stage, other) = (Stage::new().await, Stage::new().await);
    let (checkpoint, _) = indexed(&stage, 100).await;
    let (another, _) = indexed(&other, 99).await;
    let file = reader(&stage, &checkpoint).file().await.unwrap();
    let of_another = reader(&other, &another).file().await.unwrap();
    requests(&stage);
    let reader = CheckpointReader::new(&stage.repository, checkpoint.clone());
    let longer = [&file[..], b"!"].concat();
    for wrong in damages(&file).into_iter().chain([of_another.to_vec(), longer]) {
        let found = ContentHash::of(&wrong).to_string();
        let error = reader.with_index_file(wrong.into()).unwrap_err();
        assert!(matches!(&error, RestoreError::Repo(RepoError::Invalid(_))), "{error}");
        let expected = checkpoint.manifest.index.blake3.to_string();
        assert!(error.to_string().contains(&found) && error.to_string().contains(&expected), "{error}");
    }
    assert!(reader.with_index_file(file).is_ok());
    assert_eq!(requests(&stage), 0);
}

#[tokio::test]
async fn c06_a_damaged_index_is_not_handed_on() {
    for rows in [100, 160_000] {
        let stage = Stage::new().await;
        let (checkpoint, _) = indexed(&stage, rows).await;
        let key = checkpoint.index_key();
        let sound = stage.shelf.read(&key).unwrap();
        for damaged in damages(&sound) {
            stage.shelf.plant(key.as_str(), damaged);
            let error = reader(&stage, &checkpoint).file().await.unwrap_err();
            assert!(matches!(&error, RepoError::Object { key: found, .. } if *found == key), "{error}");
        }
    }
}

#[tokio::test]
async fn c06_a_damaged_index_or_refs_is_named_and_gives_no_row() {
    for rows in [100, 160_000] {
        let stage = Stage::new().await;
        let (checkpoint, _) = indexed(&stage, rows).await;
        for key in [checkpoint.index_key(), checkpoint.refs_key()] {
            let sound = stage.shelf.read(&key).unwrap();
            for damaged in damages(&sound) {
                stage.shelf.plant(key.as_str(), damaged);
                let reader = reader(&stage, &checkpoint);
                let outcome = match key == checkpoint.index_key() {
                    true => reader.all().await.map(drop),
                    false => stage.repository.refs(&checkpoint).await.map(drop),
                };
                let error = outcome.unwrap_err();
                assert!(matches!(&error, RepoError::Object { key: found, .. } if *found == key), "{error}");
            }
            stage.shelf.plant(key.as_str(), sound);
        }
    }
}

/// First, middle and last byte flipped; cut to half; cut to nothing.
fn damages(sound: &Bytes) -> Vec<Vec<u8>> {
    let flipped = [0, sound.len() / 2, sound.len() - 1].map(|at| {
        let mut bytes = sound.to_vec();
        bytes[at] ^= 0x10;
        bytes
    });
    flipped.into_iter().chain([sound[..sound.len() / 2].to_vec(), Vec::new()]).collect()
}

#[tokio::test]
async fn an_index_that_is_gone_means_damage_unless_the_checkpoint_expired() {
    let stage = Stage::new().await;
    let (checkpoint, _) = indexed(&stage, 10).await;
    let key = checkpoint.index_key();
    stage.shelf.steal(&key);
    let error = reader(&stage, &checkpoint).all().await.unwrap_err();
    assert!(matches!(&error, RepoError::Missing { key: found, .. } if *found == key), "{error}");
    let repository = Arc::new(stage.reopen().await);
    repository.expire(&run(), checkpoint.manifest.ordinal, "test").await.unwrap();
    let error = reader(&stage, &checkpoint).named(&name(0)).await.unwrap_err();
    assert!(matches!(error, RepoError::Expired { .. }), "{error}");
}
