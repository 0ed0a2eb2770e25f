"""Decides LSI's claim of less communication: bytes of one client over the rounds of the paper's Table V."""

from fdgpriv.claims.claim_test import Case, Decision
from fdgpriv.claims.wire import downloads, total, uploads
from fdgpriv.federation.transcript import Record

_ROUNDS = 20  # of LSI, Table V
_OTHERS = {"FedDG-GA": 40, "gPerXAN": 100}  # rounds of each, in which a model is sent up and down (Table V)
_EACH_ROUND = ("model_state", "importance_weights", "bn_statistics", "validation_metrics")


def less_overhead(case: Case) -> Decision:
    """Table V with importance weights: 20 rounds of LSI against 40 of FedDG-GA and 100 of gPerXAN, in each direction.

    The models of the other methods are assumed as large as FedAvg's on the same network.
    """
    models, fedavg = uploads(case, "model_state"), case.facts.get("fedavg_bytes")
    if not models or fedavg is None:
        needed = "models in clients' uploads, and the size of FedAvg's model on the same network"
        return Decision("undecided", f"not measured: needs {needed}")
    clients = len({record.sender for record in models})
    up = _bytes_of_client(uploads(case), len(models), clients)
    down = _bytes_of_client(downloads(case), len(models), clients)
    others = {name: rounds * fedavg for name, rounds in _OTHERS.items()}
    evidence = (
        f"bytes of a client in {_ROUNDS} rounds: {up:,.0f} up, {down:,.0f} down",
        *(
            f"{name}, {_OTHERS[name]} rounds of FedAvg's model on the same network: {size:,.0f} in each direction; LSI "
            f"uploads {up / size:.3f}, downloads {down / size:.3f}, together {(up + down) / (2 * size):.3f} times as much"
            for name, size in others.items()
        ),
    )
    more = [
        f"{verb} more than {name}"
        for name, other_size in others.items()
        for verb, size in (("uploads", up), ("downloads", down))
        if size > other_size
    ]
    if more:
        return Decision("refuted", f"a client {' and '.join(more)}, with all that it sends", evidence)
    return Decision("supported", "less than both, in each direction", evidence)


def _bytes_of_client(records: list[Record], uploaded: int, clients: int) -> float:
    """Bytes of one client in 20 rounds: a model in each, what goes with it, and what is sent once."""
    models = [record for record in records if record.kind == "model_state"]
    with_model = [record for record in records if record.kind in _EACH_ROUND and record.kind != "model_state"]
    once = [record for record in records if record.kind not in _EACH_ROUND]
    per_round = total(models) / max(1, len(models)) + total(with_model) / uploaded
    return _ROUNDS * per_round + total(once) / clients
