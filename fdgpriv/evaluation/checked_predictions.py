"""Checks that an attack's answer has one finite tensor, of a shape that the task defines, for each observation."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary
from fdgpriv.simulation.ground_truth import GroundTruth
from fdgpriv.tasks.task import Form, Predictions, Task


def checked_predictions(
    attack: str, answer: object, task: Task, adversary: Adversary, truths: Sequence[GroundTruth]
) -> Predictions:
    """The answer as predictions of the task.

    Args:
        attack: The attack's name, for errors.
        answer: The return value of its `infer`.
        task: Defines the shapes of a prediction.
        adversary: The adversary that predicts.
        truths: The truths of the observations, in order.

    Raises:
        ValueError: The answer has another type, length or shape, or values that are not finite.
    """
    if not isinstance(answer, Predictions | Sequence | Tensor) or (isinstance(answer, Tensor) and answer.ndim == 0):
        raise ValueError(f"{attack}.infer: want a prediction for each observation, got {_described(answer)}")
    predictions = Predictions.of(answer)
    if len(predictions) != len(truths):
        raise ValueError(
            f"{attack}.infer: want {len(truths)} predictions, one for each observation, got {len(predictions)}"
        )
    for number, (prediction, truth) in enumerate(zip(predictions, truths, strict=True)):
        if fault := _fault(prediction, task.forms(adversary, truth)):
            raise ValueError(f"{attack}.infer: {fault} (prediction {number})")
    for name, baselines in predictions.baselines.items():
        for baseline in baselines:
            if fault := _fault(baseline, ()):
                raise ValueError(f"{attack}.infer: {fault} (baseline {name})")
    return predictions


def _fault(prediction: object, forms: Sequence[Form]) -> str | None:
    """The error in one prediction; None if it is valid."""
    if not isinstance(prediction, Tensor):
        return f"want a prediction to be a tensor, got {_described(prediction)}"
    if prediction.is_complex() or prediction.layout is not torch.strided:
        return f"want a dense tensor of real numbers, got {_described(prediction)}"
    if forms and not any(_fits(prediction, form) for form in forms):
        wanted = " or ".join(_written(form) for form in forms)
        return f"want a prediction {wanted}, got {_written(tuple(prediction.shape))}"
    if not bool(prediction.isfinite().all()):
        return f"want finite predictions, got {'NaN' if bool(prediction.isnan().any()) else 'an infinity'}"
    return None


def _fits(prediction: Tensor, form: Form) -> bool:
    return prediction.ndim == len(form) and all(
        size == wanted or (wanted is None and size > 0) for size, wanted in zip(prediction.shape, form, strict=True)
    )


def _written(form: Form) -> str:
    inside = ", ".join("M" if size is None else str(size) for size in form)
    return f"({inside},)" if len(form) == 1 else f"({inside})"


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {_written(tuple(value.shape))} of {str(value.dtype).removeprefix('torch.')}"
    return type(value).__name__
