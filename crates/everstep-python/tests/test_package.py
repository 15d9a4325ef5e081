"""The package as such: what it offers is what it says, and what its pages show works."""

import ast
import inspect
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import everstep
import pytest
import torch
from children import run_child
from everstep import _everstep, errors
from everstep._label import job_label

PACKAGE = Path(everstep.__file__).parent


def stubs() -> dict[str, ast.AST]:
    """Functions, classes and their members of the stub, by dotted name."""
    found = {}
    for node in ast.parse((PACKAGE / "_everstep.pyi").read_text()).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found[node.name] = node
        for member in getattr(node, "body", []) if isinstance(node, ast.ClassDef) else []:
            if isinstance(member, ast.FunctionDef):
                found[f"{node.name}.{member.name}"] = member
            elif isinstance(member, ast.AnnAssign):
                found[f"{node.name}.{member.target.id}"] = member
    return found


STUBS = stubs()


def compiled(name: str):
    here = _everstep
    for part in name.split("."):
        here = inspect.getattr_static(here, part) if inspect.isclass(here) else getattr(here, part)
    return here


@pytest.mark.parametrize("name", STUBS)
def test_the_stub_is_true_of(name):
    if name.endswith("__buffer__"):
        return memoryview(_everstep.Region(b"", 0, 0)).release()
    node, found = STUBS[name], compiled(name)
    if isinstance(node, ast.ClassDef):
        assert inspect.isclass(found)
    elif isinstance(node, ast.AnnAssign) or any(
        getattr(d, "id", "") == "property" for d in node.decorator_list
    ):
        assert inspect.isdatadescriptor(found), f"{name} is no attribute"
    elif name.endswith("__new__"):
        assert arguments(node)[1:] == list(inspect.signature(compiled(name.split(".")[0])).parameters)
    else:
        function = found.__func__ if isinstance(found, staticmethod) else found
        assert [a for a in arguments(node) if a != "self"] == [
            p for p in inspect.signature(function).parameters if p != "self"
        ]


def arguments(node: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]


def test_the_stub_leaves_nothing_out():
    public = [name for name in vars(_everstep) if not name.startswith("_")]
    assert [name for name in public if name not in STUBS] == []
    for name in public:
        if inspect.isclass(found := getattr(_everstep, name)):
            assert [m for m in vars(found) if not m.startswith("_") and f"{name}.{m}" not in STUBS] == [], (
                name
            )


def test_every_file_compiles_for_this_python(tmp_path):
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-m", "compileall", "-q", "-f", str(PACKAGE)]
    assert subprocess.run(command, env=environment, capture_output=True, text=True).stdout == ""


def test_importing_the_package_imports_no_framework_and_no_library_of_arrays():
    names = ("torch", "numpy", "jax", "lightning", "transformers", "safetensors")
    check = f"import everstep, everstep.folders, sys; print([name for name in {names} if name in sys.modules])"
    assert run_child(check) == "[]\n"


def test_what_is_offered_is_documented_and_there():
    assert sorted(everstep.__all__) == list(everstep.__all__)
    for name in everstep.__all__:
        assert inspect.getdoc(getattr(everstep, name)), name
    assert (PACKAGE / "py.typed").exists()


def test_the_tree_of_errors_is_the_one_that_is_drawn():
    drawn, path = {}, []
    for line in errors.__doc__.splitlines():
        name = line.replace("│", " ").replace("├──", "   ").replace("└──", "   ")
        if not line.startswith("    ") or not name.strip():
            continue
        depth = (len(name) - len(name.lstrip()) - 4) // 4
        path[depth:] = [name.split()[0]]
        drawn[path[-1]] = path[depth - 1] if depth else "Exception"
    real = {
        cls.__name__: cls.__bases__[0].__name__
        for cls in vars(errors).values()
        if inspect.isclass(cls) and issubclass(cls, errors.EverstepError)
    }
    assert drawn == real
    assert set(real) <= set(everstep.__all__)


def test_errors_are_those_that_python_programs_expect():
    for ours, theirs in (
        (everstep.InvalidArgument, ValueError),
        (everstep.NotFound, LookupError),
        (everstep.PermissionDenied, PermissionError),
        (everstep.Unreachable, ConnectionError),
    ):
        assert issubclass(ours, theirs)
    assert {cls.kind for cls in errors.BY_KIND.values()} | {"source"} == set(errors.BY_KIND)


def test_the_example_of_the_package_runs(folder):
    example = everstep.__doc__.split("\n\n", 1)[1].split("\n\nNeither")[0]
    code = textwrap.dedent(example).replace('"s3://bucket/ckpts"', repr(str(folder)))
    assert code.count(repr(str(folder))) == 1
    model = torch.nn.Linear(2, 2)
    names = {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "loss": 1.5}
    exec(compile(code, "example", "exec"), names)
    latest = everstep.Repository(str(folder)).run("gpt").latest()
    assert latest.step == 1000 and latest.metadata == {"loss": 1.5}


LABELS = {
    "a job of ours": ({"EVERSTEP_JOB": "mine", "TORCHELASTIC_RUN_ID": "t", "SLURM_JOB_ID": "7"}, "mine"),
    "torchrun": ({"TORCHELASTIC_RUN_ID": "t", "SLURM_JOB_ID": "7"}, "t"),
    "torchrun without an id": ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "7"}, "slurm-7"),
    "torchrun alone without an id": ({"TORCHELASTIC_RUN_ID": "none"}, None),
    "slurm": ({"SLURM_JOB_ID": "7"}, "slurm-7"),
    "kubernetes": ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "EVERSTEP_JOB_UID": "u"}, "kubernetes-u"),
    "kubernetes by another name": ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_UID": "u"}, "kubernetes-u"),
    "kubernetes without a uid": ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None),
    "a uid outside of kubernetes": ({"JOB_UID": "u"}, None),
    "nothing": ({}, None),
    "empty": ({"EVERSTEP_JOB": "", "SLURM_JOB_ID": ""}, None),
}


@pytest.mark.parametrize("where", LABELS)
def test_a_job_is_labelled_by_its_surroundings(monkeypatch, where):
    for name in (
        "EVERSTEP_JOB",
        "TORCHELASTIC_RUN_ID",
        "SLURM_JOB_ID",
        "KUBERNETES_SERVICE_HOST",
        "EVERSTEP_JOB_UID",
        "JOB_UID",
    ):
        monkeypatch.delenv(name, raising=False)
    variables, wanted = LABELS[where]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert job_label(None) == wanted
    assert job_label("given") == "given"


def test_the_label_decides_who_is_taken_over_silently(folder, monkeypatch):
    monkeypatch.setenv("EVERSTEP_JOB", "one")
    first = everstep.Repository(str(folder)).run("gpt").writer()
    second = everstep.Repository(str(folder)).run("gpt").writer()
    monkeypatch.setenv("EVERSTEP_JOB", "two")
    with pytest.raises(everstep.Conflict):
        everstep.Repository(str(folder)).run("gpt").writer()
    second.close()
    with pytest.raises(everstep.Conflict):
        first.save(1, {})
