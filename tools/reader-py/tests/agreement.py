"""agreement.py CKPT_INSPECT [FIXTURES]: judges every fixture and every forged repository by both readers, prints a table
of what they say, and fails where they disagree with each other or with what the fixture or the specification says.

Compared are the verdict on the repository, the objects that are named as bad, what becomes of each checkpoint, and the
digests of what loads. In a forged repository the objects named must have one in common; in a fixture they must be the same."""

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from blake3 import blake3
from cases import CASES
from everstep_checker.verify import Verifier
from everstep_reader.index import whole
from everstep_reader.objects import Expired, NotFound, Unsupported, Wrong
from everstep_reader.repository import Repository
from everstep_reader.tensors import raw
from everstep_values import load
from forge import Forge

FIXTURES = Path(__file__).parents[3] / "fixtures"
DISPUTED = {}
"""Forged cases on which the readers still disagree, and the question in QUESTIONS.md. One that agrees fails, too: it has to
leave this list."""

IN_SAFETENSORS = ("bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")


def verdict(findings):
    """`findings` are pairs of an object and whether it is merely of a newer version."""
    return "damaged" if not all(newer for _, newer in findings) else "unsupported" if findings else "sound"


def ours(repository):
    """What this reader says: verdict, bad objects, and the repository if it opens at all."""
    opened = None
    try:
        opened = Repository(repository)
        verifier = Verifier(opened)
        verifier.everything()
    except Wrong as error:
        return verdict([(error.object, isinstance(error, Unsupported))]), {error.object}, opened
    findings = [(error.object, isinstance(error, Unsupported)) for error in verifier.findings.values()]
    return verdict(findings), {name for name, _ in findings}, opened


def theirs(inspect, repository):
    """What ckpt-inspect says: verdict and bad objects."""
    told = subprocess.run([inspect, "verify", repository, "--deep", "--json"], capture_output=True, text=True)
    document = json.loads(told.stdout or told.stderr)
    if "findings" not in document:
        return verdict([("everstep.json", told.returncode == 5)]), {"everstep.json"}
    named = {one["object"] for one in document["findings"] if one["severity"] in ("damage", "unsupported")}
    assert told.returncode == {"sound": 0, "damaged": 1, "unsupported": 5}[document["verdict"]], told
    return document["verdict"], named


def outcome(repository, reference):
    """What becomes of a checkpoint when everything in it is restored."""
    try:
        checkpoint = repository.checkpoint(reference)
        everything = whole(checkpoint.rows)
    except Wrong as error:
        return of_error(error)
    errors = set()
    for rows in everything:
        try:
            load(checkpoint, rows)
        except Wrong as error:
            errors.add(of_error(error))
    return "corrupt" if "corrupt" in errors else "unsupported" if errors else "loads"


def of_error(error):
    if isinstance(error, Unsupported):
        return "unsupported"
    return "expired" if isinstance(error, Expired) else "incomplete" if isinstance(error, NotFound) else "corrupt"


def judged(inspect, folder):
    """A fixture that says what is wrong with it."""
    expected = json.loads((folder / "expect.json").read_text())
    verdict, objects, repository = ours(folder / "repository")
    their_verdict, their_objects = theirs(inspect, folder / "repository")
    outcomes = {
        name: outcome(repository, name) if repository else "unsupported" if verdict == "unsupported" else "corrupt"
        for name in expected["checkpoints"]
    }
    wrong = []
    for who, found in (("reader-py", objects), ("ckpt-inspect", their_objects)):
        if sorted(found) != expected["bad_objects"]:
            wrong.append(f"{who} names {sorted(found)} instead of {expected['bad_objects']}")
    if outcomes != expected["checkpoints"]:
        wrong.append(f"outcomes {outcomes} instead of {expected['checkpoints']}")
    return f"{folder.parent.name}/{folder.name}", expected["verdict"], verdict, their_verdict, wrong


