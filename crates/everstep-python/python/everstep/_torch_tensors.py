"""torch tensors as pieces: plain ones, DTensor, ShardedTensor, and what describes its own chunks for checkpointing."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import torch

from ._everstep import Region
from ._tensors import Kind, Piece, Replicas
from .errors import InvalidArgument

_NAMES = {
    theirs: ours
    for name, ours in {
        "bool": "bool", "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32",
        "uint64": "u64", "int64": "i64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
        "complex64": "complex64", "complex128": "complex128", "float8_e4m3fn": "float8_e4m3fn",
        "float8_e4m3fnuz": "float8_e4m3fnuz", "float8_e5m2": "float8_e5m2", "float8_e5m2fnuz": "float8_e5m2fnuz",
        "float8_e8m0fnu": "float8_e8m0fnu", "float4_e2m1fn_x2": "float4_e2m1",
    }.items()
    if (theirs := getattr(torch, name, None)) is not None
}
_OF_NAMES = {ours: theirs for theirs, ours in _NAMES.items()}
_PLAIN = {torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.nn.Parameter)}
_HOST = torch.device("cpu")


def cutter(kind: type) -> Callable[[str, Any], list[Piece]]:
    """How tensors of a type become pieces."""
    if kind in _PLAIN:
        return _alone
    if hasattr(kind, "placements") and hasattr(kind, "device_mesh"):
        return _distributed
    if hasattr(kind, "__create_chunk_list__"):
        return _chunked
    return _refused


def _alone(name: str, tensor: torch.Tensor) -> list[Piece]:
    described = tensor.__dict__
    return _described(name, tensor) if described and "global_offsets" in described else [_plain(name, tensor)]


def _described(name: str, tensor: Any) -> list[Piece]:
    """A plain tensor that says which boxes of a global one lie in it (torch's CheckpointableTensor)."""
    found = []
    for at, start, size in zip(tensor.global_offsets, tensor.local_offsets, tensor.local_sizes, strict=True):
        box = tuple(slice(offset, offset + extent) for offset, extent in zip(start, size, strict=True))
        piece = _plain(name, tensor.detach()[box] if box else tensor)
        piece.shape, piece.offset, piece.replicas = tuple(tensor.global_shape), tuple(at), None
        found.append(piece)
    return found


def _refused(name: str, tensor: torch.Tensor) -> NoReturn:
    raise InvalidArgument(
        f"{name}: tensors of type {type(tensor).__module__}.{type(tensor).__qualname__} are not known, and its memory "
        "alone may not be all of it: give a plain tensor, or everstep.Shard"
    )


def _plain(name: str, tensor: torch.Tensor) -> Piece:
    dtype = _NAMES.get(tensor.dtype)
    if dtype is None or tensor.layout is not torch.strided or tensor.is_meta:
        found = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}"
        raise InvalidArgument(f"{name}: a tensor of {found} cannot be kept; convert it to a dense one with memory")
    shape = tuple(tensor.shape)
    if dtype == "float4_e2m1":
        if not shape:
            raise InvalidArgument(f"{name}: a packed tensor needs a dimension")
        shape = (*shape[:-1], shape[-1] * 2)
    return Piece(dtype, shape, (0,) * len(shape), shape, "all", tensor, KIND)


def own_memory(name: str, tensor: Any) -> Piece:
    """The piece that a tensor is by itself, wherever that belongs. Refuses what may have more to it than its memory."""
    if type(tensor).__name__ == "AsyncCollectiveTensor":
        tensor = tensor.wait()
    return _plain(name, tensor) if type(tensor) in _PLAIN else _refused(name, tensor)


