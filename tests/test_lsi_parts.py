"""LSI's parts one by one: head, inversion, translator against discriminator, importance, averages."""

import math
import statistics
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import factories
import pytest
import torch
from factories import count, equal, seeded
from torch import Tensor, nn

from fdgpriv.models.backbone import backbone
from fdgpriv.models.batchnorm import recalibrate, with_fresh_statistics
from fdgpriv.utils.global_rng import drawing_from
from fdgpriv.utils.seeds import generator
from fdgpriv.utils.torchvision_import import torchvision

classifier: Any = import_module("fdgpriv.methods._latent_classifier")
inversion: Any = import_module("fdgpriv.methods._latent_inversion")
translation: Any = import_module("fdgpriv.methods._translator")
importance: Any = import_module("fdgpriv.methods._importance")
part: Any = import_module("fdgpriv.methods.lsi")
network = factories.network(2, act=nn.Tanh)


def how(**changes: Any) -> Any:
    """Stage 2 and 3 of LSI, small."""
    small = {"inversion_batches": 3, "inversion_batch": 5, "inversion_steps": 40, "inversion_lr": 0.05, "hidden": 16}
    return part.LSI(**(small | {"translator_steps": 20, "translator_lr": 1e-3} | changes))


def used_head(p: int = 4, classes: int = 3, seed: int = 1) -> Any:
    """A head whose running statistics are not those of the start."""
    with drawing_from(seeded(seed)):
        head = classifier.Head(p, classes)
        head.norm.running_mean.normal_()
        head.norm.running_var.uniform_(0.5, 2)
    return head


def started(made: Any, p: int = 4) -> Any:
    """One client's latents as they start."""
    return inversion.Latents(made.inversion, inversion.starts_for(made.inversion, p, seeded(0))[None])


# Sizes


@pytest.mark.parametrize(
    ("p", "hidden", "clients", "g", "d"),
    [(512, 1024, 3, 2_109_952, 1_055_236), (4096, 2048, 5, 21_008_384, None)],
)
@pytest.mark.parametrize("dropout", ["first", "all"])
def test_adversaries_have_the_paper_s_sizes(
    p: int, hidden: int, clients: int, g: int, d: int | None, dropout: str
) -> None:
    built = how(hidden=hidden, dropout=dropout).translator_settings
    assert count(translation.Translator(p, clients, built, seeded(0))) == g
    assert d in (None, count(translation.Discriminator(p, clients, built, seeded(0))))


def test_encoder_and_head_have_the_paper_s_sizes() -> None:
    network = backbone("resnet50", mean=(0.5,) * 3, std=(0.5,) * 3, rng=seeded(0), small_input=True)
    model = classifier.LatentClassifier(network, 512, 7, seeded(0))
    assert count(model.backbone) + count(model.project) == 24_557_120
    assert (count(model.head), count(classifier.Head(512, 65))) == (3_591, 33_345)
    assert count(model) == 24_560_711


ALEXNET = "alexnet-owt-7be5be79.pth"


@pytest.mark.slow
def test_the_latent_of_alexnet_is_its_second_layer(tmp_path: Path) -> None:
    """Against torchvision's own network with dropout off; where p is not 4,096, against its first layer."""
    published = torchvision.models.alexnet().eval()
    torch.save(published.state_dict(), tmp_path / ALEXNET)
    network = backbone("alexnet", mean=(0.5,) * 3, std=(0.5,) * 3, rng=seeded(0), weights=tmp_path)
    images = torch.rand(2, 3, 224, 224, generator=seeded(1))
    with torch.no_grad():
        features = published.avgpool(published.features((images - 0.5) / 0.5)).flatten(1)
        first = published.classifier[:3](features)
        for latent_dim in (4096, 64):
            model = classifier.LatentClassifier(network, latent_dim, 5, seeded(0)).eval()
            expected = published.classifier[4](first) if latent_dim == 4096 else model.project(first)
            torch.testing.assert_close(model.embedding(images), expected, atol=1e-4, rtol=1e-4)
            assert model(images).shape == (2, 5)
            assert count(model.hidden) == 256 * 36 * 4096 + 4096
            assert count(model.project) == 4096 * latent_dim + latent_dim


