"""A folder that a framework has written, as a state; and the folder that is made of it again, byte for byte.

    writer.save_async(step, everstep.folders.state_of("out/step-100"))
    everstep.folders.materialize(run.latest(), "out/step-100")

Files of safetensors become tensors, `model.NAME` for those of `model.safetensors` and of its shards, so that what did not change
is not stored again, and so that they are read as any other tensors. Large other files become tensors of bytes; small ones lie in
one object.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from . import _safetensors
from ._raw import Raw
from ._repository import Checkpoint
from ._values import Plain
from .errors import Corrupt, InvalidArgument

#: What a checkpoint calls the list of its files.
FILES = "folder:files"
#: Bytes up to which a file lies in that list.
_INLINE = 256 << 10


class Incomplete(Exception):
    """A file that has not been written to its end."""


def state_of(folder: str | os.PathLike) -> dict[str, Any]:
    """All files of `folder`, which one process saves for its whole job. They are mapped into memory, not read: what is in them
    may change once the save is staged, and they may be removed at any time.

    Raises InvalidArgument when a file was visibly not written to its end, or is a link or the like."""
    folder = Path(folder)
    state: dict[str, Any] = {}
    files = []
    for path in _files(folder):
        try:
            files.append(_file(path, path.relative_to(folder).as_posix(), state))
        except Incomplete as error:
            raise InvalidArgument(f"{path} was not written to its end: {error}") from None
    state[FILES] = Plain(files)
    return state


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if not stat.S_ISREG(path.lstat().st_mode):
                raise InvalidArgument(f"{path} is not a plain file; links are not followed")
            yield path


def _file(path: Path, name: str, state: dict[str, Any]) -> dict[str, Any]:
    """How a file is kept; what is large of it goes into `state`."""
    size = path.stat().st_size
    if path.suffix == ".safetensors":
        found = _tensors_of(path, name, size, state)
        if found is not None:
            return found
    if size <= _INLINE:
        data = path.read_bytes()
        _check(path, data)
        return {"path": name, "size": len(data), "data": data}
    _check(path, None)
    unique = _unique(name, state)
    state[unique] = Raw("u8", (size,), _mapped(path, size))
    return {"path": name, "size": size, "name": unique}


def _tensors_of(path: Path, name: str, size: int, state: dict[str, Any]) -> dict[str, Any] | None:
    memory = _mapped(path, size)
    try:
        header = _safetensors.header_of(memory, size)
        found = _safetensors.parts(header, size)
    except _safetensors.Cut as error:
        raise Incomplete(error) from None
    if found is None:
        return None
    prefix, names = _prefix(name), []
    for part in found:
        names.append(_unique(f"{prefix}.{part.name}", state))
        state[names[-1]] = Raw(part.dtype, part.shape, memory[part.begin : part.end])
    return {"path": name, "size": size, "header": header, "names": names}


def _unique(name: str, state: dict[str, Any]) -> str:
    while name in state:
        name += "'"
    return name


def _prefix(name: str) -> str:
    """What tensors of a file are called after: `model` for model.safetensors, and for model-00001-of-00003.safetensors."""
    bare = name.removesuffix(".safetensors")
    parts = bare.rsplit("-", 3)
    return parts[0] if len(parts) == 4 and parts[2] == "of" and (parts[1] + parts[3]).isdigit() else bare


def _check(path: Path, data: bytes | None) -> None:
    """Looks whether a file ends as files of its kind do. Raises Incomplete."""
    if path.suffix == ".json" and data is not None:
        try:
            json.loads(data)
        except ValueError as error:
            raise Incomplete(error) from None
    elif path.suffix in (".pt", ".pth", ".bin"):
        with path.open("rb") as file:
            if file.read(2) == b"PK" and not zipfile.is_zipfile(path):
                raise Incomplete("it begins as an archive and has no end of one")


def _mapped(path: Path, size: int) -> memoryview:
    """Its bytes, for reading. They stay even if the file is removed meanwhile."""
    if size == 0:
        return memoryview(b"")
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))


def materialize(checkpoint: Checkpoint, folder: str | os.PathLike, *, replace: bool = False) -> Path:
    """Writes the folder that was saved as `checkpoint` to `folder`, byte for byte: beside it first, and renamed when it is whole.
    One process does it. `replace` allows that a folder of that name is there; it is removed.

    Raises InvalidArgument when the checkpoint was not a folder, or when there is one; Corrupt, Expired, Unreachable."""
    folder = Path(folder)
    if checkpoint.native.entry(FILES) is None:
        raise InvalidArgument(f"{checkpoint} was not saved from a folder: load it as a state")
    if folder.exists() and not replace:
        raise InvalidArgument(f"{folder} is there already: give another one, or replace=True")
    fresh, old = folder.with_name(f".{folder.name}.everstep"), folder.with_name(f".{folder.name}.replaced")
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    try:
        fresh.mkdir(parents=True)
        _write_files(checkpoint, fresh)
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    _sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)
    return folder


def _write_files(checkpoint: Checkpoint, folder: Path) -> None:
    targets: dict[str, Any] = {}
    maps = []
    for described in checkpoint.value(FILES):
        path = folder / _inside(checkpoint, described["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        if "data" in described:
            path.write_bytes(described["data"])
        elif described["size"] > 0:
            maps.append(_room(path, described["size"]))
            targets |= _targets(checkpoint, described, maps[-1])
        else:
            path.touch()
    if targets:
        checkpoint.load(targets, strict=False)
    for memory in maps:
        memory.flush()
    for path in folder.rglob("*"):
        _sync(path)
    _sync(folder)


def _inside(checkpoint: Checkpoint, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise Corrupt(f"{checkpoint} has a file called {name!r}, which would lie outside of its folder")
    return Path(path)


def _room(path: Path, size: int) -> mmap.mmap:
    """A new file of so many bytes, mapped. The room is taken at once: a full disk is an error here, not a signal later."""
    with path.open("xb+") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        return mmap.mmap(file.fileno(), size)


def _targets(checkpoint: Checkpoint, described: dict[str, Any], memory: mmap.mmap) -> dict[str, Raw]:
    """Where in a file each tensor goes; its header is written."""
    view, size = memoryview(memory), described["size"]
    if "name" in described:
        return {described["name"]: Raw("u8", (size,), view)}
    header = described["header"]
    try:
        found = _safetensors.parts(header, size)
    except _safetensors.Cut as error:
        raise Corrupt(f"{checkpoint}: {described['path']}: {error}") from None
    if found is None or len(found) != len(described["names"]):
        raise Corrupt(f"{checkpoint}: the header of {described['path']} does not fit its tensors")
    view[: len(header)] = header
    return {
        name: Raw(part.dtype, part.shape, view[part.begin : part.end]) for name, part in zip(described["names"], found)
    }


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
