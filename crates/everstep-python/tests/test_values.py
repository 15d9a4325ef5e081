"""What is no tensor: plain values keep their types, nothing is pickled unless both sides ask for it."""

import collections
import enum
import math
import struct
from typing import NamedTuple

import everstep
import numpy as np
import pytest
import torch

NAN = struct.unpack(">d", bytes.fromhex("7ff8000000000123"))[0]

VALUES = {
    "true": True,
    "one": 1,
    "float": 1.0,
    "none": None,
    "text": "äöü \U0001f680",
    "empty": "",
    "bytes": b"\x00\xff",
    "minus": -0.0,
    "big": 2**64,
    "negative": -(2**63) - 1,
    "huge": 10**400,
    "nan": NAN,
    "inf": -math.inf,
    "list": [1, [2, (3,)]],
    "tuple": (1, 2.5),
    "nothing": {},
    "no_list": [],
    "no_tuple": (),
    "dict": {"a": {"b": (True, 1, 1.0)}, 1: "int", 1.5: "float", b"k": "bytes", None: 0},
}


def exact(a, b) -> bool:
    """Whether two values are the same in type and bits, order of dicts included."""
    if type(a) is not type(b):
        return False
    if type(a) is float:
        return struct.pack(">d", a) == struct.pack(">d", b)
    if isinstance(a, dict):
        return len(a) == len(b) and all(exact(x, y) for x, y in zip(a.items(), b.items()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(exact(x, y) for x, y in zip(a, b))
    return a == b


def test_plain_values_keep_their_types(save):
    checkpoint = save({"values": VALUES, **VALUES})
    into = {"values": None, **dict.fromkeys(VALUES)}
    checkpoint.load(into)
    assert exact(into["values"], VALUES)
    for name, value in VALUES.items():
        assert exact(into[name], value), name
        assert exact(checkpoint.value(name), value), name


def test_plain_values_beside_tensors_keep_their_types(save):
    into = {"s": {"t": torch.zeros(2), **dict.fromkeys(VALUES)}}
    save({"s": {"t": torch.ones(2), **VALUES}}).load(into)
    assert into["s"]["t"].tolist() == [1, 1]
    assert all(exact(into["s"][name], value) for name, value in VALUES.items())


def test_containers_of_the_target_stay_what_they_are(save):
    checkpoint = save(
        {
            "ordered": {"b": 1, "a": 2},
            "counter": {"x": 3},
            "list": [1, 2],
            "deep": {"t": torch.ones(1), "l": [5]},
        }
    )
    ordered, counter, listed, deep = collections.OrderedDict(z=0), collections.Counter("yy"), [0], [4]
    into = {"ordered": ordered, "counter": counter, "list": listed, "deep": {"t": torch.zeros(1), "l": deep}}
    checkpoint.load(into)
    assert into["ordered"] is ordered and list(ordered.items()) == [("b", 1), ("a", 2)]
    assert into["counter"] is counter and counter == collections.Counter(x=3)
    assert into["list"] is listed and listed == [1, 2] and into["deep"]["l"] is deep and deep == [5]


def test_subclasses_of_dict_are_saved_by_their_contents(save):
    state = {
        "ordered": collections.OrderedDict(b=1, a=(2,)),
        "counts": collections.Counter("aab"),
        "default": collections.defaultdict(list, k=[1]),
    }
    into = dict.fromkeys(state)
    save(state).load(into)
    assert into == {"ordered": {"b": 1, "a": (2,)}, "counts": {"a": 2, "b": 1}, "default": {"k": [1]}}
    assert list(into["ordered"]) == ["b", "a"]


def test_values_are_saved_as_they_were_when_the_call_was_made(run):
    counters = {"seen": [1, 2]}
    with run.writer() as writer:
        job = writer.save_async(1, {"counters": counters, "w": np.zeros(3)})
        counters["seen"].append(3)
        job.result(60)
    assert run.latest().value("counters") == {"seen": [1, 2]}


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    [{1, 2}, object(), Colour.RED, 1j, range(3), lambda: 0, torch.float32],
    ids=lambda value: type(value).__name__,
)
def test_other_values_are_refused_by_name(run, value):
    with run.writer() as writer:
        for state in ({"a": {"b": [1, value]}}, {"a": {"t": np.zeros(1), "b": [1, value]}}):
            with pytest.raises(everstep.InvalidArgument, match="allow_pickle") as refused:
                writer.save(1, state)
            assert "a" in str(refused.value) and "b" in str(refused.value)
    assert run.latest() is None


def test_pickles_need_consent_on_both_sides(save):
    state = {"set": {1, 2}, "w": torch.ones(1), "nested": {"t": torch.ones(1), "colour": Colour.RED}}
    checkpoint = save(state, allow_pickle=True)
    into = {"set": None, "w": torch.zeros(1), "nested": {"t": torch.zeros(1), "colour": None}}
    with pytest.raises(everstep.InvalidArgument, match="allow_pickle=True"):
        checkpoint.load(into)
    assert into["set"] is None and into["w"].tolist() == [0]
    checkpoint.load(into, allow_pickle=True)
    assert into["set"] == {1, 2} and into["nested"]["colour"] is Colour.RED
    with pytest.raises(everstep.InvalidArgument, match="allow_pickle"):
        checkpoint.value("set")


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


ENDLESS: list = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    "value",
    ["\ud800", deep(200), ENDLESS, {"k": {1: "\udfff"}}],
    ids=["surrogate", "deep", "endless", "within"],
)
def test_values_that_have_no_encoding_are_refused_by_name(run, value):
    with run.writer() as writer:
        for state in ({"conf": value}, {"a": {"t": np.zeros(1), "conf": value}}):
            with pytest.raises(everstep.InvalidArgument, match="itself" if value is ENDLESS else "conf"):
                writer.save(1, state)


