//! A job of many ranks in one process: a leader and members, each with its own connection, each of which may fall silent
//! in the middle of a save.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;
use everstep_format::name::{Rank, RunName, Step};
use everstep_format::value::Value;
use everstep_repo::{InitOptions, OpenOptions, Parents, Rendezvous, Repository, Session};
use everstep_restore::CheckpointReader;
use everstep_save::{
    Content, Engine, Group, HandedIn, Member, ObjectEntry, Owner, Replicas, SaveCache, SaveError,
    SaveOptions, SaveReport, Settings, Shard, ShareOptions, Source, State, Tools,
};
use everstep_sim::{CrashStore, Death, Moment};
use everstep_store::{Store, SystemWorld, World};
use futures::future::{Either, join_all, select};

/// Columns of the sharded tensor.
const COLUMNS: u64 = 16;
/// Rows of it that each rank has.
const ROWS: u64 = 10;
/// Bytes of a row.
const ROW_BYTES: usize = 64;
/// Elements of the tensor that every rank has.
const NORM: u64 = 300;

/// The state of a job at one step, a function of step and rank.
#[derive(Debug)]
struct Share {
    weight: Vec<u8>,
    norm: Vec<u8>,
}

fn noise(seed: &str, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(seed.as_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn weight(step: u64, rank: u32) -> Vec<u8> {
    noise(&format!("{step} {rank}"), usize::try_from(ROWS).unwrap() * ROW_BYTES)
}

fn norm(step: u64) -> Vec<u8> {
    noise(&format!("norm {step}"), usize::try_from(NORM * 4).unwrap())
}

impl Share {
    fn new(step: u64, rank: u32) -> Self {
        Self { weight: weight(step, rank), norm: norm(step) }
    }

    /// The own rows of one tensor, all of another, an object of the rank, one of the job.
    fn state(&self, step: u64, group: &Group) -> State<'_> {
        let Group { rank, world_size, .. } = *group;
        let shard = |name: &str, shape: Vec<u64>, bounds, replicas, bytes| Shard {
            name: name.to_owned(),
            dtype: Dtype::F32,
            shape,
            bounds,
            alias_of: None,
            replicas,
            source: Source::Memory(bytes),
        };
        let own =
            Bounds { offset: vec![u64::from(rank.0) * ROWS, 0].into(), extent: vec![ROWS, COLUMNS].into() };
        let shape = vec![u64::from(world_size) * ROWS, COLUMNS];
        let int = |value: u64| Content::Value(Value::Int(value.cast_signed()));
        let object = |name: &str, owner, content| ObjectEntry { name: name.to_owned(), owner, content };
        State {
            shards: vec![
                shard("weight", shape, own, Replicas::None, &self.weight),
                shard("norm", vec![NORM], Bounds::whole(&[NORM]), Replicas::All, &self.norm),
            ],
            objects: vec![
                object("loader", Owner::Rank(rank), int(step * 1000 + u64::from(rank.0))),
                object("step", Owner::Job, int(step)),
            ],
        }
    }
}

/// A job.
#[derive(Debug)]
pub struct Crowd {
    session: Session,
    cache: SaveCache,
    members: Vec<(Member, SaveCache)>,
    rendezvous: Arc<dyn Rendezvous>,
    engine: Engine,
    settings: Settings,
    /// How long ranks wait for each other.
    pub deadline: Duration,
}

/// How a save ended for everybody who lived to hear of it.
#[derive(Debug)]
pub struct Endings {
    /// For the leader.
    pub leader: Result<SaveReport, SaveError>,
    /// For the others, by rank; victims have none.
    pub members: BTreeMap<u32, Result<HandedIn, SaveError>>,
    /// How long it took.
    pub took: Duration,
}

fn with<'t>((engine, settings): (&'t Engine, &'t Settings), cache: &'t SaveCache) -> Tools<'t> {
    Tools { pool: engine.pool(), settings, progress: &(), cache }
}

/// The run of every crowd.
pub fn run() -> RunName {
    RunName::new("crowd").unwrap()
}

/// A repository in `store`, without the probe, which has its own tests.
pub async fn repository(store: Arc<dyn Store>) -> Repository {
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let options = InitOptions { single_writer: true, ..InitOptions::default() };
    Repository::init(store, world, options).await.unwrap()
}

