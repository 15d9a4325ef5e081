"""Runs, attempts and checkpoints (pages 00, 03, 13, 14)."""

import re
from functools import cached_property

from . import index, sealed
from .objects import RECORD, Directory, Expired, Missing, NotFound, Wrong, known, require
from .tables import CONFIGURATION, DECISION, REFERENCE


class Repository:
    def __init__(self, root):
        self.store = Directory(root)
        self.configuration = sealed.read(self.store, "everstep.json", CONFIGURATION)

    def attempts(self, *runs):
        """All attempts of these runs, or of all runs, of which there is a record."""
        records = filter(None, (re.fullmatch(RECORD, key) for key in self.store.keys("runs")))
        places = {(record["run"], int(record["ordinal"])) for record in records}
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
    """One ordinal of a run: its decision and, of a checkpoint, what that promises."""

    def __init__(self, repository, run, ordinal):
        self.repository, self.store, self.run, self.ordinal = repository, repository.store, run, ordinal
        self.name = f"{run}@ordinal={ordinal}"

    def key(self, kind):
        """Of an intent, a decision or an expired marker; `kind` is the folder."""
        return f"runs/{self.run}/{kind}/{self.ordinal:020}"

    def has(self, kind):
        return self.store.exists(self.key(kind))

    def record(self, kind, rule):
        """An intent, decision or expired marker that says what its key says."""
        fields = sealed.read(self.store, self.key(kind), rule)
        same = (fields["run"], fields["ordinal"]) == (self.run, self.ordinal)
        require(same, self.key(kind), "it is not what its key says")
        return fields

    def check_older(self, key, parents):
        older = all(parent["run"] != self.run or parent["ordinal"] < self.ordinal for parent in parents)
        require(older, key, "a parent that is not older than itself")

    @cached_property
    def decision(self):
        fields, key = self.record("decisions", DECISION), self.key("decisions")
        commit = fields["decision"] == "COMMIT"
        require(("manifest" in fields) == commit != ("abort" in fields), key, "COMMIT and no manifest, or so")
        if commit:
            manifest, index = fields["manifest"], fields["manifest"]["index"]
            same = all(manifest[name] == fields[name] for name in REFERENCE)
            require(same, key, "its manifest is of another run, ordinal or attempt")
            self.check_older(key, manifest["parents"])
            require(("pin" in manifest) == (self.run == "_pins"), key, "no pin in _pins, or one elsewhere")
            require(4 <= index["footer_offset"] <= index["len"] - 8, key, "its index has no footer")
        return fields

    @property
    def manifest(self):
        return self.decision["manifest"]

    @property
    def index_key(self):
        return f"index/{self.manifest['attempt']}/{self.manifest['index']['blake3']}.parquet"

    @cached_property
    def rows(self):
        """The rows of the index."""
        return self.promised(index.read, self.index_key, self.manifest["index"])

    def is_checkpoint(self):
        return self.has("decisions") and not self.has("expired") and self.decision["decision"] == "COMMIT"

    def readable(self):
        """This attempt, unless it is no checkpoint, or one that only a later version understands."""
        require(self.has("decisions"), self.name, "it has no decision", NotFound)
        require(self.decision["decision"] == "COMMIT", self.name, "it was aborted", NotFound)
        require(not self.has("expired"), self.name, "it has expired", Expired)
        check_features("everstep.json", self.repository.configuration)
        check_features(self.key("decisions"), self.decision)
        return self

    def promised(self, read, *arguments):
        """Reads what I4 promises: an object that is missing means expired meanwhile, or damage."""
        try:
            return read(self.store, *arguments)
        except Missing:
            require(not self.has("expired"), self.name, "it expired while it was read", Expired)
            raise


def check_features(key, fields):
    """Refuses what needs a feature to be read: version 1 has none."""
    known(not fields["requires"].get("read"), key, f"a feature of {fields['requires']}")