def test_a_dict_that_merely_looks_like_a_tensor_stays_a_dict(save):
    odd = [
        {"everstep:tensor": "f32", "shape": [2], "data": b"1234"},
        {"everstep:tensor": "f32", "shape": [2**40], "data": b""},
    ]
    odd += [
        {"everstep:tensor": 1, "shape": [], "data": b"1"},
        {"everstep:tensor": "f32"},
        {"everstep:tensor": "u8", "shape": [-1, -4], "data": b"1234"},
    ]
    into = {"odd": None, "own": everstep.PerRank(None)}
    save({"odd": odd, "own": everstep.PerRank(odd)}).load(into)
    assert into["odd"] == odd and into["own"].value == odd


class Trap:
    def __reduce__(self):
        return exec, ("raise SystemExit('code of a checkpoint was run')",)


def test_c26_no_code_of_a_checkpoint_is_run(save):
    checkpoint = save({"trap": Trap()}, allow_pickle=True)
    for look in (
        lambda: checkpoint.load({"trap": None}),
        lambda: checkpoint.value("trap"),
        checkpoint.entries,
        lambda: checkpoint.manifest,
    ):
        try:
            look()
        except everstep.InvalidArgument as refused:
            assert "pickle" in str(refused)
    with pytest.raises(SystemExit):
        checkpoint.load({"trap": None}, allow_pickle=True)


def test_bytes_that_look_like_a_pickle_stay_bytes(save):
    data = b"everstep-pickle\0cos\nsystem\n"
    into = {"data": None}
    save({"data": data}).load(into)
    assert into["data"] == data


def test_two_parts_of_one_name_are_refused(run):
    states = (
        {"a.b": torch.zeros(1), "a": {"b": torch.zeros(1)}},
        {"a": [torch.zeros(1)], "a.0": torch.zeros(2)},
        {"a": {1: torch.zeros(1), "1": torch.zeros(1)}},
        {"a.b": 1, "a": {"b": torch.zeros(1)}},
        {"a": {"t": torch.zeros(1), 1: "x", "1": "y"}},
    )
    with run.writer() as writer:
        for state in states:
            with pytest.raises(everstep.InvalidArgument, match="two parts of the state are called 'a"):
                writer.save(1, state)


