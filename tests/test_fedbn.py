"""FedBN: which tensors cross, whose BatchNorm layers a client keeps, and what an unseen domain is tested with."""

from itertools import pairwise

import torch
from factories import crossed, federation, held, network, refused, run, run_afresh, seeded, small
from torch import nn

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.local_tensors import batchnorm_tensors
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.defense import defended
from fdgpriv.models.backbone import backbone

BUILD = network(1, 1)


def test_layers_are_found_by_type_not_name() -> None:
    block = nn.Sequential()
    block.add_module("downsample", nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
    block.add_module("bn", nn.Conv2d(4, 4, 1))
    leaves = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    assert batchnorm_tensors(block) == {f"downsample.1.{leaf}" for leaf in leaves}
    assert batchnorm_tensors(nn.BatchNorm1d(2)) == set(leaves)


def test_nothing_of_batchnorm_crosses_the_wire() -> None:
    ran = run(small("fedbn"), 5, 7, build=BUILD)
    names = {name for record in ran.transcript.records if record.kind == ModelState.kind for name in record.shapes}
    convolutions = {f"backbone.body.layer{i}.0.{leaf}" for i in (1, 2) for leaf in ("weight", "bias")}
    assert names == convolutions | {"head.weight", "head.bias"}
    initial = small("fedbn").model(federation(2, build=BUILD), seeded(0)).state_dict()
    assert all(torch.equal(ran.state[name], initial[name]) for name in ran.state.keys() - names)


def test_bytes_that_stay_with_a_resnet_18() -> None:
    model = backbone("resnet18", mean=(0.5,) * 3, std=(0.5,) * 3, rng=seeded(0))
    state = model.state_dict()
    local = {name: tensor.nbytes for name, tensor in state.items() if name in batchnorm_tensors(model)}
    assert sum(size for name, size in local.items() if not name.endswith("tracked")) == 4 * 4 * 4_800
    assert sum(name.endswith("downsample.1.running_var") for name in local) == 3


def test_a_client_continues_with_its_own_scales() -> None:
    method, world = small("fedbn", rounds=3), federation(2, build=BUILD)
    client = method.client(world, held("client-0", 6), seeded(1))
    sent = next(method.server(world, seeded(0))).messages["client-0"][0]
    kept = []
    for round in range(2):
        client.fit([ModelState(client=SERVER, round=round, state=sent.state)])
        kept.append({name: client.model.state_dict()[name].clone() for name in batchnorm_tensors(client.model)})
    client.use([ModelState(client=SERVER, round=3, state=sent.state)])
    final = client.model.state_dict()
    for name, tensor in sent.state.items():
        assert torch.equal(final[name], tensor)
    for name, tensor in kept[1].items():
        assert torch.equal(final[name], tensor)
    for before, after in pairwise(kept):
        assert all(not torch.equal(before[name], after[name]) for name in before if name.endswith(("weight", "mean")))
    predicted = client.model.eval()(client.data.held_out_pixels).argmax(1)
    assert client.log["personal_accuracy"] == (float((predicted == client.data.held_out_labels).sum()), 2)


def test_clients_are_averaged_equally_and_share_no_count() -> None:
    ran = run(small("fedbn"), 5, 11, build=BUILD)
    assert {record.kind for record in ran.transcript.records} == {ModelState.kind}
    assert small("fedbn").disclosure().uploads == (ModelState.kind,)
    final = [model.state for model in crossed(ran.transcript, ModelState) if model.client != SERVER][-2:]
    for name, tensor in final[0].items():
        torch.testing.assert_close(ran.state[name], (tensor + final[1][name]) / 2)
    weighed = run(small("fedbn", weights="samples"), 5, 11, build=BUILD)
    assert "sample_count" in {record.kind for record in weighed.transcript.records}


def test_the_log_has_the_clients_own_accuracy() -> None:
    ran = run_afresh(small("fedbn"), 5, 7, build=BUILD)
    assert 0 <= ran.log["personal_accuracy"] <= 1
    assert [record.verb for record in ran.transcript.records][-2:] == ["use", "use"]
    assert len(crossed(ran.transcript, ModelState)) == 2 * (2 + 2) + 2


def test_what_is_local_already_needs_no_defense() -> None:
    method = small("fedbn")
    assert method.local_statistics
    with refused("bn_local: has no effect"):
        defended(method, "bn_local")
    with refused("bn_frozen: not applicable to fedbn"):
        defended(method, "bn_frozen")
    with refused("dpsgd: not applicable to fedbn: it replaces the BatchNorm layers"):
        defended(method, "dpsgd")
