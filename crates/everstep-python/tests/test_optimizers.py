"""C12: an optimizer's state follows the names of parameters, whatever their order and whatever is frozen."""

import everstep
import pytest
import torch


class Model(torch.nn.Module):
    def __init__(self, order="abc", extra=False):
        super().__init__()
        shapes = {"a": (4, 4), "b": (4,), "c": (2, 4)}
        for name in order:
            setattr(self, name, torch.nn.Parameter(torch.randn(shapes[name])))
        if extra:
            self.extra = torch.nn.Parameter(torch.randn(2))

    def loss(self):
        return sum((parameter**2).sum() for parameter in self.parameters() if parameter.requires_grad)


def train(model, optimizer, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss().backward()
        optimizer.step()


def trained(seed=0, freeze="c", make=torch.optim.AdamW, order="abc", **options):
    torch.manual_seed(seed)
    model = Model(order)
    for name in freeze:
        getattr(model, name).requires_grad_(False)
    optimizer = make(model.parameters(), **{"lr": 0.1, **options})
    train(model, optimizer)
    return model, optimizer


def moments(model, optimizer):
    named = {name: optimizer.state.get(parameter, {}) for name, parameter in model.named_parameters()}
    return {
        name: {key: value.clone() for key, value in state.items()} for name, state in named.items() if state
    }


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, state in one.items():
        assert state.keys() == other[name].keys()
        for key, value in state.items():
            assert torch.equal(value, other[name][key]) and value.dtype == other[name][key].dtype, (name, key)


def test_c12_state_follows_names_into_another_order(save):
    model, optimizer = trained()
    model.b.requires_grad_(False)  # trained, then frozen
    checkpoint = save({"model": model, "optim": optimizer})
    torch.manual_seed(9)
    other = Model("cab")
    for name in "bc":
        getattr(other, name).requires_grad_(False)
    into = torch.optim.AdamW([{"params": [other.c, other.a, other.b]}], lr=0.5)
    checkpoint.load({"model": other, "optim": into})
    assert_same(moments(model, optimizer), moments(other, into))
    assert other.c not in into.state and set(moments(other, into)) == {"a", "b"}
    step = into.state[other.a]["step"]
    assert step.shape == () and step.dtype == torch.float32 and step == 2
    assert into.param_groups[0]["lr"] == 0.1


def test_c12_training_goes_on_as_if_it_had_not_stopped(save):
    model, optimizer = trained(freeze="")
    checkpoint = save({"model": model, "optim": optimizer})
    other, into = trained(seed=5, freeze="", order="cba")
    checkpoint.load({"model": other, "optim": into})
    train(model, optimizer, 3)
    train(other, into, 3)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, dict(other.named_parameters())[name])


def test_c12_a_trainable_parameter_without_state_is_named(save):
    model, optimizer = trained()
    checkpoint = save({"model": model, "optim": optimizer})
    other, into = trained(freeze="")
    before = moments(other, into)
    with pytest.raises(everstep.SchemaMismatch, match=r"optim\.state\.c") as refused:
        checkpoint.load({"model": other, "optim": into})
    assert refused.value.missing == ("optim.state.c",)
    assert_same(before, moments(other, into))
    report = checkpoint.load({"model": other, "optim": into}, strict=False)
    assert report.missing == ["optim.state.c"]
    assert_same(
        moments(model, optimizer),
        {name: state for name, state in moments(other, into).items() if name != "c"},
    )


def test_c12_numbers_without_names_are_refused_with_a_hint(run):
    model, optimizer = trained()
    with run.writer() as writer:
        for state in (
            {"optim": optimizer.state_dict()},
            {"model": model, "deep": [{"o": optimizer.state_dict()}]},
        ):
            with pytest.raises(everstep.InvalidArgument, match="numbers instead of names"):
                writer.save(1, state)
        with pytest.raises(everstep.InvalidArgument, match="put the model into the state"):
            writer.save(1, {"optim": optimizer})
    assert run.latest() is None


def test_c12_numbers_are_refused_as_a_target_as_well(save):
    model, optimizer = trained()
    checkpoint = save({"model": model, "optim": optimizer})
    with pytest.raises(everstep.InvalidArgument, match="numbers instead of names"):
        checkpoint.load({"model": model, "optim": optimizer.state_dict()})


def test_c12_the_state_dict_api_of_torch_gives_names(save):
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    model, optimizer = trained(freeze="")
    checkpoint = save({"model": model, "optim": get_optimizer_state_dict(model, optimizer)})
    other, into = trained(seed=3, freeze="")
    state = get_optimizer_state_dict(other, into)
    checkpoint.load({"model": other, "optim": state})
    set_optimizer_state_dict(other, into, state)
    assert_same(moments(model, optimizer), moments(other, into))


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.SGD, {}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.Adafactor, {}),
        (torch.optim.RMSprop, {"centered": True}),
        (torch.optim.Adagrad, {}),
    ],
    ids=lambda part: part.__name__ if isinstance(part, type) else "-".join(part) or "plain",
)
def test_c12_other_optimizers_come_back(save, make, options):
    model, optimizer = trained(freeze="", make=make, **options)
    checkpoint = save({"model": model, "optim": optimizer})
    torch.manual_seed(4)
    other = Model()
    into = make(other.parameters(), lr=0.7, **options)
    checkpoint.load({"model": other, "optim": into})
    train(model, optimizer)
    train(other, into)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, dict(other.named_parameters())[name]), name


