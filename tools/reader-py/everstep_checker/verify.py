"""Judges every invariant of page 13 that can be read off a repository, and every byte of a checkpoint."""

from math import prod

from everstep_reader import sealed
from everstep_reader.index import whole
from everstep_reader.objects import Expired, Missing, Wrong, known, limit, pack_key, require
from everstep_reader.repository import Attempt, check_features
from everstep_reader.tables import REFERENCE
from everstep_reader.tensors import PLANES, bits_of

from . import packs, patterns
from .keys import is_known
from .tables import INTENT, LEASE, LEASE_END, MARKER


class Verifier:
    """`findings` are the errors met, one for each object and kind of error."""

    def __init__(self, repository):
        self.repository, self.findings, self.tables = repository, {}, {}

    def met(self, function, *arguments):
        """What the function returns, or None after its error became a finding."""
        try:
            return function(*arguments)
        except Expired:
            return None
        except Wrong as error:
            self.findings.setdefault((error.object, type(error)), error)

    def everything(self):
        check_features("everstep.json", self.repository.configuration)
        self.met(patterns.check, self.repository.configuration)
        if self.repository.store.is_link("runs"):
            return self.met(require, False, "runs", "a link, not followed, in the place of all runs")
        intents, expired = {}, set()
        for attempt in self.attempts():
            if intent := self.met(understood_intent, attempt):
                intents[attempt.run, attempt.ordinal] = intent
            if attempt.has("expired"):
                expired.add((attempt.run, attempt.ordinal))
                self.met(attempt.record, "expired", MARKER)
            if attempt.has("decisions"):
                self.decided(attempt, intent)
        if self.repository.configuration["writers"] != "many-writers":
            expired = set()  # where one writes, what is aborted expires as well, and does so first
        for place in sorted(relied_upon(intents, expired)):
            attempt = Attempt(self.repository, *place)
            is_there, key = attempt.has("decisions"), attempt.key("decisions")
            self.met(require, is_there, key, "there is none, and others relied on it", Missing)
        for key in filter(is_known, self.repository.store.keys("leases")):
            self.met(check_lease, self.repository.store, key)

    def attempts(self):
        """All that have a record, and the first of each gap in the intents."""
        found = self.repository.attempts()
        intents = {(one.run, one.ordinal) for one in found if one.has("intents")}
        newest = dict(sorted(intents))
        begun = intents | {(run, 0) for run in newest}
        gaps = {(run, ordinal + 1) for run, ordinal in begun if ordinal < newest[run]}
        places = gaps | {(one.run, one.ordinal) for one in found}
        return [Attempt(self.repository, *place) for place in sorted(places)]

    def decided(self, attempt, intent):
        decision = self.met(lambda: attempt.decision)
        fits = decision and (not intent or self.met(self.check_decision, attempt, intent, decision))
        if fits and attempt.is_checkpoint() and self.met(attempt.readable):
            self.checkpoint(attempt)

    def check_decision(self, attempt, intent, decision):
        """True if a decision fits its intent, and its parents are what they must be."""
        key, manifest = attempt.key("decisions"), decision.get("manifest")
        require(intent["attempt"] == decision["attempt"], key, "its attempt is not that of the intent")
        if manifest:
            require(intent["kind"] == "save", key, "a fence cannot be committed")
            same = all(intent[name] == manifest[name] for name in ("session", "step"))
            require(same, key, "session or step is not that of the intent")
            require(named(manifest) <= named(intent), key, "a parent that its intent does not name")
            never = any(map(self.is_no_checkpoint, manifest["parents"]))
            require(not never, key, "a parent that was never a checkpoint")
        return True

    def is_no_checkpoint(self, reference):
        """Whether an intent or a decision says so."""
        parent = Attempt(self.repository, reference["run"], reference["ordinal"])
        try:
            if read_intent(parent)["kind"] == "fence":
                return True
            decision = parent.decision
            return (decision["decision"], decision["attempt"]) != ("COMMIT", reference["attempt"])
        except Wrong:
            return False

    def checkpoint(self, checkpoint):
        """Index, refs, and every pack that they use."""
        rows, refs = self.met(lambda: checkpoint.rows), self.met(read_refs, checkpoint)
        places, consistent = {row.place for row in rows or () if row.place}, False
        packs_of_rows = {place[2:5] for place in places}
        understood = {place for place in places if place.codec <= PLANES}
        if rows is not None:
            self.met(known, understood == places, checkpoint.index_key, "a codec of its rows")
            consistent = self.met(check_index, checkpoint, understood)
            self.met(self.check_reused, checkpoint, understood)
            self.met(check_totals, checkpoint, places)
        if refs is not None:
            owners = sorted({attempt for attempt, _, _ in refs}) == checkpoint.manifest["owners"]
            self.met(require, owners, checkpoint.key("decisions"), "owners are not those of its refs")
            same = rows is None or set(refs) == packs_of_rows
            self.met(require, same, refs_key(checkpoint), "its packs are not those of the index")
        for pack in sorted(refs or () if rows is None else packs_of_rows):
            if pack not in self.tables:
                self.tables[pack] = self.met(checkpoint.promised, packs.read, *pack)
        for place in understood if consistent else ():
            table = self.tables[place[2:5]]
            same, what = table is None or place in table, f"an index has another chunk at {place.pack_offset}"
            self.met(require, same, pack_key(*place[2:5]), what)

    def check_reused(self, checkpoint, places):
        """Chunks of other attempts lie where a parent's index has them (I5), as far as these can be read."""
        reused = {place for place in places if place.writer_attempt != checkpoint.manifest["attempt"]}
        for parent in checkpoint.manifest["parents"] if reused else ():
            try:
                rows = Attempt(self.repository, parent["run"], parent["ordinal"]).rows
                reused -= {row.place for row in rows}
            except Wrong:
                return  # the parent itself is judged where it stands
        require(not reused, checkpoint.index_key, f"{len(reused)} chunks of others that no parent has there")