def test_missing_fully_connected_layers_are_named(tmp_path: Path) -> None:
    with torch.device("meta"):
        shapes = {name: t.shape for name, t in torchvision.models.alexnet().state_dict().items()}
    state = {name: torch.zeros(1).expand(shape) for name, shape in shapes.items() if name != "classifier.4.bias"}
    torch.save(state, tmp_path / ALEXNET)
    network = backbone("alexnet", mean=(0.5,) * 3, std=(0.5,) * 3, rng=seeded(0), weights=tmp_path)
    with pytest.raises(ValueError, match=r"^want fully connected layers of alexnet in .*, got no classifier.4.bias$"):
        classifier.LatentClassifier(network, 8, 5, seeded(0))


# The head


def test_the_head_normalises_then_maps_linearly() -> None:
    head, latents = used_head(), torch.randn(6, 4, generator=seeded(2))
    head.eval()
    rows = (latents - head.norm.running_mean) / (head.norm.running_var + 1e-5).sqrt()
    torch.testing.assert_close(head(latents), rows @ head.linear.weight.T + head.linear.bias)
    assert [name for name, _ in head.norm.named_parameters()] == []


def test_a_batch_of_one_leaves_the_statistics() -> None:
    head, latent = used_head().train(), torch.randn(1, 4, generator=seeded(2))
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    trained = head(latent)
    assert equal(before, head.state_dict())
    assert torch.equal(trained, head.eval()(latent))


# Latent inversion


@pytest.mark.parametrize("distance", ["squared", "norm"])
def test_the_loss_is_eq_7_batch_by_batch(distance: str) -> None:
    made = how(inversion_distance=distance, class_weight=0.5, bn_weight=0.3, norm_weight=0.2)
    head, latents = used_head().eval(), torch.randn(3, 5, 4, generator=seeded(3))
    labels = torch.randint(3, (3, 5), generator=seeded(4))
    adam = inversion.Latents(made.inversion, latents[None])
    found = adam.loss(head(latents.flatten(0, 1)), head.norm.running_mean, head.norm.running_var, latents, labels)
    expected = 0.0
    for batch, classes in zip(latents, labels, strict=True):
        logs = head(batch).log_softmax(1).detach()
        expected -= 0.5 * statistics.fmean(float(logs[i, classes[i]]) for i in range(5))
        mean = [statistics.fmean(map(float, batch[:, j])) - float(head.norm.running_mean[j]) for j in range(4)]
        var = [statistics.pvariance(map(float, batch[:, j])) - float(head.norm.running_var[j]) for j in range(4)]
        sizes = [sum(float(v) ** 2 for v in row) for row in batch]
        moments = [sum(v * v for v in mean), sum(v * v for v in var)]
        if distance == "norm":
            sizes, moments = [math.sqrt(s) for s in sizes], [math.sqrt(m) for m in moments]
        expected += 0.3 * sum(moments) + 0.2 * statistics.fmean(sizes)
    assert float(found.detach()) == pytest.approx(expected, rel=1e-4)


def test_inversion_leaves_the_head_as_it_was() -> None:
    head = used_head()
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    latents = started(how(inversion_steps=200))
    labels = inversion.labels_for(how().inversion, torch.ones(3), seeded(1))
    latents.fit([head], labels[None])
    assert equal(before, head.state_dict())
    assert torch.equal(head(latents.value.flatten(0, 2)).argmax(1), labels.flatten())


@pytest.mark.parametrize("distance", ["squared", "norm"])
def test_batches_inverted_together_are_as_one_by_one(distance: str) -> None:
    """The slow way: each batch alone, through the module itself, down the gradient of Eq. 7 as another test has it."""
    made = how(inversion_distance=distance, inversion_steps=20)
    heads = [used_head(seed=0), used_head(seed=1)]
    starts = torch.randn(2, 3, 5, 4, generator=seeded(0))
    labels = torch.randint(3, (2, 3, 5), generator=seeded(1))
    together = inversion.Latents(made.inversion, starts)
    together.fit(heads, labels)
    for c, head in enumerate(heads):
        for s in range(3):
            alone = starts[c, s].clone().requires_grad_()
            adam = torch.optim.Adam([alone], made.inversion_lr, betas=(0.5, 0.9))
            for _ in range(20):
                adam.zero_grad()
                together.loss(
                    head(alone), head.norm.running_mean, head.norm.running_var, alone, labels[c, s]
                ).backward()
                adam.step()
            torch.testing.assert_close(alone, together.value[c, s], atol=1e-5, rtol=1e-4)