def of_stored(dtype: str, shape: tuple[int, ...]) -> tuple[Any, torch.Size] | None:
    """What torch calls a stored element type, and how large it says such a tensor is; None if it does not know the type."""
    theirs = _OF_NAMES.get(dtype)
    packed = dtype == "float4_e2m1"
    return theirs and (theirs, torch.Size((*shape[:-1], shape[-1] // 2) if packed else shape))


def elements(dtype: str, sizes: Any) -> tuple[int, ...]:
    """Sizes or offsets as the format counts them, of those that torch counts: in a packed tensor an element is two."""
    sizes = tuple(sizes)
    return (*sizes[:-1], sizes[-1] * 2) if dtype == "float4_e2m1" else sizes


def _distributed(name: str, tensor: Any) -> list[Piece]:
    local = tensor.to_local()
    if type(local).__name__ == "AsyncCollectiveTensor":
        local = local.wait()
    if type(local) not in _PLAIN:
        raise InvalidArgument(f"{name}: a DTensor of {type(local).__qualname__} is not known")
    piece, shape = _plain(name, local), tuple(tensor.shape)
    layout = _layout(name, tensor)
    if layout is None:  # this rank is outside of the mesh
        return []
    offset, extent, replicas = layout
    if extent != piece.extent:
        found = f"its placements say {list(extent)}, its local tensor has {list(piece.extent)}"
        raise InvalidArgument(f"{name}: {found}")
    piece.shape, piece.offset, piece.replicas = shape, offset, replicas
    return [piece]


def _layout(name: str, tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...], Replicas] | None:
    mesh, placements = tensor.device_mesh, tuple(tensor.placements)
    if any(placement.is_partial() for placement in placements):
        raise InvalidArgument(f"{name}: a DTensor with partial sums is no state; redistribute it first")
    return _layout_of(mesh, placements, tuple(tensor.shape))


@lru_cache(maxsize=65536)
def _layout_of(mesh: Any, placements: tuple, shape: tuple[int, ...]) -> tuple | None:
    """Offset, extent and the ranks that hold the same box."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return None
    extent, offset = compute_local_shape_and_global_offset(torch.Size(shape), mesh, placements)
    same = tuple(slice(None) if p.is_replicate() else c for p, c in zip(placements, coordinate))
    ranks = tuple(sorted(mesh.mesh[same].flatten().tolist()))
    # An empty box has no place of its own.
    offset = tuple(min(o, s) for o, s in zip(offset, shape))
    return offset, tuple(extent), None if len(ranks) == 1 else ranks


def _chunked(name: str, tensor: Any) -> list[Piece]:
    found = []
    for chunk in tensor.__create_chunk_list__():
        offset, extent = tuple(chunk.offsets), tuple(chunk.sizes)
        local = tensor.__get_tensor_shard__(_index(name, chunk))
        piece = _plain(name, local)
        piece.shape, piece.offset, piece.extent, piece.replicas = tuple(tensor.shape), offset, extent, None
        found.append(piece)
    return found


def _index(name: str, chunk: Any) -> Any:
    from torch.distributed.checkpoint.metadata import MetadataIndex

    return MetadataIndex(name, chunk.offsets)


def sharded(name: str, value: Any) -> list[Piece] | None:
    """The local shards of a ShardedTensor; None for anything else."""
    from torch.distributed._shard.sharded_tensor import ShardedTensor

    if not isinstance(value, ShardedTensor):
        return None
    shape, found = tuple(value.metadata().size), []
    for shard in value.local_shards():
        piece = _plain(name, shard.tensor)
        piece.shape, piece.offset, piece.replicas = shape, tuple(shard.metadata.shard_offsets), None
        found.append(piece)
    return found


def empty(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A new tensor in host memory."""
    theirs = _OF_NAMES.get(dtype)
    if theirs is None:
        raise InvalidArgument(f"this torch has no element type {dtype}")
    if dtype == "float4_e2m1":
        shape = (*shape[:-1], shape[-1] // 2)
    return torch.empty(shape, dtype=theirs)


def is_alike(dtype: str, tensor: torch.Tensor) -> bool:
    """Whether its elements are of this type."""
    return _NAMES.get(tensor.dtype) == dtype


def cast(loaded: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """`loaded` with the element type of `like`."""
    return loaded.to(like.dtype)


def _direct(tensor: torch.Tensor, _: str, __: bool) -> Region | None:
    if tensor.device != _HOST or not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        return None
    return Region(tensor, tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().to(_HOST).contiguous()


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def _assign(tensor: torch.Tensor, loaded: Any) -> None:
    with torch.no_grad():
        tensor.copy_(loaded)


def _locked(tensor: torch.Tensor) -> str | None:
    shared = any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride()))
    return "several of its elements are one place in memory (it is expanded)" if shared and tensor.numel() else None


def _address(tensor: torch.Tensor) -> int | None:
    return tensor.data_ptr() or None


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.device == other.device
        and one.is_conj() == other.is_conj()
        and one.is_neg() == other.is_neg()
    )


KIND = Kind(_direct, _compact, _fresh, _assign, _locked, _address, _same)