def read_intent(attempt):
    fields, key = attempt.record("intents", INTENT), attempt.key("intents")
    save, writers = fields["kind"] == "save", fields["world_size"] > 0
    fits = save == writers == ("step" in fields) and (save or not fields["parents"])
    require(fits, key, "world_size, step or parents do not fit its kind")
    attempt.check_older(key, fields["parents"])
    return fields


def understood_intent(attempt):
    intent = read_intent(attempt)
    check_features(attempt.key("intents"), intent)
    return intent


def read_refs(checkpoint):
    return checkpoint.promised(packs.read_refs, refs_key(checkpoint), checkpoint.manifest["refs"])


def refs_key(checkpoint):
    return f"index/{checkpoint.manifest['attempt']}/{checkpoint.manifest['refs']['blake3']}.refs"


def check_lease(store, key):
    fields = sealed.read(store, key, LEASE_END if key.endswith(".end") else LEASE)
    require(fields["lease"] in key, key, "it speaks of another lease than its key")


def named(fields):
    """Run, ordinal and attempt of every parent."""
    return {tuple(parent[name] for name in REFERENCE) for parent in fields["parents"]}


def relied_upon(intents, expired):
    """What was decided: parents (W1), what has expired, and what is below a fence that saved (I8)."""
    saves = {place: intent for place, intent in intents.items() if intent["kind"] == "save"}
    fences = intents.keys() - saves.keys()  # whose decision is known without an object
    fence_of = {(run, intents[run, ordinal]["session"]): ordinal for run, ordinal in fences}
    closed = {}  # the highest fence of each run whose session has saved
    for (run, _), intent in saves.items():
        closed[run] = max(closed.get(run, 0), fence_of.get((run, intent["session"]), 0))
    parents = {parent[:2] for intent in saves.values() for parent in named(intent)}
    fenced = {(run, ordinal) for run, ordinal in saves if ordinal < closed[run]}
    return parents - fences | fenced | expired & saves.keys()


def check_index(checkpoint, places):
    """True if that holds between rows which nobody needs who restores."""
    key, names = checkpoint.index_key, {row.name for row in checkpoint.rows}
    for row in checkpoint.rows:
        other = row.alias_of is None or row.alias_of != row.name and row.alias_of in names
        require(other, key, f"{row.name[:80]!r} is an alias of nothing else")
        limit(prod(row.shape), 2**64 - 1, key, f"elements of {row.name[:80]!r}")
    require(len({place.chunk for place in places}) == len(places), key, "a chunk in two places")
    starts = {(*place[2:5], place.pack_offset) for place in places}
    require(len(starts) == len(places), key, "two chunks in one place")
    lengths = {place[2:6] for place in places}
    require(len({length[:3] for length in lengths}) == len(lengths), key, "a pack of two lengths")
    return True


def check_totals(checkpoint, places):
    """The totals of the manifest, as far as all types are known."""
    key, totals = checkpoint.key("decisions"), checkpoint.manifest["totals"]
    places = {place.chunk: place for place in places}.values()
    new = [place for place in places if place.writer_attempt == checkpoint.manifest["attempt"]]
    raw, new_raw = (sum(place.raw_len for place in some) for some in (places, new))
    firsts = [parts[0] for parts in whole(checkpoint.rows)]
    tensors = sum(row.kind == "tensor" for row in firsts)
    found = {
        "tensors": tensors, "objects": len(firsts) - tensors, "chunks": len(places), "chunks_new": len(new),
        "new_stored_bytes": sum(place.stored_len for place in new), "new_raw_bytes": new_raw,
        "reused_raw_bytes": raw - new_raw,
    }
    if all(map(bits_of, firsts)):
        found["raw_bytes"] = sum(-(-prod(row.shape) * bits_of(row) // 8) for row in firsts)
    require(totals | found == totals, key, f"its totals are not those of the index, {found}")
