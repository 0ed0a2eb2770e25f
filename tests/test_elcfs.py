"""ELCFS: spectra of single images, the mixed image by a plain Fourier transform, and an episode's gradient by differences."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from factories import crossed, federation, held, network, run, seeded, small
from torch import Tensor, nn
from torch.func import functional_call

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.style import AmplitudeSpectrum
from fdgpriv.defense import Defense

elcfs = partial(small, "elcfs", optimizer="sgd")


def client_of(method: Any, n: int = 4, others: int = 2) -> Any:
    """client-0, which received the spectra of `others` clients besides its own."""
    clients = [method.client(federation(others + 1), held(f"client-{i}", n), seeded(i)) for i in range(others + 1)]
    clients[0].adopt([spectrum for client in clients for spectrum in client.share([])])
    return clients[0]


def plain_mixed(image: np.ndarray[Any, Any], other: np.ndarray[Any, Any], ratio: float, half: int) -> Any:
    """By shifted transforms and loops over frequencies; `half` is half the side of the window."""
    spectrum = np.fft.fftshift(np.fft.fft2(image), axes=(1, 2))
    amplitude, phase, theirs = np.abs(spectrum), np.angle(spectrum), np.fft.fftshift(other, axes=(1, 2))
    center = image.shape[1] // 2
    for channel in range(3):
        for i in range(center - half, center + half + 1):
            for j in range(center - half, center + half + 1):
                mine = amplitude[channel, i, j]
                amplitude[channel, i, j] = (1 - ratio) * mine + ratio * theirs[channel, i, j]
    mixed = np.fft.ifft2(np.fft.ifftshift(amplitude * np.exp(1j * phase), axes=(1, 2)))
    return np.clip(mixed.real, 0, 1)


@pytest.mark.parametrize(("window", "half"), [(0.0, 0), (0.01, 0), (0.125, 1), (0.3, 2)])
def test_low_amplitudes_are_interpolated(window: float, half: int, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(elcfs(window=window), others=1)
    images = held("client-0", 4).images
    theirs = client.bank.domains[0]
    ratios = torch.rand(4, 1, 1, 1, generator=seeded(3))
    rows = torch.tensor([2, 0, 3, 1])
    monkeypatch.setattr(type(client.bank), "draw", lambda *_: (torch.zeros(4, 1, dtype=torch.int64), rows[:, None]))
    client.rng = seeded(3)
    mixed = client.mixed(images)
    for image, row, ratio, made in zip(images, rows.tolist(), ratios.flatten().tolist(), mixed, strict=True):
        plain = plain_mixed(image.double().numpy(), theirs[row].amplitude.double().numpy(), ratio, half)
        np.testing.assert_allclose(made.numpy(), plain, atol=1e-5)


def test_spectra_are_of_single_images() -> None:
    method, data = elcfs(), held(n=5)
    shared = method.client(federation(), data, seeded(0)).share([])
    by_hand = [np.abs(np.fft.fft2(image.double().numpy())) for image in data.images]
    assert len(shared) == 5
    for spectrum in shared:
        assert (spectrum.level, spectrum.client) == ("image", "client-0")
        near = [np.abs(spectrum.amplitude.numpy() - plain).max() for plain in by_hand]
        assert sorted(near)[0] < 1e-3 < sorted(near)[1]
    assert len(elcfs(images_per_spectrum=2).client(federation(), data, seeded(0)).share([])) == 3


def test_everyone_receives_every_spectrum_once() -> None:
    transcript = run(elcfs(), 3, 2, 2, build=network(1, 2)).transcript
    sent = [(record.sender, record.receiver, record.origin) for record in transcript.records
            if record.kind == AmplitudeSpectrum.kind]  # fmt: skip
    sizes = {"client-0": 3, "client-1": 2, "client-2": 2}
    for name, size in sizes.items():
        assert sent.count((name, SERVER, name)) == size
        assert all(sent.count((SERVER, receiver, name)) == size for receiver in sizes)
    assert {record.nbytes for record in transcript.records if record.kind == AmplitudeSpectrum.kind} == {3 * 8 * 8 * 4}
    models = crossed(transcript, "model_state")
    assert not any(name.endswith("running_mean") for model in models for name in model.tensors())


def episode(
    model: nn.Module, vector: Tensor, images: Tensor, mixed: Tensor, labels: Tensor, rate: float, clip: float
) -> Tensor:
    """Loss of the images and of the mixed ones after a clamped step, of parameters as one vector."""

    def loss(at: Tensor, inputs: Tensor) -> Tensor:
        parameters, start = {}, 0
        for name, parameter in model.named_parameters():
            parameters[name] = at[start : start + parameter.numel()].view_as(parameter)
            start += parameter.numel()
        return nn.functional.cross_entropy(functional_call(model, parameters, (inputs,)), labels)

    slope = torch.stack([
        (loss(vector + step, images) - loss(vector - step, images)) / 2e-5 for step in 1e-5 * torch.eye(len(vector)).double()
    ])  # fmt: skip
    return loss(vector, images) + loss(vector - rate * slope.clamp(-clip, clip), mixed)


@pytest.mark.parametrize(("second_order", "clip"), [(True, 100.0), (False, 100.0), (True, 0.05)])
def test_an_episode_is_differentiated_through(second_order: bool, clip: float, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(elcfs(meta_lr=0.5, second_order=second_order, meta_clip=clip))
    rng = seeded(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2), nn.Tanh(), nn.Linear(2, 3)).double()
    images, mixed = torch.rand(2, 5, 3, 2, 2, generator=rng).double()
    labels = torch.randint(3, (5,), generator=rng)
    client.model = model
    monkeypatch.setattr(client, "mixed", lambda _: mixed)
    batch = type("Batch", (), {"images": images, "labels": labels})
    client.loss(batch).backward()
    found = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
    vector = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    given = (images, mixed, labels, 0.5, clip)
    with torch.no_grad():
        plain = torch.stack([
            (episode(model, vector + step, *given) - episode(model, vector - step, *given)) / 2e-4
            for step in 1e-4 * torch.eye(len(vector)).double()
        ])  # fmt: skip
    assert torch.allclose(found, plain, atol=1e-5) is second_order
    assert float(nn.functional.cosine_similarity(found, plain, dim=0)) > 0.9


def test_alone_it_trains_on_its_images() -> None:
    client = client_of(elcfs(), others=0)
    batch = type("Batch", (), {"images": held().images, "labels": held().labels})
    plain = nn.functional.cross_entropy(client.model(batch.images), batch.labels)
    torch.testing.assert_close(client.loss(batch), plain)


def test_defenses_of_styles_apply_to_spectra() -> None:
    sharing = elcfs().disclosure()
    noise = Defense.parse("gaussian:epsilon=4,delta=1e-5").bound_to(sharing)
    assert noise.alters(AmplitudeSpectrum.kind)
    assert Defense.parse("interpolate").bound_to(sharing).name() == "interpolate"
