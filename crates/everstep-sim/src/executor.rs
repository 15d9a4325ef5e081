//! A single-threaded executor on a simulated clock, which runs ready tasks in a seeded random order.
//!
//! Why not tokio's paused clock: it polls ready tasks in one fixed order, so that interleavings of two writers would
//! depend on the length of their code alone, and it cannot stop or freeze the tasks of one process.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Polls after which a simulation counts as one that never ends.
const MOST_POLLS: u64 = 20_000_000;

/// A simulated process: its tasks live, freeze and die together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process(pub u32);

impl Process {
    /// Requests under way belong to nobody: they go on when their sender is dead.
    pub const NETWORK: Self = Self(0);
    /// Whoever runs the simulation.
    pub const DIRECTOR: Self = Self(1);
}

type TaskId = u64;

struct Core {
    now: Duration,
    timers: BTreeMap<(Duration, u64), Waker>,
    ready: Vec<(TaskId, Process)>,
    arriving: Vec<(Process, BoxFuture<'static, ()>)>,
    frozen: BTreeMap<Process, Duration>,
    dead: BTreeSet<Process>,
    rng: StdRng,
    last_number: u64,
    last_process: u32,
}

/// The way into a simulation for everybody in it: clock, randomness, processes.
#[derive(Clone)]
pub struct Room(Arc<Mutex<Core>>);

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Room at {:?}", self.now())
    }
}

impl Room {
    fn core(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the simulation began.
    pub fn now(&self) -> Duration {
        self.core().now
    }

    /// A new process.
    pub fn process(&self) -> Process {
        let mut core = self.core();
        core.last_process += 1;
        Process(core.last_process)
    }

    /// Runs `task` as part of `process`; dropped when that is dead.
    pub fn spawn(&self, process: Process, task: BoxFuture<'static, ()>) {
        let mut core = self.core();
        if !core.dead.contains(&process) {
            core.arriving.push((process, task));
        }
    }

    /// Ends `process`: none of its tasks takes another step.
    pub fn kill(&self, process: Process) {
        self.core().dead.insert(process);
    }

    /// Whether `process` was ended.
    pub fn is_dead(&self, process: Process) -> bool {
        self.core().dead.contains(&process)
    }

    /// Stops `process` for `time`; requests that it has sent go on.
    pub fn freeze(&self, process: Process, time: Duration) {
        let mut core = self.core();
        let until = core.now + time;
        core.frozen.insert(process, until);
    }

    /// Something drawn from the simulation's one source of randomness.
    pub fn draw<T>(&self, how: impl FnOnce(&mut StdRng) -> T) -> T {
        how(&mut self.core().rng)
    }

    /// A time between the two.
    pub fn time_between(&self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from((most - least).as_micros()).unwrap_or(u64::MAX);
        least + Duration::from_micros(self.draw(|rng| rng.random_range(0..=span)))
    }

    /// Waits on the simulated clock.
    pub fn sleep(&self, time: Duration) -> Sleep {
        let mut core = self.core();
        core.last_number += 1;
        Sleep { room: self.clone(), at: (core.now + time, core.last_number) }
    }
}

/// Waits until its time has come.
#[derive(Debug)]
pub struct Sleep {
    room: Room,
    at: (Duration, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut core = self.room.core();
        if core.now >= self.at.0 {
            return Poll::Ready(());
        }
        core.timers.insert(self.at, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self.room.core().timers.remove(&self.at);
        drop(waker);
    }
}

struct TaskWaker {
    room: Room,
    task: TaskId,
    process: Process,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut core = self.room.core();
        let entry = (self.task, self.process);
        if !core.ready.contains(&entry) {
            core.ready.push(entry);
        }
    }
}

struct Task {
    process: Process,
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
}

/// Owns the tasks and runs them.
pub struct Executor {
    room: Room,
    tasks: BTreeMap<TaskId, Task>,
    polls: u64,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Executor with {} tasks in {:?}", self.tasks.len(), self.room)
    }
}