def test_keys_beside_tensors_are_names(run):
    with run.writer() as writer:
        for key in (1.5, None, (1,), True):
            with pytest.raises(everstep.InvalidArgument, match="a key beside tensors is a str or an int"):
                writer.save(1, {"a": {key: torch.zeros(1)}})
        with pytest.raises(everstep.InvalidArgument, match="dict of names"):
            writer.save(1, [torch.zeros(1)])


def test_names_that_are_no_text_are_refused(run):
    with run.writer() as writer:
        for state in ({"\ud800": np.zeros(1)}, {"a": {"\udfff": 1, "t": np.zeros(1)}}, {"\ud800": 1}):
            with pytest.raises(everstep.InvalidArgument, match="is no text"):
                writer.save(1, state)
        with pytest.raises(everstep.InvalidArgument, match="empty"):
            writer.save(1, {"": np.zeros(1)})


def test_metadata_is_kept_and_must_be_json(run):
    with run.writer() as writer:
        with pytest.raises(everstep.InvalidArgument, match="metadata"):
            writer.save(1, {"x": 1}, metadata={"loss": {1, 2}})
        with pytest.raises(everstep.InvalidArgument, match="metadata"):
            writer.save(1, {"x": 1}, metadata={"loss": math.nan})
        writer.save(1, {"x": 1}, metadata={"loss": 1.5, "tags": ["a", None]})
    assert run.latest().metadata == {"loss": 1.5, "tags": ["a", None]}


def test_a_state_without_tensors_and_an_empty_one_are_states(run):
    with run.writer() as writer:
        writer.save(1, {"x": 1})
        writer.save(2, {})
    assert [step for _, step in run.checkpoints()] == [1, 2]
    assert run.latest().entries() == []
    report = run.latest().load({})
    assert (report.tensors, report.objects) == (0, 0)


def test_per_rank_state_of_one_rank_comes_back(save):
    state = {
        "data": everstep.PerRank(
            {"position": 7, "generator": torch.arange(3), "order": (np.float32(1.5), [np.arange(2)])}
        )
    }
    into = {"data": everstep.PerRank(None)}
    save(state).load(into)
    value = into["data"].value
    assert value["position"] == 7 and value["generator"].tolist() == [0, 1, 2]
    assert type(value["order"]) is tuple and value["order"][1][0].tolist() == [0, 1]


def test_names_of_any_text_come_back(save):
    names = [
        "a.b",
        "a/b",
        "a__b",
        "a\\b",
        "../x",
        "W",
        "w",
        "\u00e9",
        "e\u0301",
        "CON",
        "x:y",
        "a b",
        "%41",
        "n\nl",
        "n" * 4000,
        "." * 200,
    ]
    state = {name: np.full(3, index) for index, name in enumerate(names)}
    into = {name: np.zeros(3, int) for name in names}
    save(state).load(into)
    assert [int(array[0]) for array in into.values()] == list(range(len(names)))


class Moments(NamedTuple):
    count: int
    mean: torch.Tensor


class Nothing(NamedTuple):
    pass


def test_named_tuples_are_saved_by_the_names_of_their_items_and_keep_their_class(save):
    state = {"opt": (Moments(3, torch.ones(2)), Nothing()), "plain": ((Nothing(), Nothing()), [1])}
    checkpoint = save(state)
    assert {entry["name"] for entry in checkpoint.entries()} == {"opt.0.count", "opt.0.mean", "opt.1", "plain"}
    mean = torch.zeros(2)
    into = {"opt": (Moments(0, mean), Nothing()), "plain": ((Nothing(), Nothing()), [])}
    checkpoint.load(into)
    (moments, nothing), (inner, numbers) = into["opt"], into["plain"]
    assert type(moments) is Moments and moments.count == 3 and moments.mean is mean and mean.all()
    assert type(nothing) is Nothing and [type(part) for part in inner] == [Nothing, Nothing] and numbers == [1]
