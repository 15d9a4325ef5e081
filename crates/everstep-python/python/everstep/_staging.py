"""Copies of a state in host memory that is kept from save to save, so that the trainer may go on."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from math import prod
from typing import Any

from . import _everstep, _tensors
from ._collect import Collected
from ._quiet import quiet

#: Where tensors begin in a buffer: a multiple of this.
_ALIGN = 64


class Buffers:
    """Buffers for as many saves as may be on their way at once."""

    def __init__(self, count: int, threads: int):
        self._threads, self._free, self._lock = threads, [], threading.Lock()
        self._made, self._count = 0, count

    def take(self) -> Buffer:
        """A free buffer; there is one, since no more saves than buffers are on their way."""
        with self._lock:
            if self._free:
                return self._free.pop()
            self._made += 1
            return Buffer(self._threads)

    def give_back(self, buffer: Buffer) -> None:
        with self._lock:
            self._free.append(buffer)


class Buffer:
    """One state's worth of host memory. Pages are touched when it grows, and pinned where CUDA is there."""

    def __init__(self, threads: int):
        self._arena, self._pinned = _everstep.Arena(threads), None
        #: Of each CUDA device, what copies from there run on.
        self._streams: dict[Any, Any] = {}

    def plan(self, collected: Collected) -> Staging:
        """Room for everything in `collected`."""
        offset, places = 0, []
        with quiet():
            for _, _, piece in collected.pieces:
                length = byte_length(piece)
                places.append((offset, length))
                offset += -(-length // _ALIGN) * _ALIGN
        if offset > self._arena.length:
            self._unpin()
        self._arena.reserve(max(offset, 1))
        return Staging(self._arena, collected, places, self._follow([piece.local for _, _, piece in collected.pieces]))

    def _follow(self, tensors: list[Any]) -> list[Any]:
        """The streams that copy from CUDA devices. They wait for what the caller has queued on its own, and for nothing
        that comes later: a thread that copies would know neither."""
        devices = {tensor.device for tensor in tensors if _on_cuda(tensor)}
        if not devices:
            return []
        torch = _tensors.library("torch")
        self._pin(torch.cuda.cudart())
        for device in devices:
            stream = self._streams.setdefault(device, torch.cuda.Stream(device))
            stream.wait_stream(torch.cuda.current_stream(device))
        return [self._streams[device] for device in devices]

    def _pin(self, cudart: Any) -> None:
        """Registers the memory with CUDA, so that copies to it run by themselves."""
        memory = (self._arena.address, self._arena.length)
        if self._pinned != memory:
            self._unpin()
            self._pinned = memory if int(cudart.cudaHostRegister(*memory, 0)) == 0 else None

    def _unpin(self) -> None:
        if self._pinned is not None:
            _tensors.library("torch").cuda.cudart().cudaHostUnregister(self._pinned[0])
            self._pinned = None


class Staging:
    """The copying of one state."""

    def __init__(self, arena: _everstep.Arena, collected: Collected, places: list[tuple[int, int]], streams: list[Any]):
        self._arena, self._collected, self._places, self._streams = arena, collected, places, streams

    def copy(self) -> list[tuple]:
        """Copies, and gives the shards of the copies. Releases the originals."""
        direct, shards = [], []
        with quiet(), contextlib.ExitStack() as on_streams:
            for stream in self._streams:
                on_streams.enter_context(_tensors.library("torch").cuda.stream(stream))
            for (name, alias, piece), (offset, length) in zip(self._collected.pieces, self._places):
                region = piece.kind.direct(piece.local, piece.dtype, False)
                if region is not None:
                    direct.append((offset, region))
                else:
                    self._copy_slowly(piece, offset, length)
                shards.append(shard(name, alias, piece, self._arena.region(offset, length)))
        self._arena.copy(direct)
        for stream in self._streams:
            stream.synchronize()
        self._collected.pieces = []
        return shards

    def _copy_slowly(self, piece: Any, offset: int, length: int) -> None:
        """By the library itself: other devices, layouts, byte orders. Copies from CUDA are only begun."""
        torch = _tensors.library("torch")
        if torch is None or not isinstance(piece.local, torch.Tensor):
            compact = piece.kind.compact(piece.local)
            self._arena.copy([(offset, piece.kind.direct(compact, piece.dtype, False))])
        elif length:
            memory = (ctypes.c_char * length).from_address(self._arena.address + offset)
            into = torch.frombuffer(memory, dtype=piece.local.dtype).view(piece.local.shape)
            with torch.no_grad():
                into.copy_(piece.local, non_blocking=True)


def _on_cuda(tensor: Any) -> bool:
    return getattr(getattr(tensor, "device", None), "type", "cpu") == "cuda"


def byte_length(piece: Any) -> int:
    """Bytes of its box."""
    return (prod(piece.extent) * _tensors.BITS[piece.dtype] + 7) // 8


def shard(name: str, alias: str | None, piece: Any, region: _everstep.Region) -> tuple:
    """As the compiled half takes it."""
    return name, piece.dtype, piece.shape, piece.offset, piece.extent, alias, piece.replicas, region


def in_place(collected: Collected) -> list[tuple]:
    """Shards over the state's own memory; compact copies only of what does not lie row by row in host memory."""
    shards = []
    with quiet():
        for name, alias, piece in collected.pieces:
            region = piece.kind.direct(piece.local, piece.dtype, False)
            if region is None:
                region = piece.kind.direct(piece.kind.compact(piece.local), piece.dtype, False)
            shards.append(shard(name, alias, piece, region))
    return shards