def sound(inspect, folder):
    """A fixture that is sound, with the digests of what is in it."""
    verdict, _, repository = ours(folder / "repository")
    their_verdict, _ = theirs(inspect, folder / "repository")
    wrong = []
    for run, ordinals in json.loads((folder / "expected.json").read_text()).items():
        for ordinal, expected in ordinals.items():
            reference = f"{run}@ordinal={ordinal}"
            if isinstance(expected, dict):
                wrong += contents(inspect, folder / "repository", repository.checkpoint(reference), expected)
            elif outcome(repository, reference) != {"fence": "incomplete"}.get(expected, expected):
                wrong.append(f"{reference} is {outcome(repository, reference)}, not {expected}")
    return f"v1/{folder.name}", "sound", verdict, their_verdict, wrong


def contents(inspect, path, checkpoint, expected):
    """What differs between a checkpoint, what the fixture says of it, and what ckpt-inspect exports."""
    found, exportable = {}, {}
    for rows in whole(checkpoint.rows):
        first, data = rows[0], raw(checkpoint, rows).tobytes()
        loaded, hashed = load(checkpoint, rows), blake3(data).hexdigest()
        if first.kind == "tensor":
            found[first.name] = {"blake3": hashed, "dtype": first.dtype, "shape": first.shape}
            assert loaded.tobytes() == data
        else:
            about = {"value": data.hex()} if first.dtype == "value" else {"bytes": hashed}
            assert first.dtype == "value" or loaded == data
            if first.rank is None:
                found[first.name] = about
            else:
                found.setdefault(first.name, {"per rank": []})["per rank"].append(about)
        if first.dtype in IN_SAFETENSORS:
            exportable[first.name] = data
    wrong = [] if found == expected["state"] else [f"{checkpoint.name} has {found}"]
    for name in ("step", "metadata"):
        if checkpoint.manifest[name] != expected[name]:
            wrong.append(f"{checkpoint.name} has {name} {checkpoint.manifest[name]}")
    if exported(inspect, path, checkpoint.name, [name for name in found if name not in exportable]) != exportable:
        wrong.append(f"{checkpoint.name} is exported by ckpt-inspect with other bytes")
    return wrong


def exported(inspect, path, reference, without):
    """The bytes of the tensors in a safetensors file that ckpt-inspect makes."""
    with tempfile.TemporaryDirectory() as folder:
        options = [word for name in without for word in ("--exclude", name)]
        subprocess.run([inspect, "export", path, reference, "-o", f"{folder}/file", *options], check=True, capture_output=True)
        data = Path(folder, "file").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = json.loads(data[8:start])
    tensors.pop("__metadata__", None)
    return {name: data[start:][slice(*one["data_offsets"])] for name, one in tensors.items()}


def forged(inspect, case):
    name, stage, change, expected = case
    with tempfile.TemporaryDirectory() as folder:
        changed = []
        Forge(folder, lambda at, made: changed.append(at) or change(made) if at == stage else made).repository()
        assert changed, f"{name}: there is no such stage"
        verdict, objects, _ = ours(folder)
        their_verdict, their_objects = theirs(inspect, folder)
    wrong = []
    if objects and their_objects and not objects & their_objects:
        wrong.append(f"reader-py names {sorted(objects)}, ckpt-inspect {sorted(their_objects)}")
    return f"forged/{name}", {"fine": "sound"}.get(expected, expected), verdict, their_verdict, wrong


def main():
    inspect, fixtures = sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else FIXTURES)
    jobs = [(sound, file.parent) for file in sorted(fixtures.glob("v1/*/expected.json"))]
    jobs += [(judged, file.parent) for kind in ("damaged", "hostile") for file in sorted(fixtures.glob(f"{kind}/*/expect.json"))]
    jobs += [(forged, case) for case in CASES]
    failed = 0
    print(f"{'repository':<72} {'expected':<11} {'reader-py':<11} ckpt-inspect")
    with ThreadPoolExecutor(2) as pool:
        for name, expected, mine, other, wrong in pool.map(lambda job: job[0](inspect, job[1]), jobs):
            agrees = expected == mine == other and not wrong
            disputed = name in DISPUTED and expected == mine
            good = agrees != (name in DISPUTED) and (agrees or disputed)
            note = "" if agrees and good else f"disputed, question {DISPUTED[name]}" if good else "FAILED"
            print(f"{name[:72]:<72} {expected:<11} {mine:<11} {other:<11} {note}".rstrip())
            for line in wrong:
                print(f"    {line}")
            failed += not good
    print(f"{len(jobs) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
