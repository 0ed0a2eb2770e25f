"""Decides LSI's claim of less communication: bytes of one client over the rounds of the paper's Table V."""

from fdgpriv.claims.hypothesis import Case, Decision
from fdgpriv.claims.wire import downloads, total, uploads
from fdgpriv.federation.transcript import Record

_ROUNDS = 20  # of LSI, Table V
_OTHERS = {"FedDG-GA": 40, "gPerXAN": 100}  # rounds of each, in which a model is sent up and down (Table V)
_EACH_ROUND = ("model_state", "importance_weights", "bn_statistics", "validation_metrics")


def less_overhead(case: Case) -> Decision:
    """Table V with importance weights: 20 rounds of LSI against 40 of FedDG-GA and 100 of gPerXAN, in each direction.

    Of the others a model is counted as large as FedAvg's on the same network.
    """
    models, fedavg = uploads(case, "model_state"), case.facts.get("fedavg_bytes")
    if not models or fedavg is None:
        needed = "models in clients' uploads, and the size of FedAvg's model on the same network"
        return Decision("undecided", f"not measured: needs {needed}")
    clients = len({record.sender for record in models})
    up, down = (_sent(of(case), len(models), clients) for of in (uploads, downloads))
    others = {name: rounds * fedavg for name, rounds in _OTHERS.items()}
    evidence = (
        f"bytes of a client in {_ROUNDS} rounds: {up:,.0f} up, {down:,.0f} down",
        *(
            f"{name}, {_OTHERS[name]} rounds of FedAvg's model on the same network: {there:,.0f} in each direction; LSI "
            f"uploads {up / there:.3f}, downloads {down / there:.3f}, together {(up + down) / (2 * there):.3f} times as much"
            for name, there in others.items()
        ),
    )
    more = [
        f"{what} more than {name}"
        for name, there in others.items()
        for what, here in (("uploads", up), ("downloads", down))
        if here > there
    ]
    if more:
        return Decision("refuted", f"a client {' and '.join(more)}, with all that it sends", evidence)
    return Decision("supported", "less than both, in each direction", evidence)


def _sent(records: list[Record], uploaded: int, clients: int) -> float:
    """Bytes of one client in 20 rounds: a model in each, what goes with it, and what is sent once."""
    models = [record for record in records if record.kind == "model_state"]
    with_it = [record for record in records if record.kind in _EACH_ROUND and record.kind != "model_state"]
    once = [record for record in records if record.kind not in _EACH_ROUND]
    each = total(models) / max(1, len(models)) + total(with_it) / uploaded
    return _ROUNDS * each + total(once) / clients
