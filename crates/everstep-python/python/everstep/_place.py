"""A checkpoint goes into a state, in place: first everything is compared, then read, then put where it belongs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _optimizers, _tensors, _values
from ._collect import is_stateful
from ._quiet import quiet
from ._stored import Rename, Select, Stored
from ._tensors import PerRank, Piece
from .errors import InvalidArgument, SchemaMismatch

#: Bytes of tensors that are loaded beside and then copied (other devices, other layouts, casts) at a time.
_BESIDE_BYTES = 512 << 20

PerRankPolicy = str | Callable[[dict[int, Any], int, int], Any]


@dataclass
class LoadOptions:
    """How strictly a state and a checkpoint must agree."""

    strict: bool = True
    cast: bool | str | Sequence[str] = False
    select: Select = None
    rename: Rename = None
    per_rank: PerRankPolicy = "strict"
    allow_pickle: bool = False
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if not callable(self.per_rank) and self.per_rank not in ("strict", "skip"):
            raise InvalidArgument(f'per_rank is "strict", "skip" or a function, not {self.per_rank!r}')

    def casts(self, name: str) -> bool:
        if isinstance(self.cast, bool):
            return self.cast
        patterns = [self.cast] if isinstance(self.cast, str) else self.cast
        return any(_tensors_match(name, pattern) for pattern in patterns)


def _tensors_match(name: str, pattern: str) -> bool:
    from fnmatch import fnmatchcase

    return fnmatchcase(name, pattern)


@dataclass
class LoadReport:
    """What was loaded."""

    step: int
    tensors: int = 0
    objects: int = 0
    bytes: int = 0
    requests: int = 0
    #: In the state, not stored: left as they were (only when not strict).
    missing: list[str] = field(default_factory=list)
    #: Stored, not in the state (only when not strict).
    unexpected: list[str] = field(default_factory=list)
    #: (name, stored dtype, dtype in the state) of casts that can lose bits.
    lossy_casts: list[tuple[str, str, str]] = field(default_factory=list)


class Placing:
    """One load. `objects` and `pieces` are what the state asks for, by the caller's names."""

    def __init__(self, checkpoint: Any, state: Mapping, options: LoadOptions):
        if not isinstance(state, Mapping):
            raise InvalidArgument(f"the state is a dict of names, not {type(state).__name__}")
        self.checkpoint, self.state, self.options = checkpoint, state, options
        self.stored = Stored(checkpoint.entries(), options.rename, options.select)
        self.pieces: list[tuple[str, Piece]] = []
        self.asked: set[str] = set()
        self.objects: dict[str, Any] = {}
        self.missing: list[str] = []
        self.problems: list[str] = []
        self.prepared: dict[int, Any] = {}
        #: What makes the values that take the place of those that cannot be changed.
        self.replaced: dict[str, Callable[[], Any]] = {}
        self.values: dict[str, Any] = {}
        self.report = LoadReport(step=checkpoint.step)

    def run(self, progress: Any = None) -> LoadReport:
        names: dict[int, str] = {}
        self.parameter_names = lambda: names or names.update(_optimizers.parameter_names(self.state)) or names
        with quiet():
            self._plan_items("", self.state.items())
            direct, beside = self._split()
        self._judge()
        self.values = {name: self._read_object(name, leaf) for name, leaf in self.objects.items()}
        self._load(direct, progress)
        self._load_beside(beside, progress)
        self.report.objects = len(self.values)
        with quiet():
            self._rebuild_items("", self.state)
        return self.report

    # What the state asks for.

    def _plan_items(self, name: str, items: Any) -> None:
        for key, item in items:
            self._plan(f"{name}.{key}" if name else str(key), item)

    def _plan(self, name: str, value: Any) -> None:
        kind = type(value)
        if kind is not dict and kind is not list and kind is not tuple:
            pieces, replace = _tensors.targets(name, value)
            if pieces is not None:
                return self._plan_tensor(name, pieces, replace)
        entry = self.stored.get(name)
        if kind is PerRank or (entry is not None and entry["kind"] == "object"):
            return self._plan_object(name, value, entry)
        if isinstance(value, Mapping):
            if _optimizers.is_numbered(value):
                raise _optimizers.refuse_numbers(name)
            return self._plan_items(name, value.items())
        if kind is list or kind is tuple:
            return self._plan_items(name, enumerate(value))
        if _values.is_named_tuple(value):
            return self._plan_items(name, zip(value._fields, value))
        if _optimizers.is_optimizer(value):
            return self._plan_optimizer(name, value)
        if is_stateful(value):
            inner = self.prepared.setdefault(id(value), value.state_dict())
            return self._plan(name, inner)
        self._plan_object(name, value, entry)

    def _plan_optimizer(self, name: str, optimizer: Any) -> None:
        if not any(self.stored.selected(f"{name}.{part}") for part in ("state", "state.x", "param_groups")):
            return
        named = _optimizers.Named(name, optimizer, self.parameter_names())
        target, missing = named.targets(self.stored)
        self.prepared[id(optimizer)] = (named, target)
        if target["state"]:
            self.missing += missing
        self._plan_items(name, target.items())

    def _plan_tensor(self, name: str, pieces: list[Piece], replace: Callable[[], Any] | None) -> None:
        if not self.stored.selected(name):
            return
        entry = self.stored.get(name)
        if entry is None:
            self.missing.append(name)
        elif entry["kind"] != "tensor":
            self.problems.append(f"{name} is stored as a value, the state has a tensor")
        else:
            self.pieces += [(name, piece) for piece in pieces]
            if replace is not None:
                self.replaced[name] = replace
        self.asked.add(self.stored.name(name))

    def _plan_object(self, name: str, value: Any, entry: dict | None) -> None:
        if not self.stored.selected(name):
            return
        self.asked.add(self.stored.name(name))
        if entry is None:
            self.missing.append(name)
        elif entry["kind"] != "object":
            self.problems.append(f"{name} is stored as a tensor {entry['shape']}, the state has a {type(value).__name__}")
        elif bool(entry["ranks"]) != (type(value) is PerRank):
            wanted = "PerRank" if entry["ranks"] else "a value of the whole job"
            self.problems.append(f"{name} is stored as {wanted}, the state has a {type(value).__name__}")
        elif type(value) is not PerRank or self.options.per_rank != "skip":
            self.objects[name] = value

    # Comparing.

    def _split(self) -> tuple[list, list]:
        """Targets that are filled where they are, and those that are loaded beside and copied."""
        direct, beside = [], []
        for name, piece in self.pieces:
            entry = self.stored.get(name)
            same = entry["dtype"] == piece.dtype
            if tuple(entry["shape"]) != piece.shape:
                self.problems.append(f"{name} is stored as {entry['shape']}, the state has {list(piece.shape)}")
            elif not same and not self.options.casts(name):
                self.problems.append(
                    f"{name} is stored as {entry['dtype']}, the state has {piece.dtype} (cast=True converts)"
                )
            elif same and (region := piece.kind.direct(piece.local, piece.dtype, True)) is not None:
                direct.append(self._target(name, piece, piece.dtype, region))
            elif (why := piece.kind.locked(piece.local)) is not None:
                self.problems.append(f"{name} cannot be loaded in place: {why}")
            else:
                beside.append((name, piece, entry["dtype"]))
            if not same and _tensors.loses_bits(entry["dtype"], piece.dtype):
                self.report.lossy_casts.append((name, entry["dtype"], piece.dtype))
        return direct, beside

    def _target(self, name: str, piece: Piece, dtype: str, region: Any) -> tuple:
        return self.stored.name(name), dtype, piece.shape, piece.offset, piece.extent, region

    def _judge(self) -> None:
        missing, unexpected = sorted(set(self.missing)), self.stored.unexpected(self.asked)
        nothing = bool(self.missing) and not self.pieces and not self.objects
        strictly = self.options.strict and (missing or unexpected)
        if not (strictly or nothing or self.problems):
            self.report.missing, self.report.unexpected = missing, unexpected
            return
        parts = list(self.problems[:20])
        if nothing or self.options.strict:
            parts += [f"missing in the checkpoint: {_listed(missing)}"] if missing else []
            parts += [f"unexpected in the checkpoint: {_listed(unexpected)}"] if unexpected else []
        if nothing and not self.options.strict:
            parts.insert(0, "no name of the state is stored")
        message = f"{self.checkpoint}: " + "; ".join(parts) + self.stored.hint(missing)
        raise SchemaMismatch(message, tuple(missing), tuple(unexpected))

    # Reading.

    def _read_object(self, name: str, leaf: Any) -> Any:
        options, stored = self.options, self.stored.name(name)
        native = self.checkpoint.native
        if type(leaf) is not PerRank:
            return _values.restore(name, native.object(stored, None, None), options.allow_pickle)
        if options.per_rank == "strict":
            found = native.object(stored, options.rank, options.world_size)
            return _values.restore(name, found, options.allow_pickle)
        ranks = self.stored.get(name)["ranks"]
        saved = {rank: _values.restore(name, native.object(stored, rank, None), options.allow_pickle) for rank in ranks}
        return options.per_rank(saved, options.rank, options.world_size)

    def _load(self, targets: list, progress: Any) -> None:
        if not targets:
            return
        report = self.checkpoint.native.load(targets, None, False, progress)
        self.report.tensors += report["tensors"]
        self.report.bytes += report["bytes"]
        self.report.requests += report["requests"]

    def _load_beside(self, beside: list, progress: Any) -> None:
        batch, size = [], 0
        for name, piece, dtype in beside:
            batch.append((name, piece, _fresh(piece, dtype)))
            size += _bytes(dtype, piece.extent)
            if size >= _BESIDE_BYTES:
                self._load_batch(batch, progress)
                batch, size = [], 0
        self._load_batch(batch, progress)

    def _load_batch(self, batch: list, progress: Any) -> None:
        targets = []
        for name, piece, fresh in batch:
            (found,) = _tensors.pieces(name, fresh)
            targets.append(self._target(name, piece, found.dtype, found.kind.direct(fresh, found.dtype, True)))
        self._load(targets, progress)
        for name, piece, fresh in batch:
            try:
                piece.kind.assign(piece.local, fresh)
            except RuntimeError as error:
                raise InvalidArgument(f"{name}: cannot be loaded in place: {error}") from None

    # Putting values where they belong.

    def _rebuild(self, name: str, value: Any) -> Any:
        if name in self.values:
            loaded = self.values[name]
            if type(value) is PerRank:
                _give(value, loaded)
                return value
            if not _is_container(value) and is_stateful(value):
                value.load_state_dict(loaded)
                return value
            return _values.put(value, loaded)
        if isinstance(value, Mapping):
            return self._rebuild_items(name, value)
        if type(value) is list:
            value[:] = [self._rebuild(f"{name}.{i}", item) for i, item in enumerate(value)]
            return value
        if type(value) is tuple:
            return tuple(self._rebuild(f"{name}.{i}", item) for i, item in enumerate(value))
        if _values.is_named_tuple(value):
            return type(value)(*(self._rebuild(f"{name}.{key}", item) for key, item in zip(value._fields, value)))
        if id(value) in self.prepared:
            self._hand_over(name, value)
        elif name in self.replaced:
            return self.replaced[name]()
        return value

    def _rebuild_items(self, name: str, items: Any) -> Any:
        for key, item in list(items.items()):
            rebuilt = self._rebuild(f"{name}.{key}" if name else str(key), item)
            if rebuilt is not item:
                items[key] = rebuilt
        return items

    def _hand_over(self, name: str, value: Any) -> None:
        prepared = self.prepared[id(value)]
        if _optimizers.is_optimizer(value):
            named, target = prepared
            named.load_state_dict(self._rebuild(name, target))
        elif not _is_in_place(value, self._rebuild(name, prepared)):
            value.load_state_dict(prepared)


