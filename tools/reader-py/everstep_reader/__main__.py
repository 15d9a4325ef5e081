"""python -m everstep_reader ls DIR [RUN] | verify DIR [REF] | load DIR [REF]

REF is RUN, RUN@ordinal=K or pin:NAME. Exit status: 0 fine, 1 damaged, 2 usage, 4 not found, 5 unsupported."""

import json
import sys

from blake3 import blake3

from .errors import Wrong
from .objects import parse
from .repository import Attempt, Repository
from .rows import whole
from .tensors import load, raw
from .verify import Verifier


def main(verb="", root="", *references):
    if verb not in VERBS or len(references) > 1:
        return print(__doc__, file=sys.stderr) or 2
    try:
        document, status = VERBS[verb](Repository(root), *references)
    except Wrong as error:
        document, status = error.show(), error.status
    print(json.dumps(document, indent=1))  # which escapes control characters of names
    return status


def ls(repository, *runs):
    """Every attempt: what it committed, or why it is no checkpoint."""
    return {attempt.name: state(attempt) for attempt in repository.attempts(*runs)}, 0


def state(attempt):
    try:
        return {name: attempt.readable().manifest.get(name) for name in ("step", "pin", "metadata")}
    except Wrong as error:
        return error.show()


def verify(repository, *references):
    """Every finding, and keys that nobody knows; damage decides the exit status, then what is not supported."""
    verifier = Verifier(repository)
    for reference in references:
        verifier.checkpoint(repository.checkpoint(reference))
    if not references:
        verifier.everything()
    findings = verifier.findings.values()
    strays = [key for key in repository.store.keys() if not parse(key)]
    status = min((error.status for error in findings), default=0)
    return {"findings": [error.show() for error in findings], "strays": strays}, status


def digests(repository, *references):
    """The BLAKE3 of everything in one checkpoint, or in all."""
    chosen = map(repository.checkpoint, references)
    if not references:
        chosen = filter(Attempt.is_checkpoint, repository.attempts())
    return {attempt.name: [digest(attempt, parts) for parts in whole(attempt.readable().rows)] for attempt in chosen}, 0


def digest(checkpoint, parts):
    load(checkpoint, parts)
    about = {name: getattr(parts[0], name) for name in ("name", "rank", "kind", "dtype", "shape")}
    return about | {"blake3": blake3(raw(checkpoint, parts)).hexdigest()}


VERBS = {"ls": ls, "verify": verify, "load": digests}
if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
