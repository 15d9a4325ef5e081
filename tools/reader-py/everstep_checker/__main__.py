"""python -m everstep_checker ls DIR [RUN] | verify DIR [REF] | load DIR [REF]

REF is RUN, RUN@ordinal=K or pin:NAME. Exit status: 0 fine, 1 damaged, 2 usage, 4 not found, 5 unsupported."""

import json
import sys

from blake3 import blake3
from everstep_reader.index import whole
from everstep_reader.objects import NotFound, Unsupported, Wrong
from everstep_reader.repository import Attempt, Repository
from everstep_reader.tensors import raw
from everstep_values import load

from .keys import is_known
from .verify import Verifier


def main(verb="", root="", *references):
    if verb not in VERBS or len(references) > 1:
        return print(__doc__, file=sys.stderr) or 2
    try:
        document, status = VERBS[verb](Repository(root), *references)
    except Wrong as error:
        document, status = shown(error), status_of(error)
    print(json.dumps(document, indent=1))  # which escapes control characters of names
    return status


def status_of(error):
    return 4 if isinstance(error, NotFound) else 5 if isinstance(error, Unsupported) else 1


def shown(error):
    return {"kind": type(error).__name__, "object": error.object, "what": error.what}


def ls(repository, *runs):
    """Every attempt: what it committed, or why it is no checkpoint."""
    return {attempt.name: state(attempt) for attempt in repository.attempts(*runs)}, 0


def state(attempt):
    try:
        return {name: attempt.readable().manifest.get(name) for name in ("step", "pin", "metadata")}
    except Wrong as error:
        return shown(error)


def verify(repository, *references):
    """Every finding, and all strays; damage decides the exit status, then what is not supported."""
    verifier = Verifier(repository)
    for reference in references:
        verifier.checkpoint(repository.checkpoint(reference))
    if not references:
        verifier.everything()
    findings = verifier.findings.values()
    strays = [key for key in repository.store.keys() if is_stray(repository.store, key)]
    status = min(map(status_of, findings), default=0)
    return {"findings": [shown(error) for error in findings], "strays": strays}, status


def is_stray(store, key):
    path = store.root / key
    return not is_known(key) and (path.is_symlink() or not path.is_dir())


def digests(repository, *references):
    """The BLAKE3 of everything in one checkpoint, or in all."""
    chosen = map(repository.checkpoint, references)
    if not references:
        chosen = filter(Attempt.is_checkpoint, repository.attempts())
    return {one.name: [digest(one, parts) for parts in whole(one.readable().rows)] for one in chosen}, 0


def digest(checkpoint, parts):
    load(checkpoint, parts)
    about = {name: getattr(parts[0], name) for name in ("name", "rank", "kind", "dtype", "shape")}
    return about | {"blake3": blake3(raw(checkpoint, parts)).hexdigest()}


VERBS = {"ls": ls, "verify": verify, "load": digests}
if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
