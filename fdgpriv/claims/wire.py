"""Claims about what crossed the wire: layers with statistics, bytes, and the data themselves."""

from collections.abc import Iterable, Sequence
from math import prod

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.statistics import ValidationMetrics
from fdgpriv.claims.claim_test import Case, Decision
from fdgpriv.federation.transcript import Record

_MODELS = ("model_state", "model_update")
_PARAMETERS = (
    *_MODELS,
    *("classifier_head", "importance_weights", "bn_statistics", "autoencoder_state", "masked_upload"),
)
_FROZEN = {"freeze": ("",), "freeze_backbone": ("backbone.",)}  # by `buffers`, how the names of frozen layers begin
_HEAD = "head."  # a head sent by itself has its tensors' names without this


def statistics_layers(case: Case) -> int:
    """Number of BatchNorm layers whose running statistics, computed from images, clients share with the server.

    Over all rounds; frozen statistics do not depend on images and are not counted.
    """
    frozen = _FROZEN.get(str(case.settings.get("buffers")), ())
    names = {
        name.rpartition(".")[0]
        for record in case.records
        if record.receiver == SERVER
        for name in record.shapes
        if name.endswith("running_mean") and not (record.kind in _MODELS and name.startswith(frozen))
    }
    return len({name.removeprefix(_HEAD) for name in names})


def uploads(case: Case, *kinds: str) -> list[Record]:
    """Artifacts of these kinds that clients sent; of all kinds if none is named."""
    return [record for record in case.records if record.receiver == SERVER and (not kinds or record.kind in kinds)]


def downloads(case: Case, *kinds: str) -> list[Record]:
    """Artifacts of these kinds that clients received; of all kinds if none is named."""
    return [record for record in case.records if record.receiver != SERVER and (not kinds or record.kind in kinds)]


def total(records: Iterable[Record]) -> int:
    """Their bytes in total."""
    return sum(record.nbytes for record in records)


def numbers(record: Record) -> int:
    """The number of scalars in one artifact."""
    return sum(prod(shape) for shape in record.shapes.values())


def no_data_crosses(case: Case) -> Decision:
    """Refuted if a client sends an artifact of a single image with at least as many numbers as the image.

    Parameters, statistics of several images and styles of few numbers are not the data, whatever attacks infer from them.
    """
    image = case.facts.get("image_numbers")
    sent = uploads(case)
    if not sent or image is None:
        return Decision("undecided", "not measured: needs artifacts that clients share and the size of their images")
    singles = [r for r in sent if (r.samples == 1 or r.level == "image") and r.kind not in _PARAMETERS]
    largest = max(map(numbers, singles), default=0)
    most = f"at most {largest:,} numbers each; " if singles else ""
    evidence = (
        f"artifacts that clients send: {_listed(sent)}",
        f"{len(singles)} of a single image, parameters left out: {most}an image has {image:,.0f} numbers",
        *besides(case),
    )
    if largest >= image:
        return Decision("refuted", "artifacts of single images with as many numbers as the images are sent", evidence)
    reason = (
        "no image is sent, nor anything of a single image with as many numbers; what attacks infer, other claims say"
    )
    return Decision("supported", reason, evidence)


def besides(case: Case) -> tuple[str, ...]:
    """Further artifacts computed from images: BatchNorm statistics, styles of single images, accuracies."""
    relayed = sum(record.relayed and record.level == "image" for record in case.records)
    accuracies = sum(record.kind == ValidationMetrics.kind for record in case.records)
    return (
        f"BatchNorm statistics, computed from images, of {statistics_layers(case)} layers in clients' uploads",
        f"{relayed} times a single image's style of one client was sent to another client",
        f"{accuracies} times a client's accuracy on its held-out images was sent",
    )


def _listed(records: Sequence[Record]) -> str:
    return ", ".join(sorted({record.kind.replace("_", " ") for record in records}))
