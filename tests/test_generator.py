"""The reconstruction generator: its size, its shapes, its determinism, and that it learns."""

import pytest
import torch
from factories import seeded
from torch import Tensor, nn
from torch.nn import functional

from fdgpriv.attack import Attack
from fdgpriv.models.generator import Generator, GlobalContext, SmallGenerator, UpBlock, channels_of_maps


def _bias(layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.Conv2d)
    assert layer.bias is not None
    return layer.bias


@pytest.mark.parametrize(
    ("size", "parameters"),
    [
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((256, 64_330_811), (128, 64_261_033))),
        (64, 63_981_191),
    ],
)
def test_it_has_the_published_number_of_parameters(rng: torch.Generator, size: int, parameters: int) -> None:
    assert sum(p.numel() for p in Generator(1024, size, rng=rng).parameters()) == parameters


@pytest.mark.parametrize("size", [16, 17, 32, 50, 64, 96, 128, 222, 256])
def test_it_makes_images_of_its_size(rng: torch.Generator, size: int) -> None:
    generator = Generator(10, size, rng=rng, width=1 / 64)
    assert generator(torch.randn(2, 10, generator=rng), rng).shape == (2, 3, size, size)


def test_a_map_is_doubled_as_published(rng: torch.Generator) -> None:
    """Step by step: nearest neighbour, the blur (1, 2, 1) / 4 each way, 4x4 convolution, batch norm, gated linear unit."""
    block, features = UpBlock(5, 4).eval(), torch.randn(2, 5, 7, 6, generator=rng)
    doubled = functional.pad(
        functional.interpolate(features, scale_factor=2, mode="nearest"), (1, 1, 1, 1), mode="reflect"
    )
    line = torch.tensor([1.0, 2.0, 1.0]) / 4
    blurred = functional.conv2d(doubled, torch.outer(line, line).expand(5, 1, 3, 3), groups=5)
    convolved = functional.conv2d(functional.pad(blurred, (2, 1, 2, 1)), block.conv.weight, _bias(block.conv))
    torch.testing.assert_close(block(features, None), functional.glu(block.norm(convolved), dim=1))


def test_width_scales_every_map() -> None:
    assert channels_of_maps(6, 1.0) == [1024, 512, 512, 256, 128, 64, 32]
    assert channels_of_maps(3, 1 / 16) == [64, 32, 32, 16]


def test_the_seed_decides_the_weights() -> None:
    state = torch.random.get_rng_state()
    first, second = (Generator(8, 16, rng=seeded(3), width=1 / 64) for _ in range(2))
    other = Generator(8, 16, rng=seeded(4), width=1 / 64)
    z = torch.ones(2, 8)
    assert torch.equal(first.eval()(z), second.eval()(z))
    assert not torch.equal(first(z), other.eval()(z))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_noise_is_learned_and_stays_in_evaluation(rng: torch.Generator) -> None:
    generator = Generator(8, 16, rng=rng, width=1 / 64).eval()
    z = torch.randn(3, 8, generator=rng)
    assert torch.equal(generator(z, rng), generator(z))
    for name, parameter in generator.named_parameters():
        if name.endswith("noise.scale"):
            assert parameter.item() == 0
            parameter.data.fill_(1.0)
    assert not torch.equal(generator(z, rng), generator(z, rng))
    assert torch.equal(generator(z), generator(z))


def test_skip_layer_excitation_scales_late_maps(rng: torch.Generator) -> None:
    generator = Generator(8, 128, rng=rng, width=1 / 64).eval()
    z = torch.randn(1, 8, generator=rng)
    before = generator(z)
    gate = generator.excitations["5"]
    assert isinstance(gate, GlobalContext)
    nn.init.constant_(_bias(gate.scales[2]), -50.0)  # closed: of the 128 px map nothing is left
    after = generator(z)
    assert before.std() > 1e-3
    assert torch.allclose(after, _bias(generator.colours)[:, None, None].expand_as(after), atol=1e-6)


def test_the_small_generator_learns_a_mapping(rng: torch.Generator) -> None:
    generator = SmallGenerator(16, rng=rng)
    assert sum(p.numel() for p in generator.parameters()) < 200_000
    z = torch.randn(8, 16, generator=rng)
    truth = torch.rand(8, 3, 4, 4, generator=rng).repeat_interleave(8, 2).repeat_interleave(8, 3)
    optimizer = torch.optim.Adam(generator.parameters(), lr=1e-2)
    for _ in range(40):
        loss = functional.mse_loss(generator(z), truth)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    assert loss.item() < 0.5 * float((truth - truth.mean(0)).square().mean())


@pytest.mark.parametrize("arguments", [(0, 32), (8, 15), (8, 8)])
def test_impossible_sizes_are_refused(rng: torch.Generator, arguments: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="want"):
        Generator(*arguments, rng=rng)


def test_a_vector_of_another_length_is_refused(rng: torch.Generator) -> None:
    for generator in (Generator(8, 16, rng=rng, width=1 / 64), SmallGenerator(8, rng=rng)):
        with pytest.raises(ValueError, match=r"want z \(B, 8\)"):
            generator(torch.zeros(2, 7))


def test_images_beyond_the_generator_are_refused() -> None:
    gan = Attack.named("gan")()
    gan.check(16)
    with pytest.raises(ValueError, match=r"gan: draws images of at least 16 px, got images of 15 px"):
        gan.check(15)


@pytest.mark.parametrize("side", [16, 32, 75, 96])
def test_the_small_generator_draws_any_side(rng: torch.Generator, side: int) -> None:
    assert SmallGenerator(8, side, rng=rng)(torch.zeros(2, 8)).shape == (2, 3, side, side)
    with pytest.raises(ValueError, match="want image_size of at least 16, got 15"):
        SmallGenerator(8, 15, rng=rng)
