"""Judges every invariant of page 13 that can be read off a repository, and every byte that a checkpoint promises."""

from itertools import pairwise
from math import prod

from . import codecs, dtypes, keys, load, packs
from .errors import Expired, Incomplete, NotFound, ReaderError, known, limit, require
from .repository import Checkpoint, readable
from .sealed import ORDINAL, RUN, text

MARKER = {"run": RUN, "ordinal": ORDINAL, "reason": text, "created": text}
KINDS = ("intents", "decisions", "expired")


class Verifier:
    """`findings` are the errors met, one for each object and kind of error."""

    def __init__(self, repository):
        self.repository, self.findings, self.tables, self.parents, self.undecided = repository, {}, {}, set(), set()

    def met(self, function, *arguments):
        """What the function returns, or None after its error became a finding."""
        try:
            return function(*arguments)
        except Expired:
            return None
        except NotFound as caught:
            error = Incomplete(caught.object, "it is missing, and nobody may delete it")
        except ReaderError as caught:
            error = caught
        self.findings.setdefault((error.object, type(error)), error)

    def everything(self):
        for run in self.repository.runs():
            self.run(run)
        for key in self.parents & self.undecided:  # they were decided when they were named (W1)
            self.met(missing, key)

    def run(self, run):
        """Intents without gaps, decisions where they must be, and every checkpoint."""
        there = {kind: set(self.repository.ordinals(run, kind)) for kind in KINDS}
        for before, ordinal in pairwise([0, *sorted(there["intents"])]):
            if ordinal > before + 1:
                self.met(missing, keys.record(run, "intents", before + 1))
        undecided, below = [], {}  # keys of absent decisions; how many of them lie below the fence of each session
        for ordinal in sorted(set().union(*there.values())):
            intent = self.met(self.intent, run, ordinal)
            key, save = keys.record(run, "decisions", ordinal), intent and intent["kind"] == "save"
            if ordinal in there["expired"]:
                self.met(self.repository.record, run, ordinal, "expired", MARKER)
            if ordinal in there["decisions"]:
                self.decided(run, ordinal, intent, ordinal in there["expired"])
            elif save and ordinal in there["expired"] and self.repository.configuration["writers"] == "many-writers":
                self.met(missing, key)  # only a COMMIT expires
            elif save:
                undecided.append(key)
            if save:  # so its session has resolved `latest` (I8)
                for lost in undecided[: below.pop(intent["session"], 0)]:
                    self.met(missing, lost)
            elif intent:
                below[intent["session"]] = len(undecided)
        self.undecided.update(undecided)

    def intent(self, run, ordinal):
        """An intent that can be judged."""
        intent = self.repository.intent(run, ordinal)
        readable(keys.record(run, "intents", ordinal), intent)
        self.parents |= {keys.record(parent["run"], "decisions", parent["ordinal"]) for parent in intent["parents"]}
        return intent

    def decided(self, run, ordinal, intent, expired):
        decision = self.met(self.repository.decision, run, ordinal)
        key = keys.record(run, "decisions", ordinal)
        fits = intent and decision and self.met(self.check_decision, key, intent, decision)
        if decision and (fits or not intent) and decision["decision"] == "COMMIT" and not expired:
            if checkpoint := self.met(self.repository.checkpoint, run, ordinal):
                self.checkpoint(checkpoint)

    def check_decision(self, key, intent, decision):
        """True if a decision fits its intent, and its parents are what they must be."""
        require(intent["attempt"] == decision["attempt"], key, "its attempt is not that of the intent")
        manifest = decision.get("manifest")
        if manifest:
            require(intent["kind"] == "save", key, "a fence cannot be committed")
            same = (intent["session"], intent["step"]) == (manifest["session"], manifest["step"])
            require(same, key, "session or step is not that of the intent")
            for parent in manifest["parents"]:
                require(parent in intent["parents"], key, "a parent that its intent does not name")
                require(not self.is_no_checkpoint(parent), key, "a parent that was never a checkpoint")
        return True

    def is_no_checkpoint(self, parent):
        """Whether an intent or a decision says so."""
        try:
            if self.repository.intent(parent["run"], parent["ordinal"])["kind"] == "fence":
                return True
            decision = self.repository.decision(parent["run"], parent["ordinal"])
            return (decision["decision"], decision["attempt"]) != ("COMMIT", parent["attempt"])
        except ReaderError:
            return False

    def checkpoint(self, checkpoint):
        """Index, refs, every pack that they use, and every value."""
        manifest = checkpoint.manifest
        refs, rows = self.met(lambda: checkpoint.refs), self.met(lambda: checkpoint.rows)
        if refs is not None:
            owners = sorted({attempt for attempt, _, _ in refs})
            self.met(require, owners == manifest["owners"], checkpoint.decision_key, "owners are not those of its refs")
        places, consistent = {row.place for row in rows or () if row.place}, False
        if rows is not None:
            same = refs is None or set(refs) == {place[2:5] for place in places}
            self.met(require, same, checkpoint.refs_key, "its packs are not those of the index")
            self.met(self.check_reused, checkpoint, places)
            consistent = self.met(check_index, checkpoint.index_key, rows, places)
            self.met(check_totals, checkpoint.decision_key, checkpoint, places)
        used = refs or () if rows is None else {place[2:5] for place in places}
        tables = {pack: self.table(checkpoint, pack) for pack in sorted(used)}
        for place in places if consistent else ():
            self.met(known, place.codec <= codecs.PLANES, checkpoint.index_key, f"codec {place.codec}")
            self.met(check_place, place, tables[place[2:5]])

    def table(self, checkpoint, pack):
        if pack not in self.tables:
            self.tables[pack] = self.met(checkpoint.promised, packs.read, *pack)
        return self.tables[pack]

    def check_reused(self, checkpoint, places):
        """Chunks of other attempts lie where a parent's index has them (I5), as far as the indexes can be read."""
        reused = {place for place in places if place.attempt != checkpoint.attempt}
        for parent in checkpoint.manifest["parents"] if reused else ():
            try:
                decision = self.repository.decision(parent["run"], parent["ordinal"])
                reused -= {row.place for row in Checkpoint(self.repository, decision["manifest"]).rows}
            except ReaderError:
                return  # the parent itself is judged where it stands
        require(not reused, checkpoint.index_key, f"{len(reused)} chunks of other attempts that no parent has there")


