"""Utility entries of results.json: accuracies with intervals, by round and by round-selection rule."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fdgpriv.statistics.measured import Measured
from fdgpriv.utils.records import Count, Entry, Probability, Text, Word


def _is_share(figure: Measured) -> Measured:
    """Returns `figure`; raises ValueError unless value and interval are in [0, 1]."""
    for number in (figure.value, *(figure.ci95 or ())):
        if number is not None and not 0 <= number <= 1:
            raise ValueError(f"want a share in [0, 1], got {number}")
    return figure


Share = Annotated[Measured, AfterValidator(_is_share)]


class RoundUtility(Entry):
    """Accuracy after `round` rounds; null, with a reason, if training diverged.

    Of the model that the server sends in this round, or the final model. For personal models as in PersonalUtility over
    those that the server sent; before the last round each of them is evaluated on every third target image, and together
    they cover all images.
    """

    round: Count
    source_accuracy: Probability | None
    target_accuracy: Probability | None
    reason: Text | None = None

    @model_validator(mode="after")
    def _null_has_a_reason(self) -> Self:
        if None in (self.source_accuracy, self.target_accuracy) and not self.reason:
            raise ValueError("want a reason where an accuracy is null, got none")
        return self


class ClientUtility(Entry):
    """Accuracy of one client's personal model on its held-out images and on the target domain."""

    client: Word
    source_accuracy: Probability | None
    target_accuracy: Probability


class PersonalUtility(Entry):
    """Accuracy of personal models on their clients' held-out images and on the target domain.

    Source accuracy is over all held-out images, target accuracy is the mean over the models.
    """

    source_accuracy: Share
    target_accuracy: Share
    clients: tuple[ClientUtility, ...]


class ChosenUtility(Entry):
    """Accuracy of the model selected from `Utility.rounds` by one rule.

    Attributes:
        rounds: The selected round, or several rounds whose accuracies and interval bounds are averaged.
        source_accuracy, target_accuracy: As in `Utility`, with intervals over images.
    """

    rounds: Annotated[tuple[Count, ...], Field(min_length=1)]
    source_accuracy: Share
    target_accuracy: Share


class SourceProbe(Entry):
    """What a linear classifier reaches on the images of the source accuracy.

    Attributes:
        accuracy: On the held-out images of the clients, fitted to their training images.
        majority: The share of the most frequent class among the held-out images.
        on: ``pixels``, or ``pre-trained features`` of the network that training starts from.
    """

    accuracy: Probability
    majority: Probability
    on: Literal["pixels", "pre-trained features"]

    @property
    def half_way(self) -> float:
        """The mean of both: a model below it has not learned."""
        return (self.majority + self.accuracy) / 2


class Utility(Entry):
    """Utility of the trained model on held-out source images and on the target domain.

    The accuracies outside `rounds` and the three rules are those of the returned model: some methods return the last
    round's, others select one by accuracies that clients report. Where clients share nothing, they are means over the clients'
    own models. The rules are the same for all methods.

    Attributes:
        rounds: Every round whose model was evaluated, by the evaluator only; the accuracies are not shared.
        last_round: The model after all rounds.
        selected_round: The earliest round with the best source accuracy among `rounds`.
        last_five: The mean over the last five of `rounds`, or over all if there are fewer.
        personal: Of the clients' personal models, if the method has any. Then `rounds` and the rules are also about these;
            the rest is about the common model.
        adapted_accuracy: Target accuracy of the common model adapted to the target's unlabelled images, where the method
            adapts at test time; null otherwise.
        recomputed_statistics: Whether BatchNorm statistics were recomputed on the images of each evaluated domain, without
            labels, the target domain's included: such accuracies do not compare with those of models that never see the target.
        chance: Target accuracy of always naming the class that the target domain has most of; null in files of versions that
            did not compute it.
        source_probe: A linear classifier on the same source images; null where there are none, or in files of versions that
            did not compute it.
    """

    source_accuracy: Share
    target_accuracy: Share
    calibration_error: Share
    chance: Probability | None = None
    source_probe: SourceProbe | None = None
    rounds: tuple[RoundUtility, ...] = ()
    last_round: ChosenUtility | None = None
    selected_round: ChosenUtility | None = None
    last_five: ChosenUtility | None = None
    personal: PersonalUtility | None = None
    adapted_accuracy: Share | None = None
    recomputed_statistics: bool = False

    @property
    def not_learned(self) -> str | None:
        """Why the model has not learned, in a clause; None if it has, or that is not known.

        It has not where its source accuracy is below half-way from the majority share to the probe. Where clients have
        models of their own, it is the accuracy of these.
        """
        probe, accuracy = self.source_probe, (self.personal or self).source_accuracy.value
        if probe is None or accuracy is None or accuracy >= probe.half_way:
            return None
        return (
            f"source accuracy {accuracy:.3f} is below {probe.half_way:.3f}, half-way from naming the most frequent class "
            f"({probe.majority:.3f}) to a linear probe on {probe.on} of the same images ({probe.accuracy:.3f})"
        )
