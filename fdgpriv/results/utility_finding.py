"""What results.json says of a model's worth: accuracies with intervals, by round and by the rule that picks one."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from fdgpriv.statistics.measured import Measured
from fdgpriv.utils.records import Count, Entry, Probability, Text, Word


def _is_share(figure: Measured) -> Measured:
    """`figure` where value and interval are in [0, 1]; a ValueError otherwise."""
    for number in (figure.value, *(figure.ci95 or ())):
        if number is not None and not 0 <= number <= 1:
            raise ValueError(f"want a share in [0, 1], got {number}")
    return figure


Share = Annotated[Measured, AfterValidator(_is_share)]


class RoundUtility(Entry):
    """Accuracy after so many rounds; null, with a reason, where training diverged.

    Of the model that the server sends in this round, and after the last one of the final model. Where each client has a
    model of its own, as in PersonalUtility over those that the server sent; before the last round each of these models is
    tried on every third target image, so that in turn every image is.
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
    """What one client's own model is worth, on its held-out part and on the unseen domain."""

    client: Word
    source_accuracy: Probability | None
    target_accuracy: Probability


class PersonalUtility(Entry):
    """What models of their own are worth to their clients: each on its client's held-out part, and on the unseen domain.

    Source accuracy is over all held-out images, target accuracy the mean over the models.
    """

    source_accuracy: Share
    target_accuracy: Share
    clients: tuple[ClientUtility, ...]


class ChosenUtility(Entry):
    """Accuracy of the model that one rule takes of those in `Utility.rounds`.

    Attributes:
        rounds: After which rounds: one, or several whose accuracies are averaged, as are the ends of their intervals.
        source_accuracy, target_accuracy: As there, with intervals over images.
    """

    rounds: Annotated[tuple[Count, ...], Field(min_length=1)]
    source_accuracy: Share
    target_accuracy: Share


class Utility(Entry):
    """What the trained model is worth, on the clients' held-out parts and on the unseen domain.

    The accuracies outside `rounds` and the three rules are those of the model that the method returns: some methods take
    the last round's, others select one by accuracies that clients report. The rules are the same for all methods.

    Attributes:
        rounds: Every round whose model was evaluated; the evaluator does that, and nobody in the federation is told.
        last_round: Of the model after all rounds.
        selected_round: Of the round with the best source accuracy among `rounds`, the earliest of several.
        last_five: The mean over the last five of `rounds`, or over all where there are fewer.
        personal: Of the clients' own models, where the method ends with such. `rounds` and the rules are of those too;
            the rest is of the model for everyone.
    """

    source_accuracy: Share
    target_accuracy: Share
    calibration_error: Share
    rounds: tuple[RoundUtility, ...] = ()
    last_round: ChosenUtility | None = None
    selected_round: ChosenUtility | None = None
    last_five: ChosenUtility | None = None
    personal: PersonalUtility | None = None
