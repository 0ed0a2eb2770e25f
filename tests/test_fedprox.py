"""FedProx: the local step against a plain loop with the proximal term in its loss, and where a defense makes gradients."""

from functools import partial

import pytest
import torch
from factories import federation, held, network, run, seeded, small
from torch import Tensor, nn

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.data.dataset import ClientData
from fdgpriv.models.backbone import Classifier

fedprox = partial(small, "fedprox")


def plain_fit(state: dict[str, Tensor], data: ClientData, epochs: int, lr: float, mu: float) -> dict[str, Tensor]:
    """SGD without momentum on cross-entropy plus mu / 2 times the squared distance, entry by entry, of the whole batch."""
    model = Classifier(network(1)(seeded(0)), 3, seeded(0))
    model.load_state_dict(state)
    model.train()
    for _ in range(epochs):
        squared = torch.zeros(())
        for name, parameter in model.named_parameters():
            for now, before in zip(parameter.flatten(), state[name].flatten(), strict=True):
                squared = squared + (now - before) ** 2
        loss = nn.functional.cross_entropy(model(data.images), data.labels) + mu / 2 * squared
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.sub_(lr * gradient)
    return model.state_dict()


@pytest.mark.parametrize("mu", [0.0, 0.01, 2.0])
def test_the_local_step_has_the_proximal_term(mu: float) -> None:
    method = fedprox(mu=mu, local_epochs=4, batch_size=6, momentum=0.0, weight_decay=0.0)
    data = held("client-0", 6)
    state = dict(next(method.server(federation(), seeded(5))).messages["client-0"][0].state)
    client = method.client(federation(), data, seeded(1))
    for round_ in (0, 1):  # the second time from the model received then
        received = {name: value + round_ * 0.1 * value.is_floating_point() for name, value in state.items()}
        (trained, *_) = client.fit([ModelState(client=SERVER, round=round_, state=received)])
        for name, value in plain_fit(received, data, 4, 0.1, mu).items():
            torch.testing.assert_close(trained.state[name], value, rtol=1e-4, atol=1e-6)


def test_a_large_mu_keeps_the_received_model() -> None:
    method, free = (fedprox(mu=mu, local_epochs=20, momentum=0.0, weight_decay=0.0) for mu in (9.0, 0.0))
    sent = next(method.server(federation(), seeded(5))).messages["client-0"]
    moved = []
    for part in (method, free):
        (trained, *_) = part.client(federation(), held("client-0", 6), seeded(1)).fit(sent)
        weights = [name for name in trained.state if name.endswith("weight")]
        moved.append(float(sum((trained.state[n] - sent[0].state[n]).square().sum() for n in weights)))
    assert moved[0] < moved[1] / 4


def test_without_mu_it_is_fedavg() -> None:
    states = [run(small(name, **mu), 5, 7).state for name, mu in (("fedprox", {"mu": 0.0}), ("fedavg", {}))]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_stacked_models_are_pulled_each_to_its_own() -> None:
    """As shadow models are, which are trained as one network of stacked parameters."""
    starts, slopes = torch.randn(2, 2, 5, generator=seeded(1))
    alone = [nn.ParameterDict({"w": nn.Parameter(start.clone())}) for start in starts]
    together = nn.ParameterDict({"w": nn.Parameter(starts.clone())})
    method = fedprox(mu=3.0)
    for model, slope in ((together, slopes), *zip(alone, slopes, strict=True)):
        optimizer = method.new_optimizer(model, 0)
        for _ in range(3):
            model["w"].grad = slope.clone()
            optimizer.step()
    torch.testing.assert_close(together["w"].data, torch.stack([model["w"].data for model in alone]))


def test_dp_sgd_keeps_the_proximal_term() -> None:
    """Gradients of images have no proximal term: it pulls after the noise."""
    moved = []
    for mu in (0.0, 5.0):
        ran = run(fedprox(mu=mu, local_epochs=8), 8, 8, defense="dpsgd:epsilon=8")
        first = next(a for r, a in ran.transcript.of_kind("model_state") if r.sender == "server")
        last = next(a for r, a in ran.transcript.of_kind("model_state") if r.sender != "server")
        assert isinstance(first, ModelState)
        assert isinstance(last, ModelState)
        moved.append(float((last.state["head.weight"] - first.state["head.weight"]).norm()))
    assert moved[1] < moved[0] / 1.5
