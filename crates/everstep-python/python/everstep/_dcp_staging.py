"""One copy of a state for torch.distributed.checkpoint, in host memory that is kept from save to save. Once it has gone to
another process, which moves it to where processes share it, that process needs no copy of its own any more."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import torch

from ._staging import _ALIGN, Buffer
from ._torch_tensors import _PLAIN
from .errors import SetupError

_SHARED = "/dev/shm"
_HUGE_PAGE = 2 << 20
#: Two elements in a byte, which torch cannot copy as such.
_PACKED = getattr(torch, "float4_e2m1fn_x2", None)


class Memory:
    """As `_everstep.Arena`, but a torch storage, which other processes can have too."""

    def __init__(self) -> None:
        self.storage: torch.UntypedStorage | None = None

    @property
    def length(self) -> int:
        return 0 if self.storage is None else self.storage.nbytes()

    @property
    def address(self) -> int:
        return 0 if self.storage is None else self.storage.data_ptr()

    def reserve(self, length: int) -> None:
        """At least so many bytes. Whoever holds tensors in it keeps the old memory."""
        if length > self.length:
            self.storage = None
            self.storage = torch.UntypedStorage(length)
            _want_huge_pages(self.address, length)

    @property
    def is_shared(self) -> bool:
        return self.storage is not None and self.storage.is_shared()

    def share(self) -> None:
        """Moves it, with all tensors in it, to where other processes can have it. There are no huge pages there, as a rule, and
        the first copy into small ones takes several times as long: so the trainer does not wait for it."""
        room = _room()
        if room < self.length:  # touching memory that is not there would end the process
            raise SetupError(
                f"{_SHARED} has room for {room} bytes, and the copy of the state for torch's process has {self.length}: make "
                f"{_SHARED} larger (in a container, its shm size), or save by a thread"
            )
        self.storage.share_memory_()

    def tensor(self, offset: int, like: torch.Tensor) -> torch.Tensor:
        """A tensor of the shape of `like`, row by row, at `offset` (bytes)."""
        found = torch.empty(0, dtype=like.dtype)
        return found.set_(self.storage, offset // found.element_size(), like.shape, _strides(like.shape))


def _strides(shape: torch.Size) -> tuple[int, ...]:
    return tuple(prod(max(size, 1) for size in shape[axis + 1 :]) for axis in range(len(shape)))


def _want_huge_pages(address: int, length: int) -> None:
    """Memory that nobody has touched yet is then filled in a third of the time. Nothing depends on it."""
    start = -(-address // _HUGE_PAGE) * _HUGE_PAGE
    left = address + length - start
    if left >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(left), mmap.MADV_HUGEPAGE)


def _room() -> int:
    """Bytes free where processes share memory."""
    try:
        found = os.statvfs(_SHARED)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


class StagedState(dict):
    """A state that is a copy. As a class of its own it tells when nobody holds it any more; sent to another process, it is a
    plain dict."""

    __slots__ = ("__weakref__", "_buffer")

    def __init__(self, state: Mapping[str, Any], buffer: TorchBuffer):
        super().__init__(state)
        self._buffer = buffer

    def __reduce__(self) -> Any:
        self._buffer.share()
        with torch.no_grad():
            return _unpacked, (_rebuilt(dict(self), _pack),)


class _Described(torch.Tensor):
    """A plain tensor with attributes that say which part of a global tensor it is: they come along when it is sent. What is
    made of it is plain."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _described, (self.as_subclass(torch.Tensor), dict(vars(self)))


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Without those attributes."""
    return tensor.as_subclass(torch.Tensor) if type(tensor) is _Described else tensor


def _described(tensor: torch.Tensor, attributes: dict[str, Any]) -> torch.Tensor:
    tensor = tensor.as_subclass(_Described)
    for name, value in attributes.items():
        setattr(tensor, name, value)
    return tensor


class _Distributed:
    """A DTensor on its way to another process: torch would send the memory that it does not have."""

    def __init__(self, local: torch.Tensor, spec: Any):
        self.local, self.spec = local, spec

    def tensor(self) -> Any:
        from torch.distributed.tensor import DTensor

        return DTensor(self.local, self.spec, requires_grad=False)


class _Sharded:
    """A ShardedTensor in parts, `part` of each shard. Torch would send its process group along, which is another one there,
    and insists that a shard lies on the device where the original has it."""

    def __init__(self, value: Any, part: Callable[[Any], Any]):
        self.spec, self.size = value._sharding_spec, value.metadata().size
        self.dtype = value.metadata().tensor_properties.dtype
        self.parts = [(part(shard.tensor), list(shard.metadata.shard_offsets)) for shard in value.local_shards()]

    def tensor(self) -> Any:
        from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor, ShardMetadata

        like = {"dtype": self.dtype, "layout": torch.strided, "pin_memory": False, "requires_grad": False}
        found = ShardedTensor.__new__(ShardedTensor, self.spec, self.size, **like)
        found._prepare_init()
        for part, offsets in self.parts:
            tensor = _unpack(part)
            found._local_shards.append(Shard(tensor, ShardMetadata(offsets, list(tensor.size()))))
        return found


def _pack(value: Any) -> Any:
    if _is_sharded(value):
        return _Sharded(value, _pack)
    return _Distributed(value.to_local(), value._spec) if _is_distributed(value) else value


def _unpack(value: Any) -> Any:
    return value.tensor() if type(value) in (_Distributed, _Sharded) else value


def _unpacked(state: dict) -> dict:
    return _rebuilt(state, _unpack)


class TorchBuffer(Buffer):
    """One state's worth of memory. It is not written while a save that reads it is on its way."""

    def __init__(self) -> None:
        self._arena, self._pinned = Memory(), None
        self._streams = {}

    def share(self) -> None:
        """With all that was copied into it: see `Memory`."""
        if not self._arena.is_shared:
            self._unpin()
            self._arena.share()

    def stage(self, state: Mapping[str, Any]) -> Callable[[], StagedState]:
        """Makes room for `state`, and gives what copies it."""
        with torch.no_grad():
            sources = list(_plain_tensors(state))
        places: dict[int, int] = {}
        seen: dict[tuple, int] = {}
        end = 0
        for source in sources:
            key = _memory(source)
            places[id(source)] = seen.setdefault(key, end)
            if seen[key] == end:
                end += -(-source.numel() * source.element_size() // _ALIGN) * _ALIGN
        if end > self._arena.length:
            self._unpin()
        self._arena.reserve(max(end, _ALIGN))
        streams = self._follow(sources)
        return lambda: self._copied(state, (sources, places), streams)

    def _copied(self, state: Mapping[str, Any], at: tuple[list, dict], streams: list[Any]) -> StagedState:
        sources, places = at
        copies: dict[int, torch.Tensor] = {}
        written: set[int] = set()
        with torch.no_grad(), contextlib.ExitStack() as on_streams:
            for stream in streams:
                on_streams.enter_context(torch.cuda.stream(stream))
            for source in sources:
                copies[id(source)] = self._arena.tensor(places[id(source)], source)
                if source.numel() and places[id(source)] not in written:
                    _copy(copies[id(source)], source)
                    written.add(places[id(source)])
            for stream in streams:
                stream.synchronize()
            return StagedState(_rebuilt(dict(state), lambda value: _staged(value, copies)), self)


def _copy(into: torch.Tensor, source: torch.Tensor) -> None:
    """Copies from CUDA are only begun."""
    if source.dtype is _PACKED:
        into, source = into.view(torch.uint8), source.view(torch.uint8)
    into.copy_(source, non_blocking=True)


def _memory(tensor: torch.Tensor) -> tuple:
    """The same for tensors that are one: they are copied once. Empty ones have no memory."""
    if not tensor.numel():
        return (id(tensor),)
    where = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.is_conj(), tensor.is_neg())
    return (*where, tensor.shape, tensor.stride())


