"""What an audit of a recorded training rests on besides the recording: digests of the user's code and images."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.data.dataset import ClientData, Domain
from fdgpriv.external.recorded_federation import GivenTraining, RecordedFederation
from fdgpriv.utils.checksum import tensors_digest
from fdgpriv.utils.code_digest import SHOWN, CodeDigest
from fdgpriv.utils.failures import Failed, attempt
from fdgpriv.utils.global_rng import global_draws
from fdgpriv.utils.seeds import generator

FUNCTIONS = ("network", "train", "encoder", "normalize")  # fields of `GivenTraining` that may be code
_PROBED = 4  # images on which outputs are computed
_PROJECTIONS = 16  # numbers that stand for an output
_DIGITS = 4  # of each, so that another machine's rounding does not count


def code_digests(given: GivenTraining) -> dict[str, CodeDigest]:
    """By name, the digest of each function of the user, and of the network that is built.

    To be taken before the others have run, which may change values that they use.
    """
    values = {name: getattr(given, name) for name in FUNCTIONS}
    if not isinstance(given.network, nn.Module):
        with global_draws():
            built = attempt(given.network)
        values["network"] = given.network if isinstance(built, Failed) else built
    return {name: CodeDigest.of(value, name == "network") for name, value in values.items() if value is not None}


def recorded_basis(
    digests: Mapping[str, CodeDigest], given: GivenTraining, recorded: RecordedFederation
) -> dict[str, str]:
    """By name, digests of the user's functions and images, with what each is computed from.

    The code counts where it can be read, and the outputs on fixed random images: always those of `normalize`, which reads
    no model, and those of the network in its first recorded state; of the others where code cannot be read.
    """
    network = recorded.method.network
    images = torch.rand(_PROBED, 3, *(recorded.federation.image_size,) * 2, generator=generator(0))
    labels = torch.arange(_PROBED) % recorded.federation.classes

    def trained() -> Tensor:
        model = network.new()
        data = ClientData(SERVER, images, labels, images[:0], labels[:0], recorded.federation.classes)
        assert given.train is not None
        network.train(given.train, model, data, 0, generator(0))
        return torch.cat([tensor.flatten().double() for tensor in model.state_dict().values()])

    def encoded() -> Tensor:
        encoder: Any = given.encoder
        return torch.as_tensor(encoder(network.new().eval())(network.adapted(images)))

    outputs: dict[str, Callable[[], Tensor]] = {"normalize": lambda: network.adapted(images)}
    outputs["network"] = lambda: network.new().eval().forward(_like(network.adapted(images)))  # not as it converts them
    outputs |= {name: of for name, of in (("train", trained), ("encoder", encoded)) if name in digests}
    described = dict.fromkeys(FUNCTIONS, "none")
    for name, digest in digests.items():
        described[name] = f"{digest.text} of its code"
        if digest.unread or name in ("normalize", "network"):
            output = attempt(lambda name=name: _output_digest(outputs[name]))  # type: ignore[misc]
            unread = f"; not of {', '.join(dict.fromkeys(digest.unread))}" if digest.unread else ""
            if isinstance(output, Failed) or not output:
                described[name] += f"{unread}, whose outputs differ from call to call" if unread else ""
            else:
                described[name] += f" and {output} of its outputs on fixed images{unread}"
    population = recorded.population
    described["images of clients"] = _images_digest(population.clients)
    described["public images"] = _images_digest({**population.auxiliary, **population.shadows})
    return described


def _like(images: Tensor) -> Tensor:
    return torch.rand(images.shape, generator=generator(2)).to(images.dtype)


def _images_digest(images: Mapping[str, ClientData | Domain]) -> str:
    """The digest of images and labels by client or domain."""
    pixels = {f"images of {name}": part.pixels for name, part in images.items()}
    labels = {f"labels of {name}": part.labels for name, part in images.items()}
    return tensors_digest(pixels | labels)[:SHOWN]


def _output_digest(output: Callable[[], Tensor]) -> str:
    """The digest of an output by random projections of it, rounded; "" if it differs from call to call."""
    texts = []
    for seed in (0, 1):
        with global_draws(seed):
            texts.append(_rounded(output()))
    return texts[0] if texts[0] == texts[1] else ""


def _rounded(output: Tensor) -> str:
    values = output.detach().double().flatten().cpu()
    weights = torch.randn(_PROJECTIONS, len(values), generator=generator(1), dtype=torch.float64)
    numbers = ",".join(f"{float(number):.{_DIGITS}g}" for number in weights @ values)
    return hashlib.sha256(f"{tuple(output.shape)} {numbers}".encode()).hexdigest()[:SHOWN]
