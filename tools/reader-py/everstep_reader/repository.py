"""Runs, attempts and checkpoints (pages 00, 03, 14)."""

import re
from functools import cached_property

from . import index, keys, limits, packs, sealed
from .errors import Expired, Incomplete, NotFound, known, limit, require
from .sealed import CHOSEN, HASH, ID, ORDINAL, REFERENCE, REQUIRES, RUN, ascending, between, integer, text, text_to
from .store import Directory

OVERRIDE = {"pattern": text_to(limits.PATTERN), "block_elements": between(1, 2**64)}
CONFIGURATION = {
    "version_name": text, "requires": REQUIRES, "id": ID, "created": text, "tool": text,
    "writers": lambda value: value in ("many-writers", "single-writer"),
    "chunking": {"block_elements": between(1, 2**64), "block_bytes": between(16, limits.RAW),
                 "overrides?": [OVERRIDE, limits.OVERRIDES]},
}
PLACE = {"requires": REQUIRES, "run": RUN, "ordinal": ORDINAL, "attempt": ID}
INTENT = PLACE | {
    "session": ID, "kind": text, "parents": [REFERENCE, limits.PARENTS], "step?": integer,
    "world_size": integer, "job?": text_to(limits.JOB),
}
TOTALS = "tensors objects chunks chunks_new raw_bytes reused_raw_bytes new_raw_bytes new_stored_bytes"
MANIFEST = {
    "run": RUN, "ordinal": ORDINAL, "attempt": ID, "step": integer, "session": ID,
    "parents": [REFERENCE, limits.PARENTS], "world_size": integer,
    "index": {"blake3": HASH, "len": integer, "rows": integer, "footer_offset": integer, "footer_blake3": HASH},
    "refs": {"blake3": HASH, "len": integer, "packs": integer}, "owners": ascending(ID),
    "rollback_to?": REFERENCE, "pin?": {"name": CHOSEN, "of": REFERENCE}, "totals": dict.fromkeys(TOTALS.split(), integer),
    "metadata": {}, "created": text, "tool": text,
}
ABORT = {"reason": text, "detail?": text, "by?": ID}