def _is_distributed(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and hasattr(value, "placements") and hasattr(value, "device_mesh")


def _is_sharded(value: Any) -> bool:
    return type(value).__name__ == "ShardedTensor" and hasattr(value, "local_shards")


def _fits(tensor: torch.Tensor) -> bool:
    """Whether its elements are all there is of it."""
    return type(tensor) in _PLAIN and tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_quantized


def _local(value: Any) -> Any:
    """The memory of a DTensor; gradients are switched off, so that it is the same tensor each time."""
    local = value.to_local()
    return local.wait() if type(local).__name__ == "AsyncCollectiveTensor" else local


def _plain_tensors(value: Any) -> Iterator[torch.Tensor]:
    """The memory of all tensors of a state, as far as it can be copied element by element."""
    if _is_sharded(value):
        for shard in value.local_shards():
            yield from _plain_tensors(shard.tensor)
    elif isinstance(value, torch.Tensor):
        local = _local(value) if _is_distributed(value) else value
        if _fits(local):
            yield local
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _plain_tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _plain_tensors(item)


def _staged(value: Any, copies: dict[int, torch.Tensor]) -> Any:
    """The copy of what is no container."""
    if _is_sharded(value):  # which is a torch.Tensor as well
        return _Sharded(value, lambda part: _staged(part, copies)).tensor()
    if isinstance(value, torch.Tensor):
        return _staged_tensor(value, copies)
    return copy.deepcopy(value)


def _staged_tensor(value: Any, copies: dict[int, torch.Tensor]) -> Any:
    if not _is_distributed(value):
        copied = copies.get(id(value))
        if copied is None:  # a subclass knows best what belongs to it
            return value.detach().clone()
        return _described(copied, vars(value)) if "global_offsets" in vars(value) else copied
    copied = copies.get(id(_local(value)))
    return value.detach().clone() if copied is None else type(value)(copied, value._spec, requires_grad=False)


def _rebuilt(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Containers anew, and `leaf` of everything else."""
    if type(value) in (dict, list, tuple):
        if type(value) is dict:
            return {key: _rebuilt(item, leaf) for key, item in value.items()}
        return type(value)(_rebuilt(item, leaf) for item in value)
    if isinstance(value, dict):
        found = copy.copy(value)
        for key, item in value.items():
            found[key] = _rebuilt(item, leaf)
        return found
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_rebuilt(item, leaf) for item in value))
    return leaf(value)
