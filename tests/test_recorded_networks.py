"""Recordings of networks as people have them: any output, wrappers, parts that are sent alone, clients that drop out."""

from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fdgpriv
from fdgpriv.defense import Defense
from fdgpriv.external.binary_head import BinaryHead, TwoRows
from fdgpriv.external.recorded_federation import GivenTraining, RecordedFederation, recorded_federation
from fdgpriv.external.recorded_names import renamed, unwrapped
from fdgpriv.results.utility import logits
from fdgpriv.simulation.simulator import ClientImages, ClientSample
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.utils.seeds import generator

CLIENTS, SIDE, CLASSES = {"a": "dark", "b": "light", "c": "dark", "d": "light"}, 8, 3
State = Mapping[str, Tensor]
Output = namedtuple("Output", ["hidden", "logits"])


class Net(nn.Module):
    """A convolution, BatchNorm, and `view` before a linear layer, as in many tutorials."""

    def __init__(self, classes: int = CLASSES, form: Callable[[Tensor, Tensor], Any] = lambda logits, hidden: logits):
        super().__init__()
        self.conv, self.norm, self.form = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), form
        self.head = nn.Linear(4 * 9, classes)

    def forward(self, images: Tensor) -> Any:
        hidden = nn.functional.max_pool2d(self.norm(self.conv(images)).relu(), 2).view(-1, 4 * 9)
        return self.form(self.head(hidden), hidden)


def trained_on(loss_of: Callable[[Any, Tensor], Tensor]) -> Any:
    """A training on this loss of outputs and labels."""

    def train(model: nn.Module, images: Tensor, labels: Tensor, round: int, rng: torch.Generator) -> None:
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
        model.train()
        for index in torch.randperm(len(images), generator=rng).split(6):
            optimizer.zero_grad()
            loss_of(model(images[index]), labels[index]).backward()
            optimizer.step()

    return train


train = trained_on(nn.functional.cross_entropy)


def images_of(n: int, seed: int, classes: int = CLASSES) -> tuple[Tensor, Tensor]:
    return torch.rand(n, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed)), torch.arange(n) % classes


@dataclass
class Recorded:
    """A training of two rounds whose messages are changed before they are recorded.

    Attributes:
        network: Builds the network that is trained.
        train: Trains it.
        up, down: Give what is recorded of a trained and of a sent state.
        absent: Clients that are sent a model and do not answer.
    """

    network: Callable[[], nn.Module] = Net
    train: Any = train
    up: Callable[[State], Mapping[str, Any]] = lambda state: {"model": state}
    down: Callable[[State], Mapping[str, Any]] = lambda state: {"model": state}
    classes: int = CLASSES
    absent: tuple[str, ...] = ()

    def federation(self, folder: Path, **changes: Any) -> RecordedFederation:
        """The recorded federation, with these arguments of `GivenTraining`."""
        torch.manual_seed(0)
        model = self.network()
        clients = {name: (*images_of(12, seed, self.classes), CLIENTS[name]) for seed, name in enumerate(CLIENTS)}
        with fdgpriv.record(folder) as wire:
            for round in range(2):
                sent = {name: tensor.clone() for name, tensor in model.state_dict().items()}
                uploads = []
                for name, (images, labels, _) in clients.items():
                    if self.down(sent):
                        wire.down(name, round, **self.down(sent))
                    if name in self.absent:
                        continue
                    model.load_state_dict(sent)
                    self.train(model, images, labels, round, torch.Generator().manual_seed(round))
                    uploads.append({key: tensor.clone() for key, tensor in model.state_dict().items()})
                    wire.up(name, round, **self.up(uploads[-1]), n=len(images))
                mean = {key: torch.stack([upload[key].double() for upload in uploads]).mean(0) for key in sent}
                model.load_state_dict(mean)
        public = {
            domain: images_of(40, 10 + place, self.classes) for place, domain in enumerate(("dark", "light", "new"))
        }
        given = {"network": self.network, "clients": clients, "public": public, "train": self.train, **changes}
        return recorded_federation(folder, GivenTraining(**given), 0)


