"""python -m everstep_reader ls DIR | verify DIR [REF] | load DIR [REF]

Exit status: 0 fine, 1 damage found, 2 usage, 4 not found, 5 unsupported."""

import argparse
import json
import sys

from blake3 import blake3

from . import keys, load
from .errors import Expired, NotFound, ReaderError, Unsupported
from .repository import Repository
from .verify import Verifier


def main():
    parser = argparse.ArgumentParser(prog="everstep_reader", description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("directory")
    parser.add_argument("reference", nargs="?")
    options = parser.parse_args()
    try:
        document, status = VERBS[options.verb](Repository(options.directory), options.reference)
    except ReaderError as error:
        document, status = {"error": show(error)}, error.status
    json.dump(document, sys.stdout, indent=1)  # which escapes control characters of names
    print()
    return status


def show(error):
    return {"kind": type(error).__name__, "object": error.object, "what": error.what}


def ls(repository, reference):
    """Every attempt and what became of it."""
    return [
        {"run": run, "ordinal": ordinal, **state(repository, run, ordinal)}
        for run in repository.runs()
        if reference in (None, run)
        for ordinal in repository.ordinals(run, "intents")
    ], 0


def state(repository, run, ordinal):
    try:
        return {"state": "checkpoint", "step": repository.checkpoint(run, ordinal).manifest["step"]}
    except Expired:
        return {"state": "expired"}
    except NotFound as error:
        return {"state": error.what}
    except ReaderError as error:
        return {"state": type(error).__name__, "error": show(error)}


def verify(repository, reference):
    """Every finding, and keys that nobody knows; damage decides the exit status, then what is not supported."""
    verifier, strays = Verifier(repository), []
    if reference:
        verifier.checkpoint(repository.resolve(reference))
    else:
        verifier.everything()
        strays = [key for key in repository.store.keys() if keys.is_stray(key)]
    findings = list(verifier.findings.values())
    damaged = any(not isinstance(finding, Unsupported) for finding in findings)
    document = {"sound": not findings, "findings": [show(finding) for finding in findings], "strays": strays}
    return document, 1 if damaged else Unsupported.status if findings else 0


def digests(repository, reference):
    """The BLAKE3 of everything in one checkpoint, or in all."""
    chosen = [repository.resolve(reference)] if reference else [
        checkpoint for run in repository.runs() for checkpoint in repository.checkpoints(run)
    ]
    return {checkpoint.name: [digest(checkpoint, rows) for rows in load.names(checkpoint)] for checkpoint in chosen}, 0


def digest(checkpoint, rows):
    first = rows[0]
    load.load(checkpoint, rows)
    about = {"name": first.name, "rank": first.rank, "kind": first.kind, "dtype": first.dtype, "shape": first.shape}
    return about | {"blake3": blake3(load.raw(checkpoint, rows)).hexdigest()}


VERBS = {"ls": ls, "verify": verify, "load": digests}
