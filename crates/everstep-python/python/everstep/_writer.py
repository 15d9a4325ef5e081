"""The writer of a run: one session of one job, whose ranks save together and act alike."""

from __future__ import annotations

import contextlib
import json
import operator
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from . import _exit, _staging
from ._collect import collect
from ._everstep import Checkpoint as NativeCheckpoint
from ._jobs import Announcer, Event, Job, Saved, Stats, Worker, is_fatal, log, settle, wait_all
from ._label import job_label
from ._place import LoadOptions, LoadReport, Placing
from ._repository import Checkpoint, Run
from ._retention import Policy, Retention, policy_text
from ._team import Team, packed, team, unpacked
from ._visits import Visits
from .errors import Corrupt, EverstepError, Expired, InvalidArgument, Unusable

@dataclass(frozen=True)
class WriterOptions:
    """How a run is written. All ranks give the same."""

    #: "wait" for the save before, "skip" this one while another is on its way, or let up to n be (each has a buffer).
    overlap: str | int = "wait"
    #: "raise" a failed background save at the next call, on all ranks alike; or "warn" until one of the limits below.
    on_failure: str = "raise"
    #: Failures in a row after which even "warn" raises.
    max_failures: int | None = None
    #: Seconds since the last commit after which even "warn" raises.
    max_age: float | None = None
    #: Seconds that ranks wait for each other.
    deadline: float = 600.0
    #: Threads that copy the state into host buffers.
    staging_threads: int = max(1, (os.cpu_count() or 1) // 2)
    #: Whether values that are not plain may be pickled.
    allow_pickle: bool = False
    #: Called with an `Event`, one at a time, mostly from other threads.
    on_event: Callable[[Event], None] | None = None
    #: Seconds between two events of progress.
    progress_every: float = 10.0
    #: Seconds that the end of the process waits for a save on its way.
    exit_limit: float = 300.0

    def __post_init__(self) -> None:
        queued = type(self.overlap) is int and self.overlap > 0
        if not queued and self.overlap not in ("wait", "skip"):
            raise InvalidArgument(f'overlap is "wait", "skip" or a number of saves, not {self.overlap!r}')
        if self.on_failure not in ("raise", "warn"):
            raise InvalidArgument(f'on_failure is "raise" or "warn", not {self.on_failure!r}')

    @property
    def at_once(self) -> int:
        """Saves on their way at a time."""
        return self.overlap if type(self.overlap) is int else 1


@dataclass(frozen=True)
class Finished:
    """What became of the saves that were on their way. True if none failed and none is left."""

    committed: list[int]
    failed: dict[int, BaseException]
    pending: list[int]

    def __bool__(self) -> bool:
        return not self.failed and not self.pending


def open_writer(
    run: Run,
    *,
    job: str | None = None,
    takeover: str | float = "refuse",
    takeover_after: float | None = None,
    group: tuple[int, int, Any] | None = None,
    **options: Any,
) -> Writer:
    """Opens `run` for writing; every rank of the job calls it. Older sessions of the run can save no more from then on.

    job       label of this job: a session with the same label is taken over silently. By default EVERSTEP_JOB, torchrun's
              run id, Slurm's job or Kubernetes' Job.
    takeover  what to do when another job's session seems alive: "refuse" (Conflict), "now", "wait" or seconds to wait.
    takeover_after  seconds of silence after which a session counts as ended (default 300).
    group     (rank, world size, torch Store): without torch.distributed, or beside it.

    The other options are those of `WriterOptions`."""
    settings = WriterOptions(**options)
    if takeover not in ("refuse", "now", "wait") and not isinstance(takeover, (int, float)):
        raise InvalidArgument(f'takeover is "refuse", "now", "wait" or seconds to wait, not {takeover!r}')
    ranks = team(run.name, settings.deadline, group)
    waiting = settings.deadline if takeover == "wait" else takeover
    opened: list[Any] = []

    def lead() -> str:
        native = run.repository._native.open_writer(run.name, job_label(job), waiting, takeover_after)
        opened.append(native)
        return native.ticket

    ticket = ranks.together(lead, f"opening run {run.name}")
    native = opened[0] if opened else run.repository._native.member(ticket)
    return Writer(run, ranks, native, settings, ticket)


class Writer:
    """Saves checkpoints of a run, and resumes from them. Ends with `close`, or with the `with` block."""

    def __init__(self, run: Run, ranks: Team, native: Any, options: WriterOptions, ticket: str):
        self.run, self.options = run, options
        self._team, self._native, self._ticket, self._pid = ranks, native, ticket, os.getpid()
        self._jobs: list[Job] = []
        self._calls, self._failures, self._closed = 0, 0, False
        self._last_commit = time.monotonic()
        self._retention: Retention | None = None
        self._announcer = Announcer(options.on_event, options.progress_every)
        self._buffers = _staging.Buffers(options.at_once, options.staging_threads)
        self._visits, self._visited, self._torch = Visits(), None, None
        self._stager, self._worker = Worker("everstep-staging"), Worker("everstep-save")
        _exit.register(self)

    # Saving.

    def save(self, step: int, state: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> Saved:
        """Saves `state` as the checkpoint of `step` and returns once it is committed and durable, on every rank.

        Raises RankFailed naming ranks that failed or were silent, Conflict, OutcomeUnknown, StorageFull,
        InvalidArgument, Unreachable; or what a save before, in the background, failed with."""
        started, step = time.monotonic(), _step(step)
        self._agree("save", step, in_background=False)
        job = self._new_job(step)

        def prepare() -> tuple[list, list, str]:
            described, collected = self._described(metadata), self._collected(state)
            return _staging.in_place(collected), collected.objects, described

        def work() -> Saved:
            return self._carry_out(job, *self._or_give_up(job, prepare))

        self._announcer.watch(job)
        settle(job.committed, work)
        job.stats.blocked = time.monotonic() - started
        self._jobs.remove(job)
        self._ended(job)
        error = job.committed.exception()
        if error is not None:
            raise error
        return job.committed.result()

    def save_async(
        self,
        step: int,
        state: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        staging: str = "blocking",
    ) -> Job:
        """Starts a save and returns as soon as the state may change again (`staging="blocking"`), or at once
        ("overlap": then wait for `job.staged` before the state changes).

        Raises what a save before failed with, on all ranks at the same call."""
        if staging not in ("blocking", "overlap"):
            raise InvalidArgument(f'staging is "blocking" or "overlap", not {staging!r}')
        started, step = time.monotonic(), _step(step)
        skipped = self._agree("save", step, in_background=True) == "skip"
        job = self._new_job(step, background=True)
        if skipped:
            return self._skipped(job)
        try:
            collected, described = self._collected(state), self._described(metadata)
        except Exception as error:
            self._refuse(job, error)
        else:
            self._start(job, collected, described, staging == "overlap")
        job.stats.blocked = time.monotonic() - started
        return job

    def _refuse(self, job: Job, error: Exception) -> None:
        """A state that cannot be saved: alone it is told at once, otherwise all ranks learn of it at the next call."""
        if self._team.alone:
            self._jobs.remove(job)
            raise error
        job.staged.set_result(None)
        self._worker.start(lambda: self._finish(job, lambda: self._give_up(job, error)))

    def _start(self, job: Job, collected: Any, described: str, overlap: bool) -> None:
        buffer = self._buffers.take()
        staging, objects, shards = buffer.plan(collected), collected.objects, []

        def stage() -> None:
            started = time.monotonic()
            settle(job.staged, lambda: shards.extend(staging.copy()))
            job.stats.staging = time.monotonic() - started
            self._announcer.tell(Event("staged", job.step, stats=job.stats))

        def save() -> Saved:
            try:
                self._or_give_up(job, job.staged.result)
                return self._carry_out(job, shards, objects, described)
            finally:
                self._buffers.give_back(buffer)

        self._announcer.watch(job)
        if overlap:
            self._stager.start(lambda: (stage(), self._worker.start(lambda: self._finish(job, save))))
        else:
            stage()
            self._worker.start(lambda: self._finish(job, save))

    def _finish(self, job: Job, save: Callable[[], Saved]) -> None:
        settle(job.committed, save)
        self._announce(job)

    def _described(self, metadata: Mapping[str, Any] | None) -> str:
        """The metadata as JSON: that of the leader counts."""
        return _described(metadata) if self._team.leads else ""

    def _collected(self, state: Mapping[str, Any]) -> Any:
        return collect(state, self._team.rank, self.options.allow_pickle)

    def _carry_out(self, job: Job, shards: list, objects: list, described: str) -> Saved:
        """The save itself, by native threads."""
        before, group = self.run.repository.traffic(), self._team.native()
        if self._team.leads:
            report = self._native.save(job.step, shards, objects, described, [], group, job.progress)
            ordinal = report["checkpoint"].ordinal
        else:
            report = self._native.save(job.step, shards, objects, group, job.progress)
            ordinal = report["ordinal"]
        _fill(job.stats, report, before, self.run.repository.traffic())
        return Saved(job.step, ordinal, job.stats)

    def _or_give_up(self, job: Job, prepare: Callable[[], Any]) -> Any:
        """`prepare`; if it fails, so that there is nothing to give to the compiled half, the other ranks are told."""
        try:
            return prepare()
        except Exception as error:
            return self._give_up(job, error)

    def _give_up(self, job: Job, error: Exception) -> NoReturn:
        if not self._team.alone:
            self._native.give_up(job.step, f"{type(error).__name__}: {error}", self._team.native())
        raise error

    # Agreeing.

    def _new_job(self, step: int, background: bool = False) -> Job:
        job = Job(step, background)
        self._jobs.append(job)
        return job

    def _skipped(self, job: Job) -> Job:
        self._jobs.remove(job)
        job.skipped = True
        job.staged.set_result(None)
        job.committed.set_result(None)
        self._say(f"step {job.step} is not saved: the save before is still on its way")
        self._announcer.tell(Event("skipped", job.step))
        return job

    def _agree(self, what: str, step: int, in_background: bool) -> str:
        """Before a save begins, all ranks learn the same outcome of those before, and act alike: "go" or "skip", or
        what the leader's verdict says is raised everywhere."""
        self._check_usable()
        self._visits.wait(self.options.deadline)
        self._calls += 1
        key = f"verdict/{self._ticket}/{self._calls}"
        doing = f"{what} of step {step}"
        skips = in_background and self.options.overlap == "skip"
        busy = skips and bool(self._running())
        if not skips:
            self._make_room(self.options.at_once - 1 if in_background else 0)
        if self._team.leads:
            verdict = self._judge("skip" if busy else "go")
            self._team.tell(key, verdict)
        else:
            verdict = self._team.hear(key, 0, doing)
        return self._obey(verdict)

    def _running(self) -> list[Job]:
        return [job for job in self._jobs if not job.committed.done()]

    def _make_room(self, left: int) -> None:
        """Waits until at most `left` saves are on their way. Each of them ends within its own deadlines."""
        running = self._running()
        wait_all(running[: max(len(running) - left, 0)], None)

    def _judge(self, verb: str) -> dict[str, Any]:
        """The leader's verdict."""
        self._catch_up_if_possible()
        ended = []
        for job in self._jobs:
            if not job.committed.done():
                break
            error = job.committed.exception()
            ended.append({"step": job.step, "error": packed(error) if error else None, "fatal": bool(error and is_fatal(error))})
        return {"do": verb, "ended": ended, "raise": self._must_raise(ended)}

    def _must_raise(self, ended: list[dict[str, Any]]) -> bool:
        """Whether failures among `ended`, in their order, are more than is tolerated."""
        failures, failed, fatal = self._failures, False, False
        for outcome in ended:
            failures = failures + 1 if outcome["error"] else 0
            failed |= outcome["error"] is not None
            fatal |= outcome["fatal"]
        options, age = self.options, time.monotonic() - self._last_commit
        if options.on_failure == "raise" or fatal:
            return failed
        too_many = options.max_failures is not None and failures > options.max_failures
        too_old = options.max_age is not None and failures > 0 and age > options.max_age
        return failed and (too_many or too_old)

    def _obey(self, verdict: dict[str, Any]) -> str:
        errors: list[EverstepError] = []
        for outcome in verdict["ended"]:
            job = self._jobs.pop(0)
            wait_all([job], self.options.deadline)
            if outcome["error"] is None:
                self._failures, self._last_commit = 0, time.monotonic()
                continue
            self._failures += 1
            errors.append(unpacked(outcome["error"], f"the save of step {outcome['step']} failed: "))
            if not verdict["raise"]:
                self._say(f"{errors[-1]} (failure {self._failures} in a row)", warning=True)
        if verdict["raise"]:
            raise errors[0]
        return verdict["do"]

    def _ended(self, job: Job) -> None:
        """A save whose outcome the caller is told directly."""
        self._announce(job)
        if job.committed.exception() is None:
            self._failures, self._last_commit = 0, time.monotonic()

    def _announce(self, job: Job) -> None:
        error, stats = job.committed.exception(), job.stats
        if error is not None:
            self._announcer.tell(Event("failed", job.step, stats=stats, error=error))
            self._say(f"step {job.step} was not saved: {error}", warning=True)
            return
        self._expire_after(job.step)
        self._announcer.tell(Event("committed", job.step, job.progress.done, job.progress.planned, stats))
        self._say(
            f"step {job.step} is committed: {_size(stats.raw_bytes)}, {_size(stats.stored_bytes)} of it stored anew, in "
            f"{stats.seconds.get('total', 0.0):.1f} s"
        )

    def _say(self, message: str, warning: bool = False) -> None:
        """To the log: at most a line a save, by the leader; the other ranks only when asked for details."""
        level = (30 if warning else 20) if self._team.leads else 10
        log.log(level, "run %s: %s", self.run.name, message)

    # Retention.

    def retain(self, policy: Policy | None) -> None:
        """From now on, after each commit, lets those checkpoints of this run expire that `policy` does not keep: in the
        background, on rank 0. Nothing is deleted; what is no longer used goes with the next garbage collection. A pass
        that fails is a warning and an event, and the next one goes on.

        policy  a table of rules (`{"keep_last": 3, "keep_every": 10_000}`), several of them, TOML text, or the path of a
                TOML file, as docs/retention.md describes them; None ends it.

        Raises InvalidArgument for a policy that is wrong, or has no table for this run."""
        self._check_usable()
        if policy is None or not self._team.leads:
            self._retention = None
            return
        expirer = self.run.repository._native.expirer(self.run.name, policy_text(policy))
        self._retention = Retention(expirer, self._expired)

    def _expire_after(self, step: int) -> None:
        """Whoever commits a save of this writer calls this."""
        if self._retention is not None:
            self._retention.start(step)

    def _expired(self, step: int, expired: list[int], error: BaseException | None) -> None:
        if error is not None:
            self._say(f"retention after step {step} failed, the next one goes on: {error}", warning=True)
            self._announcer.tell(Event("retention_failed", step, error=error))
        elif expired:
            self._say(f"{len(expired)} checkpoints expired after step {step}: {_listed(expired)}")
            self._announcer.tell(Event("expired", step, expired=tuple(expired)))

    # Resuming.

    def resume(self, into: Mapping[str, Any], fallback: int = 1, **options: Any) -> int | None:
        """Loads the newest checkpoint into the state `into`, in place, on all ranks, and returns its step; None if there
        is none. If it is damaged, up to `fallback` older ones are tried, all ranks the same; the run is then rolled back
        to the one that was good. `options` are those of `Checkpoint.load`.

        Raises Corrupt when none of them is good, SchemaMismatch, RankFailed naming ranks that failed, Unreachable."""
        report = self.resume_report(into, fallback, **options)
        return None if report is None else report.step

    def resume_report(self, into: Mapping[str, Any], fallback: int = 1, **options: Any) -> LoadReport | None:
        """As `resume`, but returns all that is to be said of the load."""
        self._agree("resume", 0, in_background=False)
        placed = LoadOptions(**options, rank=self._team.rank, world_size=self._team.world_size)
        for tried in range(fallback + 1):
            key = f"resume/{self._ticket}/{self._calls}/{tried}"
            ordinal = self._team.from_leader(key, lambda: self._candidate(tried), "resuming")
            if ordinal is None:
                return None
            checkpoint = self.run.checkpoint(ordinal)
            report, bad = self._try(key, checkpoint, into, placed)
            if bad is None:
                return self._resumed(checkpoint, report, tried)
            if tried == fallback:
                raise bad
            self._say(f"{checkpoint} is not usable ({bad}); trying the one before", warning=True)
        raise AssertionError("the last try returns or raises")

    def _candidate(self, tried: int) -> int | None:
        """The ordinal of the newest checkpoint but `tried`. Only the leader looks, so that all ranks take the same."""
        self._catch_up()
        latest = self._newest()
        if latest is None:
            return None
        older = [ordinal for ordinal, _ in self.run.checkpoints() if ordinal <= latest.ordinal]
        if tried >= len(older):
            raise Corrupt(f"run {self.run.name} has no checkpoint older than those that are damaged")
        return older[-1 - tried]

    def _try(
        self, key: str, checkpoint: Checkpoint, into: Mapping[str, Any], options: LoadOptions
    ) -> tuple[LoadReport | None, Unusable | None]:
        """Loads, and hears of all ranks. An error of the kind that another checkpoint may not have is given back."""
        report, own = None, None
        try:
            with self._announcer.loading(checkpoint.step) as progress:
                report = Placing(checkpoint, into, options).run(progress)
        except Exception as error:  # of the state's own code as well: the other ranks wait for word
            own = error
        if self._team.alone:
            return self._judged({0: packed(own) if own else None}, report, own)
        self._team.tell(f"{key}/{self._team.rank}", packed(own) if own else None)
        facts = self._team.hear_all(lambda rank: f"{key}/{rank}", f"loading {checkpoint}")
        return self._judged(facts, report, own)

    def _judged(
        self, facts: dict[int, dict | None], report: LoadReport | None, own: Exception | None
    ) -> tuple[LoadReport | None, Unusable | None]:
        failed = {rank: fact for rank, fact in facts.items() if fact is not None}
        if not failed:
            return report, None
        errors = {rank: own if rank == self._team.rank else unpacked(fact, f"rank {rank}: ") for rank, fact in failed.items()}
        hard = [error for error in errors.values() if not isinstance(error, (Corrupt, Expired))]
        if hard:
            raise own if own in hard else hard[0]
        return None, own or next(iter(errors.values()))

    def _resumed(self, checkpoint: Checkpoint, report: LoadReport, tried: int) -> LoadReport:
        if tried:
            key = f"rollback/{self._ticket}/{self._calls}"
            roll = lambda: self._native.rollback(checkpoint.native).ordinal  # noqa: E731
            ordinal = self._team.from_leader(key, roll, f"rolling back to {checkpoint}")
            self._say(f"rolled back to {checkpoint}, which is now ordinal {ordinal}", warning=True)
        else:
            self._native.take_index(checkpoint.native)
        return report

    # Saves by torch.distributed.checkpoint: see `_dcp_seat`.

    def _torch_buffer(self, make: Callable[[], Any]) -> Any:
        """Memory for a copy of a state, kept from save to save."""
        if self._torch is None:
            self._torch = make()
        return self._torch

    def _visit_committed(self, job: Job) -> None:
        """Leader: a save that torch carried out is committed."""
        self._failures, self._last_commit = 0, time.monotonic()
        self._announce(job)

    def _catch_up(self) -> None:
        """Leader: looks what another process has committed under this session, if one saved."""
        if not (self._visits.elsewhere and self._team.leads):
            return
        found, known = self.run.latest(), self._newest()
        self._visits.elsewhere = False
        if found is not None and (known is None or found.ordinal > known.ordinal):
            self._visited, self._failures, self._last_commit = found.native, 0, time.monotonic()
            self._expire_after(found.step)

    def _catch_up_if_possible(self) -> None:
        with contextlib.suppress(EverstepError):  # it is asked again where it matters
            self._catch_up()

    def _newest(self) -> NativeCheckpoint | None:
        """Leader: the newest checkpoint that it knows of."""
        own, visited = self._native.latest(), self._visited
        return visited if own is None or (visited is not None and visited.ordinal > own.ordinal) else own

    # Ending.

    @property
    def latest(self) -> Checkpoint | None:
        """The newest checkpoint, as this writer knows it (leader), or as the store has it."""
        if not self._team.leads:
            return self.run.latest()
        self._catch_up()
        found = self._newest()
        return found and Checkpoint(self.run.repository, found)

    def finish(self, deadline: float) -> Finished:
        """Waits at most `deadline` seconds for saves on their way, as after SIGTERM, and says what became of them."""
        jobs, until = list(self._jobs), time.monotonic() + deadline
        wait_all(jobs, deadline)
        visits = self._visits.left(max(until - time.monotonic(), 0.0))
        errors = {job.step: job.committed.exception() for job in jobs if job.committed.done()}
        return Finished(
            [step for step, error in errors.items() if error is None],
            {step: error for step, error in errors.items() if error is not None},
            [job.step for job in jobs if not job.committed.done()] + visits,
        )

    def close(self) -> None:
        """Waits for saves on their way and ends the session. Raises what the last of them failed with, on all ranks."""
        if self._closed:
            return
        self._visits.wait(self.options.exit_limit)
        try:
            if self._jobs:
                self._agree("close", self._jobs[-1].step, in_background=False)
        finally:
            self._end()

    def _end(self) -> None:
        self._closed = True
        _exit.forget(self)
        for worker in (self._stager, self._worker):  # which have events to tell of what they did
            worker.stop(self.options.exit_limit)
        if self._team.leads:
            self._native.close()

    def _check_usable(self) -> None:
        if self._closed:
            raise InvalidArgument(f"the writer of run {self.run.name} is closed")
        if os.getpid() != self._pid:
            raise InvalidArgument(f"the writer of run {self.run.name} was opened before a fork: open it in this process")

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            return self.close()
        # Another error is on its way: what is being saved may end, but nothing of it hides that error.
        if not self._closed and os.getpid() == self._pid:
            left = [job.step for job in wait_all(self._jobs, self.options.exit_limit)]
            left += self._visits.left(self.options.exit_limit)
            for step in left:
                self._say(f"step {step} was not committed", warning=True)
            if not left:
                self._end()


def _step(step: Any) -> int:
    """As a number that Python and JSON have, whatever library it is of."""
    try:
        number = operator.index(step)
    except TypeError:
        raise InvalidArgument(f"a step is an int, not {step!r}") from None
    if not 0 <= number < 1 << 63:
        raise InvalidArgument(f"a step is from 0 to 2^63 - 1, not {number}")
    return number


def _listed(ordinals: list[int]) -> str:
    shown = ", ".join(map(str, ordinals[:8]))
    return f"ordinals {shown}" + (" ..." if len(ordinals) > 8 else "")


def _described(metadata: Mapping[str, Any] | None) -> str:
    try:
        return json.dumps(dict(metadata or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"metadata is what JSON can say: {error}") from None


def _fill(stats: Stats, report: dict[str, Any], before: dict[str, int], after: dict[str, int]) -> None:
    stats.seconds = dict(report.get("seconds", {}))
    stats.raw_bytes = report["raw_bytes"]
    stats.new_raw_bytes = report.get("new_raw_bytes", 0)
    stats.stored_bytes = report["bytes_uploaded"]
    stats.requests = after["requests"] - before["requests"]
    stats.retries = after["retries"] - before["retries"]
    stats.slowest = report.get("ranks", [])


def _size(count: int) -> str:
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