def simulated(federation: RecordedFederation) -> tuple[TrainingSimulator, Any, Any]:
    """The simulator of clients' models, the model that "a" received, and what it sends after training on its images."""
    disclosure = federation.method.disclosure()
    assert not {"model_state", "model_update"} & set(disclosure.not_evaluated), disclosure.not_evaluated
    data = federation.population.clients["a"]
    uploads = {r.kind for r in federation.transcript.records if r.receiver == "server"} & {
        "model_state",
        "model_update",
    }
    simulator = TrainingSimulator(
        uploads.pop(), federation.method, federation.federation, Defense.named("none")(), data, 0
    )
    received = federation.transcript.models_sent(0)["a"]
    party = ClientImages(data.images, data.labels, received)
    sample = ClientSample(party, torch.arange(len(data.labels)))
    return simulator, received, simulator.form(simulator.trained(sample, generator(0)), received)


def upload_of(federation: RecordedFederation, client: str = "a") -> Any:
    for index, record in enumerate(federation.transcript.records):
        if record.sender == client and record.kind in ("model_state", "model_update"):
            return federation.transcript.kept[index]
    raise LookupError


def check_simulated(federation: RecordedFederation) -> None:
    """Simulated clients share what the recorded ones do, and what training in place of the recorded client gives."""
    simulator, received, artifact = simulated(federation)
    recorded = upload_of(federation)
    assert artifact.state.keys() == recorded.state.keys()
    model = federation.method.network.new()
    received.load_into(model)
    data = federation.population.clients["a"]
    training: Any = federation.method.disclosure().training
    federation.method.network.train(training.train, model, data, 0, torch.Generator().manual_seed(0))
    after = simulator.after(recorded, received)
    for name, tensor in after.state.items():
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=1e-4, atol=1e-5, check_dtype=False)
    images = data.images
    expected = model.eval()(images)
    assert expected.shape == (len(images), max(2, len(federation.population.dataset.classes)))
    assert logits(simulator.model_of(artifact, received), images).shape == expected.shape
    assert simulator.vector(artifact, received).isfinite().all()


def test_view_after_a_convolution(tmp_path: Path) -> None:
    check_simulated(Recorded().federation(tmp_path / "run"))


@pytest.mark.parametrize(
    ("form", "logits_in", "named"),
    [
        (lambda logits, hidden: (logits, hidden), lambda output: output[0], "tuple: .* output[0]"),
        (lambda logits, hidden: (hidden, logits), lambda output: output[1], "tuple: .* output[1]"),
        (lambda logits, hidden: [{"h": logits.sum()}, (None, logits)], lambda output: output[1][1], "output[1][1]"),
        (lambda logits, hidden: {"hidden": hidden, "logits": logits}, lambda output: output["logits"], "['logits']"),
        (lambda logits, hidden: {"x": logits, "y2": 1.0}, lambda output: output["x"], "output['x']"),
        (lambda logits, hidden: Output(hidden, logits), lambda output: output.logits, "output.logits"),
        (lambda logits, hidden: type("Out", (), {})(), None, None),
    ],
)
def test_outputs_of_any_form(tmp_path: Path, form: Any, logits_in: Any, named: str | None) -> None:
    if named is None:
        with pytest.raises(ValueError, match=r"network: want logits \(N, K\), got Out"):
            Recorded(train=lambda *given: None).federation(tmp_path / "run", network=lambda: Net(form=form))
        return
    training = trained_on(lambda output, labels: nn.functional.cross_entropy(logits_in(output), labels))
    federation = Recorded(network=lambda: Net(form=form), train=training).federation(tmp_path / "run")
    assert any(named.split(" ")[-1] in note for note in federation.notes)
    check_simulated(federation)


class Aux(Net):
    """Returns auxiliary logits in training mode only, as Inception and GoogLeNet do."""

    def forward(self, images: Tensor) -> Any:
        output = super().forward(images)
        return (output, output * 2) if self.training else output


def test_auxiliary_outputs_in_training_mode(tmp_path: Path) -> None:
    training = trained_on(lambda output, labels: nn.functional.cross_entropy(output[0], labels))
    check_simulated(Recorded(network=Aux, train=training).federation(tmp_path / "run"))


def prefixed(prefix: str) -> Callable[[State], Mapping[str, Any]]:
    return lambda state: {"model": {f"{prefix}{name}": tensor for name, tensor in state.items()}}