def _give(own: PerRank, loaded: Any) -> None:
    if is_stateful(own.value):
        own.value.load_state_dict(loaded)
    else:
        own.value = loaded


def _is_container(value: Any) -> bool:
    return isinstance(value, Mapping) or type(value) in (list, tuple)


def _is_in_place(value: Any, state: Any) -> bool:
    """Whether `state` is the very memory of the module `value`, so that copying it there would change nothing."""
    torch = _tensors.library("torch")
    if torch is None or not isinstance(value, torch.nn.Module):
        return False
    own = dict(value.named_parameters(remove_duplicate=False)) | dict(value.named_buffers(remove_duplicate=False))
    return all(name in own and _memory(own[name]) == _memory(tensor) is not None for name, tensor in state.items())


def _memory(tensor: Any) -> Any:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return (local.data_ptr(), local.stride()) if hasattr(local, "data_ptr") else None


def _fresh(piece: Piece, dtype: str) -> Any:
    """Host memory for the box of `piece`, of element type `dtype`."""
    if dtype == piece.dtype:
        return piece.kind.fresh(piece.local)
    from . import _numpy_arrays

    numpy = _tensors.library("numpy")
    if numpy is not None and isinstance(piece.local, numpy.ndarray):
        from . import _numpy_arrays

        return _numpy_arrays.empty(dtype, piece.extent)
    from . import _torch_tensors

    return _torch_tensors.empty(dtype, piece.extent)


def _bytes(dtype: str, extent: Sequence[int]) -> int:
    elements = 1
    for size in extent:
        elements *= size
    return elements * _tensors.BITS.get(dtype, 8) // 8


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:10])
    return f"[{shown}]" if len(names) <= 10 else f"[{shown}, ... {len(names) - 10} more]"