class Repository:
    def __init__(self, root):
        self.store = Directory(root)
        self.configuration = sealed.read(self.store, "everstep.json", "everstep-repository", CONFIGURATION)

    def runs(self):
        return [run for run in self.store.names("runs") if re.fullmatch(keys.RUN, run)]

    def ordinals(self, run, kind):
        """The ordinals that have an object in `intents`, `decisions` or `expired`."""
        names = self.store.names(f"runs/{run}/{kind}")
        return [int(name) for name in names if not keys.is_stray(f"runs/{run}/{kind}/{name}")]

    def is_expired(self, run, ordinal):
        """Presence alone decides."""
        return self.store.exists(keys.record(run, "expired", ordinal))

    def record(self, run, ordinal, kind, table):
        """An intent, decision or expired marker that says what its key says."""
        key = keys.record(run, kind, ordinal)
        fields = sealed.read(self.store, key, f"everstep-{kind.rstrip('s')}", table)
        require((fields["run"], fields["ordinal"]) == (run, ordinal), key, "it speaks of another ordinal than its key")
        return fields

    def intent(self, run, ordinal):
        fields, key = self.record(run, ordinal, "intents", INTENT), keys.record(run, "intents", ordinal)
        known(fields["kind"] in ("save", "fence"), key, f"kind {fields['kind'][:80]!r}")
        save, fits = fields["kind"] == "save", fields["world_size"] > 0
        require(save == fits == ("step" in fields), key, "world_size or step do not fit its kind")
        require(save or not fields["parents"], key, "a fence has no parents")
        return fields

    def decision(self, run, ordinal):
        key = keys.record(run, "decisions", ordinal)
        fields = self.record(run, ordinal, "decisions", PLACE | {"decision": text})
        commit = fields["decision"] == "COMMIT"
        require(commit or fields["decision"] == "ABORT", key, "it is neither COMMIT nor ABORT")
        there = ("manifest" in fields, "abort" in fields)
        require(there == (commit, not commit), key, "it has not a manifest with COMMIT, or abort with ABORT")
        sealed.check(key, "", fields, {"manifest": MANIFEST} if commit else {"abort": ABORT})
        if commit:
            check_manifest(key, fields, fields["manifest"])
        return fields

    def checkpoint(self, run, ordinal):
        """The checkpoint that this ordinal is; `NotFound` or `Expired` if it is none."""
        name = f"{run}@ordinal={ordinal}"
        if not self.store.exists(keys.record(run, "decisions", ordinal)):
            raise NotFound(name, "no such checkpoint: no decision")
        decision = self.decision(run, ordinal)
        if decision["decision"] == "ABORT":
            raise NotFound(name, "its attempt was aborted")
        if self.is_expired(run, ordinal):
            raise Expired(name, "it has expired")
        readable("everstep.json", self.configuration)
        readable(keys.record(run, "decisions", ordinal), decision)
        return Checkpoint(self, decision["manifest"])

    def checkpoints(self, run):
        """Every checkpoint of a run, the newest first; raises what is wrong with a decision that it meets."""
        for ordinal in reversed(self.ordinals(run, "decisions")):
            if not self.is_expired(run, ordinal) and self.decision(run, ordinal)["decision"] == "COMMIT":
                yield self.checkpoint(run, ordinal)

    def resolve(self, reference):
        """The checkpoint of RUN, RUN@latest, @step=N, @ordinal=K, @min=METRIC or @max=METRIC, or of pin:NAME."""
        run, _, which = reference.partition("@")
        if reference.startswith("pin:"):
            run, which = "_pins", f"pin={reference[4:]}"
        rule, _, argument = which.partition("=")
        found = self.checkpoints(run) if run in self.runs() else ()
        if rule == "ordinal" and argument.isdecimal():
            return self.checkpoint(run, int(argument))
        if rule == "step":
            found = (one for one in found if str(one.manifest["step"]) == argument)
        elif rule == "pin":
            found = (one for one in found if one.manifest["pin"]["name"] == argument)
        elif rule in ("min", "max"):
            measured = [one for one in found if type(one.manifest["metadata"].get(argument)) in (int, float)]
            found = sorted(measured, key=lambda one: one.manifest["metadata"][argument], reverse=rule == "max")
        elif which not in ("", "latest"):
            raise NotFound(reference, "a reference is RUN, RUN@latest, @step=N, @ordinal=K, @min=METRIC or @max=METRIC")
        for checkpoint in found:
            return checkpoint
        raise NotFound(reference, "no such checkpoint")


def check_manifest(key, decision, manifest):
    same = all(manifest[name] == decision[name] for name in ("run", "ordinal", "attempt"))
    require(same, key, "its manifest has another run, ordinal or attempt")
    require(("pin" in manifest) == (manifest["run"] == "_pins"), key, "pins are in the run _pins, and nothing else")
    limit(manifest["index"]["len"], limits.INDEX, key, "bytes of the index")
    limit(manifest["refs"]["packs"], limits.REFS, key, "packs")
    footer = manifest["index"]["footer_offset"]
    require(4 <= footer <= manifest["index"]["len"] - 8, key, "its index has no place for a footer")


def readable(key, fields):
    unknown = fields["requires"].get("read")
    known(not unknown, key, f"feature {', '.join(unknown or ())[:200]!r}")


class Checkpoint:
    def __init__(self, repository, manifest):
        self.repository, self.manifest, self.attempt = repository, manifest, manifest["attempt"]
        self.name = f"{manifest['run']}@ordinal={manifest['ordinal']}"
        self.index_key = f"index/{self.attempt}/{manifest['index']['blake3']}.parquet"
        self.decision_key = keys.record(manifest["run"], "decisions", manifest["ordinal"])
        self.refs_key = f"index/{self.attempt}/{manifest['refs']['blake3']}.refs"

    def promised(self, read, *arguments):
        """Reads what I4 promises: an object that is missing means expired meanwhile, or damage."""
        try:
            return read(self.repository.store, *arguments)
        except NotFound as error:
            if self.repository.is_expired(self.manifest["run"], self.manifest["ordinal"]):
                raise Expired(self.name, "it expired while it was read") from None
            raise Incomplete(error.object, f"{self.name} needs it, and it is missing") from None

    @cached_property
    def rows(self):
        """The rows of the index."""
        return self.promised(index.read, self.index_key, self.manifest["index"])

    @cached_property
    def refs(self):
        """The packs that it uses: attempt, rank, pack id."""
        return self.promised(packs.read_refs, self.refs_key, self.manifest["refs"])