def test_c12_groups_keep_their_settings_by_the_names_in_them(save):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(
        [{"params": [model.a], "lr": 0.1}, {"params": [model.b, model.c], "lr": 0.2, "weight_decay": 0.0}]
    )
    train(model, optimizer)
    checkpoint = save({"model": model, "optim": optimizer})
    other = Model()
    into = torch.optim.AdamW([{"params": [other.c, other.b]}, {"params": [other.a]}], lr=0.9)
    checkpoint.load({"model": other, "optim": into})
    assert [(group["lr"], group["weight_decay"]) for group in into.param_groups] == [(0.2, 0.0), (0.1, 0.01)]
    assert_same(moments(model, optimizer), moments(other, into))


def test_a_learning_rate_that_is_a_tensor_comes_back(save):
    model, optimizer = trained(freeze="", lr=torch.tensor(0.25))
    checkpoint = save({"model": model, "optim": optimizer})
    other, into = trained(seed=1, freeze="", lr=torch.tensor(0.5))
    checkpoint.load({"model": other, "optim": into})
    assert torch.is_tensor(into.param_groups[0]["lr"]) and into.param_groups[0]["lr"] == 0.25


def test_the_weights_alone_can_be_loaded_before_the_first_step(save):
    model, optimizer = trained()
    checkpoint = save({"model": model, "optim": optimizer})
    other = Model()
    into = torch.optim.AdamW(other.parameters(), lr=0.5)
    report = checkpoint.load({"model": other, "optim": into}, select="model.*")
    assert report.tensors == 3 and torch.equal(model.a, other.a) and not into.state


def test_two_models_and_their_optimizers_keep_apart(save):
    (gen, gen_opt), (dis, dis_opt) = trained(1, ""), trained(2, "")
    checkpoint = save({"gen": gen, "dis": dis, "opts": {"gen": gen_opt, "dis": dis_opt}})
    (g, g_opt), (d, d_opt) = trained(3, ""), trained(4, "")
    checkpoint.load({"gen": g, "dis": d, "opts": {"gen": g_opt, "dis": d_opt}})
    assert_same(moments(gen, gen_opt), moments(g, g_opt))
    assert_same(moments(dis, dis_opt), moments(d, d_opt))


def test_learning_rate_schedules_go_on(save):
    model, optimizer = trained(freeze="")
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    checkpoint = save({"model": model, "optim": optimizer, "schedule": schedule})
    other, into = trained(seed=6, freeze="")
    resumed = torch.optim.lr_scheduler.CosineAnnealingLR(into, 10)
    checkpoint.load({"model": other, "optim": into, "schedule": resumed})
    for _ in range(3):
        optimizer.step(), schedule.step(), into.step(), resumed.step()
        assert resumed.get_last_lr() == schedule.get_last_lr()
        assert into.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("how", ["function", "prefixes"])
def test_settings_of_groups_follow_parameters_that_were_renamed(save, how):
    class Wrapper(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.module = inner

        loss = property(lambda self: self.module.loss)

    torch.manual_seed(0)
    model = Wrapper(Model())
    groups = [
        {"params": [model.module.a], "lr": 0.1},
        {"params": [model.module.b, model.module.c], "lr": 0.2},
    ]
    optimizer = torch.optim.AdamW(groups)
    train(model, optimizer)
    checkpoint = save({"model": model, "optim": optimizer})
    other = Model()
    into = torch.optim.AdamW([{"params": [other.b, other.c]}, {"params": [other.a]}], lr=0.9)

    def renamed(name):
        for prefix in ("model.", "optim.state."):
            if name.startswith(prefix):
                return f"{prefix}module.{name[len(prefix) :]}"
        return name

    rename = renamed if how == "function" else {"model": "model.module", "optim.state": "optim.state.module"}
    checkpoint.load({"model": other, "optim": into}, rename=rename)
    assert [group["lr"] for group in into.param_groups] == [0.2, 0.1]
    assert_same(moments(model.module, optimizer), moments(other, into))


class Precise(torch.optim.Optimizer):
    """Keeps moments of higher precision than its parameters, which torch's own loading would round."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state.setdefault("sum", torch.zeros_like(parameter, dtype=torch.float32)).add_(
                    parameter.grad.float() / 3
                )


@pytest.mark.parametrize("stepped", [True, False])
def test_c17_moments_keep_their_precision(save, stepped):
    def built(seed):
        torch.manual_seed(seed)
        model = Model().bfloat16()
        return model, Precise(model.parameters())

    model, optimizer = built(0)
    train(model, optimizer, 3)
    checkpoint = save({"model": model, "optim": optimizer})
    other, into = built(1)
    if stepped:
        train(other, into, 1)
    checkpoint.load({"model": other, "optim": into})
    assert moments(model, optimizer)["a"]["sum"].dtype == torch.float32
    assert_same(moments(model, optimizer), moments(other, into))


def test_an_optimizer_that_has_not_made_a_step_is_a_state(save):
    model = Model()
    checkpoint = save({"model": model, "optim": torch.optim.AdamW(model.parameters(), lr=0.125)})
    other, into = trained(seed=2, freeze="")
    checkpoint.load({"model": other, "optim": into})
    assert not into.state and into.param_groups[0]["lr"] == 0.125
    fresh = torch.optim.AdamW(other.parameters())
    checkpoint.load({"model": other, "optim": fresh})
    assert fresh.param_groups[0]["lr"] == 0.125
