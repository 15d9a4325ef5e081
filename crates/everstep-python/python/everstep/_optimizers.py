"""torch optimizers by the names of their parameters: their own state dict numbers them, and numbers change meaning as
soon as a parameter is frozen or the order differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._tensors import library
from .errors import InvalidArgument


def is_optimizer(value: Any) -> bool:
    torch = library("torch")
    return torch is not None and isinstance(value, torch.optim.Optimizer)


def is_numbered(value: Mapping) -> bool:
    """Whether this is an optimizer's own state dict, whose keys are positions."""
    state = value.get("state")
    return "param_groups" in value and isinstance(state, Mapping) and any(type(key) is int for key in state)


def refuse_numbers(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"{name}.state has numbers instead of names of parameters: after any change of order or freezing they would mean "
        f"other parameters. Give the optimizer itself beside its model (state = {{'model': model, 'optim': optimizer}}), "
        "or torch.distributed.checkpoint.state_dict.get_optimizer_state_dict(model, optimizer)"
    )


def parameter_names(state: Any) -> dict[int, str]:
    """Names of the parameters (by id) of the modules in `state`: within their module, if there is only one."""
    torch = library("torch")
    if torch is None:
        return {}
    modules: list[tuple[str, Any]] = []
    _find_modules("", state, modules, torch)
    names = {}
    for path, module in modules:
        prefix = f"{path}." if len(modules) > 1 and path else ""
        for name, parameter in module.named_parameters(remove_duplicate=True):
            names.setdefault(id(parameter), prefix + name)
    return names


def _find_modules(path: str, value: Any, found: list, torch: Any) -> None:
    if isinstance(value, torch.nn.Module):
        found.append((path, value))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _find_modules(f"{path}.{key}" if path else str(key), item, found, torch)
    elif type(value) in (list, tuple):
        for i, item in enumerate(value):
            _find_modules(f"{path}.{i}" if path else str(i), item, found, torch)


class Named:
    """An optimizer's state dict with names for numbers."""

    def __init__(self, name: str, optimizer: Any, names: dict[int, str]):
        self.name, self.optimizer = name, optimizer
        own = optimizer.state_dict()
        self.own = own
        #: number -> (name, parameter)
        self.parameters: dict[int, tuple[str, Any]] = {}
        #: What names are called in the checkpoint, where that differs.
        self.called: dict[str, str] = {}
        for group, described in zip(optimizer.param_groups, own["param_groups"]):
            for parameter, number in zip(group["params"], described["params"]):
                if id(parameter) not in names:
                    raise InvalidArgument(
                        f"{name}: it has a parameter of shape {list(parameter.shape)} that no module in the state has, so "
                        "it has no name: put the model into the state beside its optimizer"
                    )
                self.parameters[number] = (names[id(parameter)], parameter)

    def state_dict(self) -> dict[str, Any]:
        """{"state": {name: {...}}, "param_groups": [{..., "params": [names]}]}"""
        state = {self.parameters[number][0]: values for number, values in self.own["state"].items()}
        return {"state": state, "param_groups": [self._group(group) for group in self.own["param_groups"]]}

    def _group(self, group: dict) -> dict:
        return {**group, "params": [self.parameters[number][0] for number in group["params"]]}

    def targets(self, stored: Any) -> tuple[dict[str, Any], list[str]]:
        """A state dict to load into, with tensors made for what is stored and not there yet; and the names of trainable
        parameters for which nothing is stored."""
        current, state, missing = self.state_dict(), {}, []
        for name, parameter in self.parameters.values():
            below = f"{self.name}.state.{name}."
            self.called[name] = stored.name(below[:-1])
            entries = stored.directly_below(below)
            if entries:
                there = current["state"].get(name, {})
                wanted = {key: entry for key, entry in entries.items() if key in there or stored.selected(below + key)}
                state[name] = {key: _room(key, entry, parameter, there) for key, entry in wanted.items()}
            elif parameter.requires_grad:
                missing.append(below[:-1])
        return {"state": state, "param_groups": current["param_groups"]}, missing

    def load_state_dict(self, loaded: dict[str, Any]) -> None:
        """Hands the optimizer its state, by this process' own numbers. Hyperparameters follow their parameters: groups
        are found by the names in them."""
        numbers = {name: number for number, (name, _) in self.parameters.items()}
        state = {numbers[name]: values for name, values in loaded["state"].items()}
        groups = [self._settings(group, loaded["param_groups"]) for group in self.own["param_groups"]]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self._keep_types(loaded["state"])

    def _keep_types(self, state: dict[str, dict]) -> None:
        """torch gives what it loads the element type of the parameter: moments of higher precision would lose it."""
        torch = library("torch")
        for name, parameter in self.parameters.values():
            kept = self.optimizer.state.get(parameter, {})
            for key, value in state.get(name, {}).items():
                now = kept.get(key)
                if isinstance(value, torch.Tensor) and isinstance(now, torch.Tensor) and now.dtype != value.dtype:
                    kept[key] = value.to(now.device)

    def _settings(self, group: dict, stored: list[dict]) -> dict:
        mine = {name for number in group["params"] for name in self._stored_names(self.parameters[number][0])}
        same = [other for other in stored if mine & set(other["params"])]
        if len(same) > 1 and any(_without(one) != _without(same[0]) for one in same):
            raise InvalidArgument(f"{self.name}: parameters of one group were saved in several with other settings")
        return {**(_without(same[0]) if same else group), "params": group["params"]}


    def _stored_names(self, name: str) -> list[str]:
        """What the parameter may be called in the groups of the checkpoint: what follows `state.` in full names."""
        full = self.called.get(name, f"state.{name}")
        parts = full.split("state.")
        return ["state.".join(parts[at:]) for at in range(1, len(parts))] or [name]


def _without(group: dict) -> dict:
    return {key: value for key, value in group.items() if key != "params"}


def _room(key: str, entry: dict, parameter: Any, there: dict) -> Any:
    """A tensor for one stored entry: the one that is there, or a new one, placed like its parameter if it has its shape."""
    if key in there:
        return there[key]
    if entry["kind"] != "tensor":
        return None
    from . import _torch_tensors

    torch = library("torch")
    if tuple(entry["shape"]) != tuple(parameter.shape) or not parameter.shape:
        return _torch_tensors.empty(entry["dtype"], tuple(entry["shape"]))
    dtype = _torch_tensors.empty(entry["dtype"], ()).dtype
    with torch.no_grad():
        return torch.empty_like(parameter.detach(), dtype=dtype)