impl Crowd {
    /// A job on `repository` whose ranks meet over `rendezvous`.
    pub async fn new(repository: &Repository, rendezvous: Arc<dyn Rendezvous>) -> Self {
        let session = repository.open_session(&run(), OpenOptions::default()).await.unwrap();
        Self {
            session,
            cache: SaveCache::default(),
            members: Vec::new(),
            rendezvous,
            engine: Engine::new(1).unwrap(),
            settings: Settings::default(),
            deadline: Duration::from_secs(20),
        }
    }

    /// One save of `ranks` ranks. Each of `victims` falls silent at the call to the store that stands beside it, the first
    /// being 1; new ranks join as they are needed.
    pub async fn save(&mut self, step: u64, ranks: u32, victims: &BTreeMap<u32, u64>) -> Endings {
        let repository = self.session.repository().clone();
        let world = repository.world().clone();
        while self.members.len() + 1 < usize::try_from(ranks).unwrap() {
            let member = Member::new(repository.clone(), self.session.ticket());
            self.members.push((member, SaveCache::default()));
        }
        let started = world.elapsed();
        let Self { session, cache, members, rendezvous, engine, settings, deadline } = self;
        let group = |rank: u32| Group::new(Rank(rank), ranks).within(*deadline).meeting(rendezvous.clone());
        let tools = (&*engine, &*settings);
        let shares: Vec<Share> = (0..ranks).map(|rank| Share::new(step, rank)).collect();
        let lead = async {
            let options = SaveOptions {
                step: Step(step),
                parents: Parents::Latest,
                metadata: serde_json::Map::new(),
                group: group(0),
                counts: None,
            };
            let state = shares[0].state(step, &options.group);
            everstep_save::save(session, &state, options, &with(tools, cache)).await
        };
        let (mut live, mut doomed) = (Vec::new(), Vec::new());
        for ((rank, share), (member, cache)) in (0..).zip(&shares).skip(1).zip(members.iter_mut()) {
            let options = ShareOptions { step: Step(step), group: group(rank) };
            match victims.get(&rank) {
                None => live.push(async move {
                    let state = share.state(step, &options.group);
                    (rank, member.save(&state, &options, &with(tools, cache)).await)
                }),
                Some(call) => {
                    let (inner, world) = (repository.store().clone(), world.clone());
                    let ticket = member.ticket();
                    doomed.push(async move {
                        let dying = CrashStore::dying(inner, (*call, Moment::After), Death::Silent);
                        let Ok(repository) = Repository::open(Arc::new(dying), world).await else { return };
                        let mut victim = Member::new(repository, ticket);
                        let state = share.state(step, &options.group);
                        drop(victim.save(&state, &options, &with(tools, cache)).await);
                    });
                }
            }
        }
        let alive = futures::future::join(lead, join_all(live));
        let dying = join_all(doomed);
        let (alive, dying) = (std::pin::pin!(alive), std::pin::pin!(dying));
        let (leader, members) = match select(alive, dying).await {
            Either::Left((ended, _)) => ended,
            Either::Right((_, alive)) => alive.await,
        };
        Endings {
            leader,
            members: members.into_iter().collect(),
            took: world.elapsed().saturating_sub(started),
        }
    }

    /// What `checkpoint` must hold, compared bit by bit with what it holds.
    pub async fn check(&self, report: &SaveReport, step: u64, ranks: u32) {
        let reader = CheckpointReader::new(self.session.repository(), report.checkpoint.clone());
        let settings = everstep_restore::Settings::default();
        let tools = everstep_restore::Tools { pool: self.engine.pool(), settings: &settings, progress: &() };
        let expected: Vec<u8> = (0..ranks).flat_map(|rank| weight(step, rank)).collect();
        assert!(reader.read_box("weight", None, &tools).await.unwrap() == expected, "step {step}");
        assert!(reader.read_box("norm", None, &tools).await.unwrap() == norm(step), "step {step}");
        let last = reader.object("loader", Some(Rank(ranks - 1)), &tools).await.unwrap();
        let everstep_restore::Content::Value(Value::Int(last)) = last else { panic!("{last:?}") };
        assert_eq!(last.cast_unsigned(), step * 1000 + u64::from(ranks - 1));
    }

    /// The leader's session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Ends the job.
    pub async fn close(self) {
        self.session.close().await.unwrap();
    }
}