def check_place(place, table):
    """A row says of its chunk what the table of its pack does, if that could be read."""
    key = keys.pack(place.attempt, place.rank, place.pack)
    of_index = (place.chunk, place.codec, place.raw_len, place.stored_len, place.pack_len)
    same = table is None or place.codec > codecs.PLANES or table.get(place.offset) == of_index
    require(same, key, f"an index has another chunk at {place.offset}")


def check_index(key, rows, places):
    """What holds between rows, and nobody needs who restores."""
    names = {row.name for row in rows}
    for row in rows:
        other = row.alias_of is None or row.alias_of != row.name and row.alias_of in names
        require(other, key, f"{row.name[:80]!r} is an alias of nothing else")
        limit(prod(row.shape), 2**64 - 1, key, f"elements of {row.name[:80]!r}")
    require(len({place.chunk for place in places}) == len(places), key, "a chunk in two places")
    lengths = {place[2:6] for place in places}
    require(len({length[:3] for length in lengths}) == len(lengths), key, "a pack of two lengths")
    return True


def missing(key):
    raise Incomplete(key, "it is missing, and nobody may delete it")


def check_totals(key, checkpoint, places):
    """The totals of the manifest, as far as all types are known."""
    places = {place.chunk: place for place in places}.values()
    new = [place for place in places if place.attempt == checkpoint.attempt]
    raw, new_raw = (sum(place.raw_len for place in some) for some in (places, new))
    firsts = [rows[0] for rows in load.names(checkpoint)]
    bits = [dtypes.bits(row) for row in firsts]
    totals = checkpoint.manifest["totals"]
    found = {
        "tensors": sum(row.kind == "tensor" for row in firsts), "objects": sum(row.kind == "object" for row in firsts),
        "chunks": len(places), "chunks_new": len(new), "new_stored_bytes": sum(place.stored_len for place in new),
        "new_raw_bytes": new_raw, "reused_raw_bytes": raw - new_raw,
        "raw_bytes": totals["raw_bytes"] if None in bits else sum(
            -(-prod(row.shape) * size // 8) for row, size in zip(firsts, bits)
        ),
    }
    require(all(found[name] == totals[name] for name in found), key, f"its totals are not those of the index, {found}")
