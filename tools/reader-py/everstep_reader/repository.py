"""Runs, attempts and checkpoints (pages 00, 03, 13, 14)."""

from functools import cached_property

from . import index, packs, sealed
from .errors import Expired, Missing, NotFound, Wrong, known, require
from .objects import Directory, parse, record_key
from .tables import CONFIGURATION, DECISION, INTENT, MARKER, REFERENCE

RECORDS = {"intents": INTENT, "decisions": DECISION, "expired": MARKER}


class Repository:
    def __init__(self, root):
        self.store = Directory(root)
        self.configuration = sealed.read(self.store, "everstep.json", CONFIGURATION)

    def attempts(self, *runs):
        """All attempts of these runs, or of all runs; also the first of each gap in the intents."""
        records = [parts for key in self.store.keys("runs") if (parts := parse(key)) and parts["run"]]
        found = {(parts["run"], int(parts["ordinal"]), parts["kind"]) for parts in records}
        intents = {(run, ordinal) for run, ordinal, kind in found if kind == "intents"}
        newest = dict(sorted(intents))
        gaps = {(run, ordinal + 1) for run, ordinal in intents | {(run, 0) for run in newest} if ordinal < newest[run]}
        places = gaps | {(run, ordinal) for run, ordinal, _ in found}
        return [Attempt(self, *place) for place in sorted(places) if not runs or place[0] in runs]

    def checkpoint(self, reference):
        """The checkpoint that RUN@ordinal=K means, or the newest that RUN or pin:NAME does."""
        run, at, ordinal = reference.partition("@ordinal=")
        if run.startswith("pin:"):
            return self.pin(reference, run[4:])
        for attempt in reversed(self.attempts(run)):
            if str(attempt.ordinal) == ordinal if at else attempt.is_checkpoint():
                return attempt.readable()
        raise NotFound(reference, "no such checkpoint")

    def pin(self, reference, name):
        """The newest pin of a name; without one, what cannot be read among the pins, since that may be it."""
        error = NotFound(reference, "no such pin")
        for attempt in reversed(self.attempts("_pins")):
            try:
                if attempt.is_checkpoint() and attempt.readable().manifest["pin"]["name"] == name:
                    return attempt
            except Wrong as unreadable:
                error = unreadable
        raise error


class Attempt:
    """One ordinal of a run: its intent, its decision and, of a checkpoint, what that promises."""

    def __init__(self, repository, run, ordinal):
        self.repository, self.store, self.run, self.ordinal = repository, repository.store, run, ordinal
        self.name = f"{run}@ordinal={ordinal}"
        self.keys = {kind: record_key(run, kind, ordinal) for kind in RECORDS}

    def has(self, kind):
        return self.store.exists(self.keys[kind])

    def record(self, kind):
        """An intent, decision or expired marker that says what its key says."""
        fields = sealed.read(self.store, self.keys[kind], RECORDS[kind])
        same = (fields["run"], fields["ordinal"]) == (self.run, self.ordinal)
        require(same, self.keys[kind], "it speaks of another ordinal than its key")
        return fields

    def check_parents(self, key, parents):
        older = all(parent["run"] != self.run or parent["ordinal"] < self.ordinal for parent in parents)
        require(older, key, "a parent that is not older than itself")

    @cached_property
    def intent(self):
        fields = self.record("intents")
        save, writers = fields["kind"] == "save", fields["world_size"] > 0
        fits = save == writers == ("step" in fields) and (save or not fields["parents"])
        require(fits, self.keys["intents"], "world_size, step or parents do not fit its kind")
        self.check_parents(self.keys["intents"], fields["parents"])
        return fields

    @cached_property
    def decision(self):
        fields, key = self.record("decisions"), self.keys["decisions"]
        commit = fields["decision"] == "COMMIT"
        fits = ("manifest" in fields) == commit != ("abort" in fields)
        require(fits, key, "it has not a manifest with COMMIT, or abort with ABORT")
        if commit:
            manifest = fields["manifest"]
            same = all(manifest[name] == fields[name] for name in REFERENCE)
            require(same, key, "its manifest has another run, ordinal or attempt")
            self.check_parents(key, manifest["parents"])
            require(("pin" in manifest) == (self.run == "_pins"), key, "pins are in the run _pins, and nothing else")
            require(manifest["owners"] == sorted(set(manifest["owners"])), key, "its owners are not ascending")
            footer = 4 <= manifest["index"]["footer_offset"] <= manifest["index"]["len"] - 8
            require(footer, key, "its index has no place for a footer")
        return fields

    @property
    def manifest(self):
        return self.decision["manifest"]

    @property
    def index_key(self):
        return f"index/{self.manifest['attempt']}/{self.manifest['index']['blake3']}.parquet"

    @property
    def refs_key(self):
        return f"index/{self.manifest['attempt']}/{self.manifest['refs']['blake3']}.refs"

    @cached_property
    def rows(self):
        """The rows of the index."""
        return self.promised(index.read, self.index_key, self.manifest["index"])

    @cached_property
    def refs(self):
        """The packs that it uses: attempt, rank, pack id."""
        return self.promised(packs.read_refs, self.refs_key, self.manifest["refs"])

    def is_checkpoint(self):
        return self.has("decisions") and not self.has("expired") and self.decision["decision"] == "COMMIT"

    def readable(self):
        """This attempt, unless it is no checkpoint, or one that only a later version understands."""
        require(self.has("decisions"), self.name, "it has no decision", NotFound)
        require(self.decision["decision"] == "COMMIT", self.name, "it was aborted", NotFound)
        require(not self.has("expired"), self.name, "it has expired", Expired)
        check_features("everstep.json", self.repository.configuration)
        check_features(self.keys["decisions"], self.decision)
        return self

    def promised(self, read, *arguments):
        """Reads what I4 promises: an object that is missing means expired meanwhile, or damage."""
        try:
            return read(self.store, *arguments)
        except Missing:
            require(not self.has("expired"), self.name, "it expired while it was read", Expired)
            raise


def check_features(key, fields):
    """The fields, unless reading needs a feature: version 0 has none."""
    known(not fields["requires"].get("read"), key, f"a feature of {fields['requires']}")
    return fields
