"""python -m everstep_reader ls DIR [RUN] | verify DIR [REF] | load DIR [REF]

REF is RUN, RUN@ordinal=K or pin:NAME. Exit status: 0 fine, 1 damaged, 2 usage, 4 not found, 5 unsupported."""

import argparse
import json
import sys

from blake3 import blake3

from .errors import Expired, NotFound, Unsupported, Wrong
from .objects import parse
from .repository import Repository
from .rows import whole
from .tensors import load, raw
from .verify import Verifier


def main():
    parser = argparse.ArgumentParser(prog="everstep_reader", description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("directory")
    parser.add_argument("reference", nargs="?")
    options = parser.parse_args()
    try:
        document, status = VERBS[options.verb](Repository(options.directory), options.reference)
    except Wrong as error:
        document, status = {"error": show(error)}, error.status
    json.dump(document, sys.stdout, indent=1)  # which escapes control characters of names
    print()
    return status


def show(error):
    return {"kind": type(error).__name__, "object": error.object, "what": error.what}


def ls(repository, run):
    """Every attempt and what became of it."""
    attempts = repository.attempts(run) if run else repository.attempts()
    return [{"run": attempt.run, "ordinal": attempt.ordinal, **state(attempt)} for attempt in attempts], 0


def state(attempt):
    try:
        manifest = attempt.readable().manifest
        return {"state": "checkpoint", "step": manifest["step"]} | ({"pin": manifest["pin"]} if "pin" in manifest else {})
    except NotFound as error:
        return {"state": "expired" if isinstance(error, Expired) else error.what}
    except Wrong as error:
        return {"state": type(error).__name__, "error": show(error)}


def verify(repository, reference):
    """Every finding, and keys that nobody knows; damage decides the exit status, then what is not supported."""
    verifier, strays = Verifier(repository), []
    if reference:
        verifier.checkpoint(repository.checkpoint(reference))
    else:
        verifier.everything()
        strays = [key for key in repository.store.keys() if not parse(key)]
    findings = list(verifier.findings.values())
    status = min((error.status for error in findings), default=0)
    return {"sound": not findings, "findings": [show(error) for error in findings], "strays": strays}, status


def digests(repository, reference):
    """The BLAKE3 of everything in one checkpoint, or in all."""
    chosen = [repository.checkpoint(reference)] if reference else [
        attempt.readable() for attempt in repository.attempts() if attempt.is_checkpoint()
    ]  # fmt: skip
    return {attempt.name: [digest(attempt, parts) for parts in whole(attempt.rows)] for attempt in chosen}, 0


def digest(checkpoint, parts):
    load(checkpoint, parts)
    hashed = blake3(raw(checkpoint, parts)).hexdigest()
    return {name: getattr(parts[0], name) for name in ("name", "rank", "kind", "dtype", "shape")} | {"blake3": hashed}


VERBS = {"ls": ls, "verify": verify, "load": digests}
if __name__ == "__main__":
    sys.exit(main())