impl Executor {
    /// An empty simulation under `seed`.
    pub fn new(seed: u64) -> Self {
        let core = Core {
            now: Duration::ZERO,
            timers: BTreeMap::new(),
            ready: Vec::new(),
            arriving: Vec::new(),
            frozen: BTreeMap::new(),
            dead: BTreeSet::new(),
            rng: StdRng::seed_from_u64(seed),
            last_number: 0,
            last_process: Process::DIRECTOR.0,
        };
        Self { room: Room(Arc::new(Mutex::new(core))), tasks: BTreeMap::new(), polls: 0 }
    }

    /// The way in for the code under test.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Runs `director` to its end; what others still do then is dropped.
    ///
    /// # Panics
    /// When it can never end: every task waits, and no clock will wake one.
    pub fn run<T: 'static>(mut self, director: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&result);
        self.add(Process::DIRECTOR, Box::pin(async move { *slot.borrow_mut() = Some(director.await) }));
        loop {
            if let Some(result) = result.borrow_mut().take() {
                return result;
            }
            self.settle();
            if !self.step() {
                assert!(self.advance(), "everybody waits, and nothing will happen any more");
            }
        }
    }

    fn add(&mut self, process: Process, future: Pin<Box<dyn Future<Output = ()>>>) {
        let mut core = self.room.core();
        core.last_number += 1;
        let task = core.last_number;
        core.ready.push((task, process));
        drop(core);
        let waker = Waker::from(Arc::new(TaskWaker { room: self.room.clone(), task, process }));
        self.tasks.insert(task, Task { process, future, waker });
    }

    /// Takes in new tasks, drops those of the dead.
    fn settle(&mut self) {
        loop {
            let arriving = std::mem::take(&mut self.room.core().arriving);
            if arriving.is_empty() {
                break;
            }
            arriving.into_iter().for_each(|(process, task)| self.add(process, task));
        }
        let dead = self.room.core().dead.clone();
        if self.tasks.values().any(|task| dead.contains(&task.process)) {
            let (gone, left) = std::mem::take(&mut self.tasks)
                .into_iter()
                .partition(|(_, task)| dead.contains(&task.process));
            self.tasks = left;
            drop::<BTreeMap<TaskId, Task>>(gone);
        }
    }

    /// Polls one ready task, if there is one.
    fn step(&mut self) -> bool {
        let Some(task) = self.pick() else { return false };
        self.polls += 1;
        assert!(self.polls < MOST_POLLS, "the simulation does not end; now is {:?}", self.room.now());
        let Some(entry) = self.tasks.get_mut(&task) else { return true };
        let waker = entry.waker.clone();
        if entry.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            let done = self.tasks.remove(&task);
            drop(done);
        }
        true
    }

    fn pick(&self) -> Option<TaskId> {
        let mut core = self.room.core();
        let now = core.now;
        core.frozen.retain(|_, until| *until > now);
        let awake = |entry: &(TaskId, Process)| !core.frozen.contains_key(&entry.1);
        let able: Vec<usize> = (0..core.ready.len()).filter(|&i| awake(&core.ready[i])).collect();
        if able.is_empty() {
            return None;
        }
        let chosen = able[core.rng.random_range(0..able.len())];
        Some(core.ready.swap_remove(chosen).0)
    }

    /// Moves the clock to the next moment at which something can happen.
    fn advance(&mut self) -> bool {
        let mut core = self.room.core();
        let thaw = core.ready.iter().filter_map(|(_, process)| core.frozen.get(process)).min().copied();
        let timer = core.timers.keys().next().map(|(at, _)| *at);
        let Some(next) = thaw.into_iter().chain(timer).min() else { return false };
        let now = core.now.max(next);
        core.now = now;
        let later = core.timers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut core.timers, later);
        drop(core);
        due.into_values().for_each(Waker::wake);
        true
    }
}