def test_each_client_s_inversion_loss_is_its_own() -> None:
    heads = [used_head(seed=0), used_head(seed=1)]
    made = how(inversion_steps=2)
    starts = torch.randn(2, 3, 5, 4, generator=seeded(0))
    labels = torch.zeros(2, 3, 5, dtype=torch.int64)
    both = inversion.Latents(made.inversion, starts).fit(heads, labels)
    each = [inversion.Latents(made.inversion, starts[c : c + 1]).fit([heads[c]], labels[c : c + 1]) for c in range(2)]
    torch.testing.assert_close(both, torch.cat(each), rtol=1e-4, atol=1e-6)
    assert float((both[0] - both[1]).abs()) > 1e-3


def test_in_train_mode_statistics_follow_the_latents() -> None:
    """L_bn of the released code falls from 137 to 0.7 in 100 forwards of latents that are not optimised."""
    far = used_head(p=64)
    far.norm.running_mean.add_(10)
    found = {}
    for mode in ("eval", "train"):
        head = classifier.Head(64, 3)
        head.load_state_dict(far.state_dict())
        made = how(
            inversion_mode=mode, inversion_steps=100, inversion_lr=1e-12, inversion_batches=1, inversion_batch=32
        )
        latents = started(made, p=64)
        found[mode] = float(latents.fit([head], torch.zeros(1, 1, 32, dtype=torch.int64)))
    assert found["eval"] > 64 * 50
    assert found["train"] < 1e-3 * found["eval"]


def test_classes_are_drawn_from_the_shares_they_are_given() -> None:
    drawn = inversion.labels_for(
        how(inversion_batches=100, inversion_batch=32).inversion, torch.tensor([0.0, 3, 1]), seeded(0)
    )
    share = drawn.flatten().bincount(minlength=3) / drawn.numel()
    assert drawn.shape == (100, 32)
    assert share[0] == 0
    assert float(share[1]) == pytest.approx(0.75, abs=0.03)


# Translator and discriminator


def pair(p: int = 4, clients: int = 3, **changes: Any) -> tuple[Any, Any, Any]:
    made = how(**changes).translator_settings
    return (
        translation.Translator(p, clients, made, seeded(0)),
        translation.Discriminator(p, clients, made, seeded(1)),
        made,
    )


def training(heads: list[Any] | None = None, **changes: Any) -> tuple[Any, Any, Any]:
    """G, D and their training on 60 latents: client d's lie around 3d - 3, in three classes."""
    g, d, made = pair(**({} if heads else {"head_weight": 0.0}) | changes)
    clients, labels = torch.arange(60) % 3, torch.arange(60) // 20
    latents = torch.randn(60, 4, generator=seeded(2)) + 3 * clients[:, None] - 3
    data = translation.Synthesised(latents, labels, clients)
    return g, d, translation.TranslatorTraining(g, d, data, heads or [], made, seeded(3))


@pytest.mark.parametrize(("activation", "bounded"), [("tanh", True), ("none", False)])
def test_the_translator_keeps_shapes(activation: str, bounded: bool) -> None:
    g, d, _ = pair(out_act=activation)
    place = torch.tensor([0, 1, 2, 0, 1])
    made = g(40 * torch.randn(5, 4, generator=seeded(0)) + torch.arange(5.0)[:, None], place, place.flip(0))
    with torch.no_grad():
        g.layers[-2].weight.mul_(100)
        wide = g(torch.randn(5, 4, generator=seeded(0)), place, place)
    assert made.shape == wide.shape == (5, 4)
    assert bool((wide.abs() <= 1).all()) == bounded
    assert [tuple(out.shape) for out in d(made)] == [(5, 1), (5, 3)]


