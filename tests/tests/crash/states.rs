//! Two versions of one state, and what must be true of a repository that was to go from the first to the second.

use everstep_check::{CheckOptions, check};
use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;
use everstep_format::name::{Ordinal, RunName, Step};
use everstep_format::value::Value;
use everstep_repo::{
    AttemptState, Checkpoint, OpenOptions, Parents, RepoError, Repository, Session, Takeover,
};
use everstep_restore::{CheckpointReader, RestoreError, RestoreOptions, Target};
use everstep_save::{
    Content, Group, ObjectEntry, Owner, Replicas, SaveCache, SaveError, SaveOptions, Shard, Source, State,
};
use rayon::ThreadPool;

const TENSORS: u64 = 30;
const SHAPE: [u64; 2] = [64, 16];
const BYTES: usize = 64 * 16 * 4;
/// About one changed tensor to a pack.
const PACK_TARGET: u64 = 4 << 10;

/// The version before the crash.
pub(crate) const OLD: u64 = 10;
/// The version being saved when it happens.
pub(crate) const NEW: u64 = 20;
/// The version saved afterwards.
pub(crate) const NEXT: u64 = 30;

pub(crate) fn run() -> RunName {
    RunName::new("pretrain").expect("a run name")
}

/// Tensor `i` at `version`: every third one changes from version to version.
fn tensor(i: u64, version: u64) -> Vec<u8> {
    let seed = if i.is_multiple_of(3) { i * 1000 + version } else { i * 1000 };
    let mut bytes = vec![0; BYTES];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn name(i: u64) -> String {
    format!("layers.{i:02}.weight")
}

/// Opens the run, taking it over, saves `version`, closes.
pub(crate) async fn save(
    repository: &Repository,
    version: u64,
    pool: &ThreadPool,
) -> Result<Checkpoint, SaveError> {
    save_into(repository, (&run(), Parents::Latest, version), pool).await
}

/// As [`save`], into another run or against other parents.
pub(crate) async fn save_into(
    repository: &Repository,
    (run, parents, version): (&RunName, Parents, u64),
    pool: &ThreadPool,
) -> Result<Checkpoint, SaveError> {
    let mut session = open(repository, run).await?;
    let options = SaveOptions { parents, ..SaveOptions::at(version) };
    let bytes = tensors(version);
    let (settings, cache) = (settings(), SaveCache::default());
    let tools = tools(&settings, &cache, pool);
    let report = everstep_save::save(&mut session, &state(&bytes, version), options, &tools).await?;
    session.close().await?;
    Ok(report.checkpoint)
}

/// As [`save`], in two halves; the second only `if_told`. Without it the process vanishes.
pub(crate) async fn save_in_halves(
    repository: &Repository,
    (version, if_told): (u64, bool),
    pool: &ThreadPool,
) -> Result<Option<Checkpoint>, SaveError> {
    let mut session = open(repository, &run()).await?;
    let bytes = tensors(version);
    let (settings, cache) = (settings(), SaveCache::default());
    let tools = tools(&settings, &cache, pool);
    let options = SaveOptions::at(version);
    let half = everstep_save::hand_in(&mut session, &state(&bytes, version), options, &tools).await?;
    drop(bytes);
    if !if_told {
        return Ok(None);
    }
    let report = half.commit(&mut session, serde_json::Map::new(), (&Group::alone(), &tools)).await?;
    session.close().await?;
    Ok(Some(report.checkpoint))
}

async fn open(repository: &Repository, run: &RunName) -> Result<Session, RepoError> {
    let options = OpenOptions { takeover: Takeover::Now, ..OpenOptions::default() };
    repository.open_session(run, options).await
}

fn tensors(version: u64) -> Vec<Vec<u8>> {
    (0..TENSORS).map(|i| tensor(i, version)).collect()
}

fn state(bytes: &[Vec<u8>], version: u64) -> State<'_> {
    let shards = (0..TENSORS).zip(bytes).map(|(i, bytes)| Shard {
        name: name(i),
        dtype: Dtype::F32,
        shape: SHAPE.to_vec(),
        bounds: Bounds::whole(&SHAPE),
        alias_of: None,
        replicas: Replicas::None,
        source: Source::Memory(bytes),
    });
    let content = Content::Value(Value::Int(version.cast_signed()));
    let objects = vec![ObjectEntry { name: "step".to_owned(), owner: Owner::Job, content }];
    State { shards: shards.collect(), objects }
}

fn settings() -> everstep_save::Settings {
    everstep_save::Settings { pack_target: PACK_TARGET, uploads: 3, ..Default::default() }
}

fn tools<'t>(
    settings: &'t everstep_save::Settings,
    cache: &'t SaveCache,
    pool: &'t ThreadPool,
) -> everstep_save::Tools<'t> {
    everstep_save::Tools { pool, settings, progress: &(), cache }
}

/// The version that `checkpoint` holds, bit for bit.
pub(crate) async fn load(repository: &Repository, checkpoint: &Checkpoint, pool: &ThreadPool) -> u64 {
    try_load(repository, checkpoint, pool).await.expect("a checkpoint restores")
}