@pytest.mark.parametrize(
    "prefix", ["module.", "_module.", "_orig_mod.", "_orig_mod.module.", "model.", "state_dict.net."]
)
def test_prefixes_of_wrappers_are_removed(tmp_path: Path, prefix: str) -> None:
    federation = Recorded(up=prefixed(prefix), down=prefixed(prefix)).federation(tmp_path / "run")
    assert any("Recorded tensors were renamed" in note and f"{prefix}conv.weight" in note for note in federation.notes)
    check_simulated(federation)


def test_wrapped_networks(tmp_path: Path) -> None:
    federation = Recorded().federation(tmp_path / "run", network=lambda: nn.DataParallel(Net()))
    check_simulated(federation)
    federation = Recorded(network=lambda: nn.DataParallel(Net())).federation(tmp_path / "wrapped")
    check_simulated(federation)


def test_a_container_of_one_module_is_no_wrapper() -> None:
    network = nn.Sequential()
    network.add_module("module", Net())
    assert unwrapped(network) is network._modules["module"] or unwrapped(network) is network
    assert unwrapped(nn.Sequential(Net())).state_dict().keys() == nn.Sequential(Net()).state_dict().keys()


def test_lists_have_the_order_of_the_network(tmp_path: Path) -> None:
    as_list: Callable[[State], Mapping[str, Any]] = lambda state: {"model": [t.numpy() for t in state.values()]}  # noqa: E731
    check_simulated(Recorded(up=as_list, down=as_list).federation(tmp_path / "run"))


def test_names_that_do_not_fit_stay() -> None:
    state = {"0": torch.ones(2), "1": torch.ones(3)}
    assert renamed(state, Net()) == {"0": "0", "1": "1"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_floats_get_the_networks_type(tmp_path: Path, dtype: torch.dtype) -> None:
    cast: Callable[[State], Mapping[str, Any]] = lambda state: {  # noqa: E731
        "model": {name: t.to(dtype) if t.is_floating_point() else t for name, t in state.items()}
    }
    federation = Recorded(up=cast, down=cast).federation(tmp_path / "run")
    assert upload_of(federation).state["conv.weight"].dtype == torch.float32
    simulated(federation)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.uint8])
def test_whole_numbers_in_place_of_floats_are_refused(tmp_path: Path, dtype: torch.dtype) -> None:
    cast: Callable[[State], Mapping[str, Any]] = lambda state: {  # noqa: E731
        "model": {name: (t * 9).to(dtype) for name, t in state.items()}
    }
    match = f"want floating-point tensors in the model_state of a in round 0, got conv.weight of type {str(dtype)[6:]}"
    with pytest.raises(ValueError, match=match):
        Recorded(up=cast).federation(tmp_path / "run")