class LinearCritic(nn.Module):
    """D whose first output is w z."""

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.w = w

    def forward(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        return latents @ self.w[:, None], latents


@pytest.mark.parametrize("length", [1.0, 3.0])
def test_the_gradient_penalty_of_a_linear_critic(length: float) -> None:
    w = torch.tensor([0.6, 0.0, -0.8, 0.0]) * length
    real, made = (torch.randn(5, 4, generator=seeded(i)) for i in range(2))
    found = {
        mix: translation.gradient_penalty(LinearCritic(w), real, made, mix, seeded(2))
        for mix in get_args(translation.Mix)
    }
    assert float(found["sample"]) == pytest.approx((length - 1) ** 2, abs=1e-9)
    assert float(found["released"]) == pytest.approx((length * math.sqrt(5) - 1) ** 2, abs=1e-4)  # five slopes as one


@pytest.mark.parametrize("adversarial", ["wgan_gp", "log"])
def test_the_losses_are_eq_13_and_14(adversarial: str) -> None:
    heads = [used_head(seed=i).eval() for i in range(3)]
    weights = {"head_weight": 0.1, "rec_weight": 7.0, "cls_weight": 2.0, "gp_weight": 4.0}
    g, d, made = training(heads, adversarial=adversarial, **weights)
    g.eval(), d.eval()
    z, y, source, target = made._sample_batch()
    with torch.no_grad():
        fake = g(z, source, target)
        (real_score, real_client), (fake_score, fake_client) = d(z), d(fake)
        back, known = g(fake, target, source), sum(entropy(head(fake), y) for head in heads)
    state = made.rng.get_state()
    penalty = float(translation.gradient_penalty(d, z, fake, "sample", made.rng).detach())
    made.rng.set_state(state)
    mean = [[float(v) for v in scores] for scores in (real_score, fake_score)]
    if adversarial == "wgan_gp":
        told = statistics.fmean(mean[1]) - statistics.fmean(mean[0]) + 4 * penalty
        fooled = -statistics.fmean(mean[1])
    else:  # Eq. 9: D maximises log D(z) + log(1 - D(G(z))), G minimises the second
        real, false = ([1 / (1 + math.exp(-v)) for v in values] for values in mean)
        fooled = statistics.fmean(math.log(1 - p) for p in false)
        told = -statistics.fmean(map(math.log, real)) - fooled
    assert float(made.critic_loss(z, source, target).detach()) == pytest.approx(
        told + 2 * entropy(real_client, source), rel=1e-4
    )
    cycle = statistics.fmean(abs(float(a) - float(b)) for a, b in zip(z.flatten(), back.flatten(), strict=True))
    assert float(made.translator_loss(z, y, source, target).detach()) == pytest.approx(
        fooled + 2 * entropy(fake_client, target) + 7 * cycle + 0.1 * known, rel=1e-4
    )


def entropy(logits: Tensor, classes: Tensor) -> float:
    """Mean cross-entropy, term by term."""
    rows = logits.detach().log_softmax(1)
    return -statistics.fmean(float(rows[i, c]) for i, c in enumerate(classes.tolist()))


def test_a_minibatch_is_of_one_class_across_clients() -> None:
    classes, clients, same = set(), set(), 0
    _, _, single = training()
    for _ in range(40):
        _, labels, source, target = single._sample_batch()
        assert len(labels.unique()) == 1
        classes.add(int(labels[0]))
        clients |= set(source.tolist())
        same += int((source == target).sum())
    assert classes == clients == {0, 1, 2}
    assert same / 640 == pytest.approx(1 / 3, abs=0.08)  # d' may equal d
    _, _, mixed = training(minibatch="mixed", pairing="permutation")
    _, labels, source, target = mixed._sample_batch()
    assert len(labels.unique()) > 1
    assert sorted(source.tolist()) == sorted(target.tolist())


def test_training_moves_latents_to_the_other_client() -> None:
    before = torch.random.get_rng_state()
    quick = {"rec_weight": 1.0, "critic_steps": 1, "cls_weight": 3.0}
    g, _, made = training(hidden=32, translator_steps=150, translator_batch=32, translator_lr=5e-3, **quick)
    made.run()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not g.training
    latents = made.data.latents[made.data.clients == 0]
    place = torch.zeros(len(latents), dtype=torch.int64)
    with torch.no_grad():
        moved = [float(g(latents, place, place + other).mean()) for other in range(3)]
    assert moved[0] < moved[1] < moved[2]
    assert moved[2] - moved[0] > 3


def test_translator_quality_is_a_loop_over_latents() -> None:
    quality: Any = import_module("fdgpriv.methods._translator_quality")
    heads = [used_head(seed=i).eval() for i in range(3)]
    latents, labels = torch.randn(24, 4, generator=seeded(1)), torch.randint(3, (24,), generator=seeded(2))
    clients = torch.arange(3).repeat_interleave(8)
    g, _, _ = pair()
    g.eval()
    found = quality.translator_quality(g, translation.Synthesised(latents, labels, clients), heads)
    moved, size, kept, plain, pairs = [], [], 0, 0, set()
    for i, (z, y, own) in enumerate(zip(latents, labels.tolist(), clients.tolist(), strict=True)):
        to = (own + 1 + i % 2) % 3
        pairs.add((own, to))
        with torch.no_grad():
            back, there = (g(z[None], torch.tensor([own]), torch.tensor([d]))[0] for d in (own, to))
            kept += int(heads[to](there[None]).argmax()) == y
            plain += int(heads[to](z[None]).argmax()) == y
        moved += [abs(float(a) - float(b)) for a, b in zip(back, z, strict=True)]
        size += [abs(float(a)) for a in z]
    assert pairs == {(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)}
    assert found == pytest.approx(
        {
            "identity_error": sum(moved) / sum(size),
            "class_preservation": kept / 24,
            "class_untranslated": plain / 24,
        }
    )
    alone = quality.translator_quality(g, translation.Synthesised(latents, labels, clients * 0), heads[:1])
    assert set(alone) == {"identity_error"}


@pytest.mark.slow
def test_the_head_term_keeps_classes() -> None:
    """Three heads drawn apart: 16 numbers leave room for a latent that all of them put into its class.

    The weight is each client's, so that three of 0.1 are too little: translations stay realistic and reversible, and change
    the class.
    """
    quality: Any = import_module("fdgpriv.methods._translator_quality")
    heads = [used_head(p=16, seed=i).eval().requires_grad_(False) for i in range(3)]
    stage2 = how(inversion_steps=100, inversion_batches=4, inversion_batch=20).inversion
    labels = inversion.labels_for(stage2, torch.ones(3), seeded(1))
    latents = inversion.Latents(stage2, torch.randn(3, 4, 20, 16, generator=seeded(0)))
    latents.fit(heads, labels.expand(3, -1, -1))
    places = torch.arange(3).repeat_interleave(80)
    data = translation.Synthesised(latents.value.detach().flatten(0, 2), labels.flatten().repeat(3), places)
    kept = []
    for weight in (0.0, 0.1, 1.0):
        settings = {"hidden": 32, "translator_steps": 250, "translator_batch": 32, "translator_lr": 5e-3}
        g, d, adversaries = pair(p=16, critic_steps=1, head_weight=weight, **settings)
        translation.TranslatorTraining(g, d, data, heads, adversaries, seeded(3)).run()
        kept.append(quality.translator_quality(g, data, heads)["class_preservation"])
    assert kept[2] > 0.7
    assert kept[2] > kept[0] + 0.3
    assert kept[0] < kept[1] < kept[2] - 0.2


# Importance


@pytest.mark.parametrize("output", ["logits", "paper"])
@pytest.mark.parametrize("sign", ["absolute", "signed"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_importance_is_what_finite_differences_give(output: str, sign: str, size: int) -> None:
    model = classifier.LatentClassifier(network(seeded(0)), 5, 3, seeded(1)).double()
    model.unused = nn.Parameter(torch.ones(2, dtype=torch.float64))
    images = torch.rand(5, 3, 6, 6, generator=seeded(2), dtype=torch.float64)
    found = importance.importance(model, images, size, output, sign)
    assert set(found) == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        flat, reads_latent = parameter.data.view(-1), output == "paper" and not name.startswith("head.")

        def outputs(reads_latent: bool = reads_latent) -> list[float]:
            z = model.embedding(images)
            if output == "logits":
                return [float(row.square().sum()) for row in model.head(z)]
            return [float(row.norm()) for row in (z if reads_latent else model.head(z))]

        with torch.no_grad():
            flat[0] += 1e-5
            up = outputs()
            flat[0] -= 2e-5
            down = outputs()
            flat[0] += 1e-5
        slopes = [(a - b) / 2e-5 for a, b in zip(up, down, strict=True)]
        groups = [sum(slopes[i : i + size]) for i in range(0, 5, size)]
        expected = sum(map(abs, groups) if sign == "absolute" else groups) / 5
        assert float(found[name].view(-1)[0]) == pytest.approx(expected, abs=1e-6)


# Averages


def named(*values: float) -> dict[str, Tensor]:
    return {"w": torch.tensor(values, dtype=torch.float32)}


def test_the_weighted_average_is_convex() -> None:
    rng = seeded(0)
    states = [{"w": torch.randn(200, generator=rng)} for _ in range(3)]
    weights = [{"w": torch.rand(200, generator=rng) ** 8} for _ in range(3)]
    for weight in weights:
        weight["w"][:20] = 0
    total = importance.summed(weights)
    shares = torch.stack([importance.share(weight, total, 3)["w"] for weight in weights])
    torch.testing.assert_close(shares.sum(0), torch.ones(200, dtype=torch.float64), atol=1e-12, rtol=0)
    found = importance.combined(states, weights)["w"]
    stacked = torch.stack([state["w"] for state in states])
    assert bool((found >= stacked.amin(0) - 1e-6).all())
    assert bool((found <= stacked.amax(0) + 1e-6).all())
    torch.testing.assert_close(found[:20], stacked[:, :20].mean(0))
    scaled = importance.combined(states, [{"w": 1000 * weight["w"]} for weight in weights])["w"]
    torch.testing.assert_close(scaled, found)
    plain = importance.combined(states, [{"w": torch.full((200,), 0.3)}] * 3)["w"]
    torch.testing.assert_close(plain, stacked.mean(0))
    assert torch.equal(importance.combined([states[0]] * 3, weights)["w"], states[0]["w"])


@pytest.mark.parametrize("size", [4, 5, 16])
def test_fresh_statistics_are_of_one_pass(size: int) -> None:
    """11 images in batches of at least `size`: of six and five; all; all."""
    model = classifier.LatentClassifier(network(seeded(0)), 5, 3, seeded(1)).train()
    model(torch.rand(4, 3, 6, 6, generator=seeded(3)))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    images = torch.rand(11, 3, 6, 6, generator=seeded(2))
    fresh = with_fresh_statistics(model, images, size)
    assert equal(before, model.state_dict())
    assert all(torch.equal(before[name], tensor) for name, tensor in fresh.named_parameters())
    order = torch.randperm(11, generator=generator(0))
    parts = [images[order[:6]], images[order[6:]]] if size <= 5 else [images]
    means: dict[str, list[Tensor]] = {"backbone.body.layer1.1": [], "head.norm": []}
    variances: dict[str, list[Tensor]] = {name: [] for name in means}
    for part in parts:
        maps = model.backbone.body["layer1"][0]((part - 0.5) / 0.5)
        mean, variance = maps.mean((0, 2, 3)), maps.var((0, 2, 3), correction=0)
        normal = (maps - mean[:, None, None]) / (variance[:, None, None] + 1e-5).sqrt()
        affine = model.backbone.body["layer1"][1]
        normal = normal * affine.weight[:, None, None] + affine.bias[:, None, None]
        latents = model.project(normal.tanh().mean((2, 3)))
        for name, rows in (("backbone.body.layer1.1", maps.transpose(0, 1).flatten(1).T), ("head.norm", latents)):
            means[name].append(rows.mean(0))
            variances[name].append(rows.var(0))
    for name in means:
        found = fresh.get_submodule(name)
        torch.testing.assert_close(found.running_mean, torch.stack(means[name]).mean(0), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(found.running_var, torch.stack(variances[name]).mean(0), atol=1e-5, rtol=1e-4)


def test_one_image_gives_no_fresh_statistics() -> None:
    model = classifier.LatentClassifier(network(seeded(0)), 5, 3, seeded(1))
    fresh = with_fresh_statistics(model, torch.rand(1, 3, 6, 6, generator=seeded(2)), 4)
    assert equal(model.state_dict(), fresh.state_dict())


@pytest.mark.parametrize(
    ("settings", "fresh"),
    [
        ({}, True),
        ({"importance_statistics": "running"}, False),
        ({"code_compat": True}, False),
        ({"buffers": "freeze"}, False),
        ({"buffers": "freeze_backbone"}, False),
    ],
)
def test_importances_are_under_the_chosen_statistics(settings: Any, fresh: bool) -> None:
    """Against a loop over images with a network whose statistics are set by hand."""
    method = part.LSI(latent_dim=5, batch_size=4, importance_per="sample", **settings)
    model = classifier.LatentClassifier(network(seeded(0)), 5, 3, seeded(1))
    images = torch.rand(7, 3, 6, 6, generator=seeded(2))
    found = method.importances(model, images)
    slow = classifier.LatentClassifier(network(seeded(0)), 5, 3, seeded(1))
    if fresh:
        for layer in (slow.backbone.body["layer1"][1], slow.head.norm):
            layer.momentum = 1.0
        slow.train()(images)
    slow.eval()
    for name, parameter in slow.named_parameters():
        slopes = [torch.autograd.grad(slow(image[None]).square().sum(), parameter)[0].abs() for image in images]
        torch.testing.assert_close(found[name], torch.stack(slopes).mean(0), atol=1e-5, rtol=1e-4)


def test_the_effective_number_of_clients_is_a_median() -> None:
    weights = [{"a": torch.tensor([1.0, 1.0]), "b": torch.tensor([[3.0], [0.0], [1.0]])} for _ in range(2)]
    weights[1] = {"a": torch.tensor([1.0, 0.0]), "b": torch.tensor([[1.0], [0.0], [3.0]])}
    each = []
    for name, index in (("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)):
        own = [float(weight[name].flatten()[index]) for weight in weights]
        share = [w / sum(own) if sum(own) else 0.5 for w in own]
        each.append(1 / sum(s * s for s in share))
    assert sorted(each) == pytest.approx([1, 1.6, 1.6, 2, 2])
    assert importance.effective_clients(weights) == pytest.approx(statistics.median(each))
    assert importance.effective_clients([weights[0]] * 5) == pytest.approx(5)


def test_statistics_are_averaged_by_size() -> None:
    def state(mean: float, counter: int) -> dict[str, Tensor]:
        return {
            "n.running_mean": torch.tensor([float(mean)]),
            "n.num_batches_tracked": torch.tensor(counter),
            **named(9),
        }

    states = [state(1, 7), state(5, 4)]
    by_size, alike = importance.buffers(states, [30, 10]), importance.buffers(states, None)
    assert {name: tensor.tolist() for name, tensor in by_size.items()} == {
        "n.running_mean": [2.0],
        "n.num_batches_tracked": 7,
    }
    assert alike["n.running_mean"].tolist() == [3.0]


def test_recalibration_is_the_mean_of_batch_moments() -> None:
    model = classifier.LatentClassifier(network(seeded(0)), 5, 3, seeded(1))
    parameters = {name: tensor.clone() for name, tensor in model.named_parameters()}
    images = torch.rand(8, 3, 6, 6, generator=seeded(2))
    found = recalibrate(model, [images[:4], images[4:]])
    before = [model.backbone.body["layer1"][0]((part - 0.5) / 0.5) for part in (images[:4], images[4:])]
    mean = torch.stack([part.mean((0, 2, 3)) for part in before]).mean(0)
    variance = torch.stack([part.var((0, 2, 3)) for part in before]).mean(0)
    torch.testing.assert_close(found["backbone.body.layer1.1.running_mean"], mean)
    torch.testing.assert_close(found["backbone.body.layer1.1.running_var"], variance)
    assert int(found["head.norm.num_batches_tracked"]) == 2
    assert model.head.norm.momentum == 0.1
    assert all(torch.equal(parameters[name], tensor) for name, tensor in model.named_parameters())


def test_a_layer_that_sees_no_batch_keeps_its_statistics() -> None:
    model = classifier.LatentClassifier(network(seeded(0)), 5, 3, seeded(1))
    model.head.norm.running_mean.fill_(2)
    found = recalibrate(model, [torch.rand(1, 3, 6, 6, generator=seeded(2))])
    assert found["head.norm.running_mean"].tolist() == [2] * 5
    assert int(found["backbone.body.layer1.1.num_batches_tracked"]) == 1