/// As [`load`], where the checkpoint may expire meanwhile.
pub(crate) async fn try_load(
    repository: &Repository,
    checkpoint: &Checkpoint,
    pool: &ThreadPool,
) -> Result<u64, RestoreError> {
    let version = checkpoint.manifest.step.0;
    let reader = CheckpointReader::new(repository, checkpoint.clone());
    let settings = everstep_restore::Settings::default();
    let tools = everstep_restore::Tools { pool, settings: &settings, progress: &() };
    let mut buffers = vec![vec![0; BYTES]; 30];
    let targets = (0..TENSORS).zip(&mut buffers).map(|(i, into)| Target {
        name: name(i),
        dtype: Dtype::F32,
        shape: SHAPE.to_vec(),
        bounds: Bounds::whole(&SHAPE),
        into,
    });
    let options = RestoreOptions::default();
    everstep_restore::restore(&reader, targets.collect(), &options, &tools).await?;
    for (i, bytes) in (0..TENSORS).zip(&buffers) {
        assert!(*bytes == tensor(i, version), "{} of version {version} is not what was saved", name(i));
    }
    let step = reader.object("step", None, &tools).await?;
    let everstep_restore::Content::Value(Value::Int(step)) = step else { panic!("the step is no integer") };
    assert_eq!(step.cast_unsigned(), version);
    Ok(version)
}

/// C01: whatever happened while `NEW` was saved over `OLD`, `latest` is one of them and whole, `NEW` is listed exactly
/// when it is the latest, an unfinished attempt says so, and the next save succeeds. Returns `latest`.
pub(crate) async fn judge(repository: &Repository, pool: &ThreadPool) -> u64 {
    let latest =
        repository.latest(&run()).await.expect("the run can be read").expect("the old checkpoint is there");
    let version = load(repository, &latest, pool).await;
    assert!(version == OLD || version == NEW, "latest is version {version}");
    let (listed, unfinished) = look_at_attempts(repository).await;
    if version == OLD {
        by_step_it_is_unfinished(repository, unfinished).await;
    }
    let expected: &[u64] = if version == NEW { &[OLD, NEW] } else { &[OLD] };
    assert_eq!(listed, expected, "list() shows the new checkpoint exactly when latest() does");
    is_sound(repository, pool).await;
    let next = save(repository, NEXT, pool).await.expect("the next save succeeds");
    assert_eq!(load(repository, &next, pool).await, NEXT);
    let latest = repository.latest(&run()).await.expect("the run can be read").expect("a checkpoint");
    assert_eq!(latest.manifest.ordinal, next.manifest.ordinal);
    version
}

/// The steps of the checkpoints, and whether there is an attempt at `NEW` that is none; that cannot be loaded, nor can
/// fences.
async fn look_at_attempts(repository: &Repository) -> (Vec<u64>, bool) {
    let mut steps = Vec::new();
    let mut unfinished = false;
    for (ordinal, state) in repository.attempts(&run()).await.expect("the run can be read") {
        match state {
            AttemptState::Committed(checkpoint) => steps.push(checkpoint.manifest.step.0),
            AttemptState::Undecided(intent) | AttemptState::Aborted(intent, _) => {
                assert_eq!(intent.step, Some(Step(NEW)), "only the new attempt can be unfinished");
                unfinished = true;
                cannot_be_loaded(repository, ordinal).await;
            }
            AttemptState::Fence(_) => cannot_be_loaded(repository, ordinal).await,
            AttemptState::Expired(_) => panic!("nothing was expired"),
            AttemptState::Damaged(error) | AttemptState::Newer(error) => {
                panic!("a crash damages nothing: {error}")
            }
        }
    }
    (steps, unfinished)
}

/// Asking for the new step by name says that it is unfinished, or that there is none when it was never begun.
async fn by_step_it_is_unfinished(repository: &Repository, unfinished: bool) {
    let reference = format!("{}@step={NEW}", run()).parse().expect("a reference");
    let error = repository.resolve(&reference).await.expect_err("it is no checkpoint");
    let fits = match &error {
        RepoError::Incomplete { .. } => unfinished,
        RepoError::NotFound(_) => !unfinished,
        _ => false,
    };
    assert!(fits, "{reference} (begun: {unfinished}): {error}");
}

async fn cannot_be_loaded(repository: &Repository, ordinal: Ordinal) {
    let error = repository.checkpoint(&run(), ordinal).await.expect_err("it is no checkpoint");
    assert!(matches!(error, RepoError::Incomplete { .. }), "ordinal {ordinal}: {error}");
}

pub(crate) async fn is_sound(repository: &Repository, pool: &ThreadPool) {
    let settings = everstep_check::Settings::default();
    let tools = everstep_check::Tools { pool, settings: &settings, progress: &() };
    let options = CheckOptions { deep: true, only: None };
    let report = check(repository, &options, &tools).await.expect("the repository can be read");
    assert!(report.is_sound(), "a crash is no damage: {:#?}", report.damage().collect::<Vec<_>>());
}