@pytest.mark.parametrize(
    "squeezed", [lambda z, h: z, lambda z, h: z.squeeze(1), lambda z, h: z[:, 0], lambda z, h: z.view(-1)]
)
def test_one_logit_is_read_as_two_classes(tmp_path: Path, squeezed: Any) -> None:
    def loss(output: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(output.reshape(-1), labels.float())

    network = lambda: Net(1, squeezed)  # noqa: E731
    federation = Recorded(network=network, train=trained_on(loss), classes=2).federation(tmp_path / "run")
    check_simulated(federation)
    simulator, _, _ = simulated(federation)
    assert simulator.last_layer == ("head.weight", "head.bias")
    assert upload_of(federation).state["head.weight"].shape[0] == 2


def test_regression_is_refused(tmp_path: Path) -> None:
    training = trained_on(lambda output, labels: nn.functional.mse_loss(output[:, 0], labels.float()))
    with pytest.raises(
        ValueError, match=r"want labels 0 and 1 where it has one logit.*got labels up to 2 in clients\['a'\]"
    ):
        Recorded(network=lambda: Net(1), train=training).federation(tmp_path / "run")


def test_two_rows_have_the_sigmoid_of_one() -> None:
    network = Net(1).eval()
    head = BinaryHead.of(network)
    assert head is not None
    images, _ = images_of(5, 3, 2)
    two = head.with_two_rows(network).eval()
    assert isinstance(two.head, TwoRows)
    torch.testing.assert_close(two(images), network(images))
    logit = network(images)[:, 0]
    weight = torch.cat([-network.head.weight / 2, network.head.weight / 2])
    hidden = torch.randn(5, 36)
    both = nn.functional.linear(hidden, weight, torch.cat([-network.head.bias / 2, network.head.bias / 2]))
    torch.testing.assert_close(both.softmax(1)[:, 1], network.head(hidden)[:, 0].sigmoid())
    with head.with_one_row(two):
        torch.testing.assert_close(two(images)[:, 0], logit)
        assert two.state_dict()["head.weight"].shape == (1, 36)
    assert isinstance(two.head, TwoRows)


def only(*parts: str) -> Callable[[State], Mapping[str, Any]]:
    return lambda state: {"model": {name: tensor for name, tensor in state.items() if name.startswith(parts)}}


@pytest.mark.parametrize(
    ("up", "down"),
    [
        (only("conv", "head"), only("conv", "head")),  # BatchNorm stays local
        (only("head"), only("head")),
        (only("head"), only("")),  # the whole model is sent down
        (lambda state: {"head": {name[5:]: t for name, t in state.items() if name.startswith("head")}}, only("")),
        (*[lambda state: {"head": {name[5:]: t for name, t in state.items() if name.startswith("head")}}] * 2,),
    ],
)
def test_parts_of_a_model(tmp_path: Path, up: Any, down: Any) -> None:
    def frozen() -> nn.Module:
        torch.manual_seed(0)
        network = Net().requires_grad_(False)
        network.head.requires_grad_(True)
        network.norm.momentum = 0.0
        return network

    federation = Recorded(network=frozen, up=up, down=down).federation(tmp_path / "run")
    assert any("of the network's" in note for note in federation.notes)
    check_simulated(federation)


def test_a_kept_last_layer_is_said(tmp_path: Path) -> None:
    federation = Recorded(up=only("conv", "norm"), down=only("conv", "norm")).federation(tmp_path / "run")
    reasons = federation.method.disclosure().not_evaluated
    assert reasons["model_state"] == "clients keep the last layer head, which attacks on models read the labels from"


def test_prototypes_alone(tmp_path: Path) -> None:
    up: Callable[[State], Mapping[str, Any]] = lambda state: {"kind": "prototype", "rows": torch.ones(3, 4)}  # noqa: E731
    federation = Recorded(up=up, down=lambda state: {}).federation(tmp_path / "run")
    assert federation.final is None
    assert any("prototype" in note for note in federation.notes)


def test_idle_clients_are_left_out(tmp_path: Path) -> None:
    clients = {name: (*images_of(12, seed), CLIENTS[name]) for seed, name in enumerate(CLIENTS)}
    clients["never"] = (*images_of(12, 9), "elsewhere")
    federation = Recorded().federation(tmp_path / "run", clients=clients)
    assert list(federation.population.clients) == list(CLIENTS)
    assert federation.population.sources == ("dark", "light")
    assert any("took part in no recorded round are left out (1): never" in note for note in federation.notes)


def test_clients_that_never_answer(tmp_path: Path) -> None:
    federation = Recorded(absent=("b", "d")).federation(tmp_path / "run")
    check_simulated(federation)
    assert federation.method.disclosure().participants == 2


@pytest.mark.parametrize("noted", [True, False])
def test_a_killed_training_keeps_a_last_round_with_a_failed_client(tmp_path: Path, noted: bool) -> None:
    clients = {name: (*images_of(12, seed), CLIENTS[name]) for seed, name in enumerate(CLIENTS)}
    wire, state = fdgpriv.record(tmp_path / "run"), Net().state_dict()
    for round in range(2):
        for name in CLIENTS:
            wire.down(name, round, model=state)
        for name in CLIENTS:
            if round == 1 and name == "d":
                if noted:
                    wire.failed(name, round, "out of memory")
            else:
                wire.up(name, round, model={key: tensor + 1 for key, tensor in state.items()})
    federation = recorded_federation(tmp_path / "run", GivenTraining(Net, clients), 0)  # not closed
    assert max(record.round for record in federation.transcript.records) == int(noted)
    assert any("d to server in round 1 (out of memory)" in note for note in federation.notes) == noted


def test_domains_of_idle_clients_are_no_unseen_domains(tmp_path: Path) -> None:
    clients = {name: (*images_of(12, seed), CLIENTS[name]) for seed, name in enumerate(CLIENTS)}
    public = {domain: images_of(40, 10 + place) for place, domain in enumerate(("dark", "light", "elsewhere", "new"))}
    clients["never"] = (*images_of(12, 9), "elsewhere")
    federation = Recorded().federation(tmp_path / "run", clients=clients, public=public)
    assert federation.population.target.name == "new"
    assert any("the public images of elsewhere" in sentence for sentence in federation.missing)
    checks = federation.all_checks()
    assert [(check.check, check.outcome) for check in checks if check.check == "messages"] == [("messages", "note")]


def test_numbers_name_clients_as_in_the_recording(tmp_path: Path) -> None:
    images = {name: (*images_of(12, seed), CLIENTS[name]) for seed, name in enumerate(CLIENTS)}
    numbered: dict[Any, Any] = dict(enumerate(images.values()))
    with fdgpriv.record(tmp_path / "run") as wire:
        for number in numbered:
            wire.up(number, 0, n=12)
    given = GivenTraining(Net, numbered, {}, train)
    assert list(recorded_federation(tmp_path / "run", given, 0).population.clients) == [str(n) for n in numbered]
    with pytest.raises(ValueError, match="clients: want different names, got '0' as a number and as text"):
        recorded_federation(tmp_path / "run", GivenTraining(Net, {**numbered, "0": numbered[0]}, {}, train), 0)


class Lazy(Net):
    """A network whose last layer learns its size from the first images."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.LazyLinear(CLASSES)


def ready() -> nn.Module:
    network = Lazy()
    network.eval()(torch.zeros(2, 3, SIDE, SIDE))
    return network


@pytest.mark.parametrize("given", [Lazy, lambda: Net().double(), lambda: Net().bfloat16()])
def test_networks_of_other_types_and_without_shapes(tmp_path: Path, given: Callable[[], nn.Module]) -> None:
    federation = Recorded(network=ready).federation(tmp_path / "run", network=given)
    check_simulated(federation)
    assert any("evaluated in float32" in note for note in federation.notes) == (given is not Lazy)


@pytest.mark.parametrize("down", [lambda state: {"model": {n: t for n, t in state.items() if "batches" not in n}}])
def test_counters_that_are_not_received(tmp_path: Path, down: Any) -> None:
    federation = Recorded(down=down).federation(tmp_path / "run")
    assert not federation.method.disclosure().not_evaluated
    check_simulated(federation)


@pytest.mark.parametrize(
    ("normalize", "words"),
    [
        (lambda images: None, "got nothing"),
        (lambda images: images.numpy(), "got ndarray"),
        (lambda images: 1 / 0, "got ZeroDivisionError"),
        (lambda images: (255 * images).byte(), "got uint8"),
        (lambda images: images / 0, "got NaN or an infinity"),
        (lambda images: images.flatten(1), r"got float32 \(2, 192\)"),
    ],
)
def test_a_normalisation_that_gives_no_images_is_refused(tmp_path: Path, normalize: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"normalize: want a function of images .*{words}"):
        Recorded(train=lambda *given: None).federation(tmp_path / "run", normalize=normalize)


def test_what_clients_share_is_compared_where_they_keep_a_part(tmp_path: Path) -> None:
    """Simulated changes are of all parameters, recorded ones of those that are shared."""
    part = only("conv", "head")
    federation = Recorded(up=part, down=part).federation(tmp_path / "run")
    assert {check.check for check in federation.checks} > {"direction", "uploads"}


def test_a_server_that_does_not_average_keeps_its_last_model(tmp_path: Path) -> None:
    """Its next model is not near the mean of the uploads, which would be a wrong final model."""
    scaled: Callable[[State], Mapping[str, Any]] = lambda state: {"model": {n: 50 * t for n, t in state.items()}}  # noqa: E731
    federation = Recorded(up=scaled).federation(tmp_path / "run")
    sent = federation.transcript.model_sent(1)
    assert federation.final is not None
    assert sent is not None
    torch.testing.assert_close(federation.final.state_dict()["head.weight"], sent.state["head.weight"])
    assert any(
        note.startswith("The final model is the last one that was sent, in round 1") for note in federation.notes
    )
