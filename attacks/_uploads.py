"""What reconstructions read in the models or updates of clients before they draw: labels, batch statistics, a guess."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from fdgpriv.exam import Question, View
from fdgpriv.style import Moments
from fdgpriv.subjects import TrainingCraft

from ._batchnorm import batches_seen, revealed, shares_statistics
from ._labels import LabelReader, labels_of
from ._likely import Likely


@dataclass(frozen=True, eq=False)
class Uploads:
    """G uploads of equally many images, trained of one model that was sent.

    Attributes:
        places: (G,) of the questions.
        changes: By parameter, sent minus trained.
        shares: (K,) of labels behind each.
        labels: (G, m) of the m images to draw.
        moments: By BatchNorm layer, what the buffers reveal: mean and variance (G, C).
        start: (G, m, 3, H, W), the mean public images of these labels.
        likely: (G, m, 3, H, W), what public images suggest, given the moments too.
        own: Whether BatchNorm, if there is any, normalised by the batch's own statistics; else by its buffers.
    """

    places: Sequence[int]
    changes: Sequence[Mapping[str, Tensor]]
    shares: Sequence[Tensor]
    labels: Tensor
    moments: Mapping[str, Moments]
    start: Tensor
    likely: Tensor
    own: bool


def uploads(
    view: View,
    craft: TrainingCraft,
    model: nn.Module,
    questions: Sequence[Question],
    most: int,
    layers: slice,
    rng: torch.Generator,
) -> Iterator[Uploads]:
    """The questions by what they were sent and how many images are behind them; the model holds what was sent meanwhile.

    Args:
        view, craft: What the adversary has.
        model: The network, in evaluation mode.
        questions: All.
        most: Images to draw of an upload of that many or more.
        layers: Which of the BatchNorm layers, in order, are read.
        rng: Of practice.
    """
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, question in enumerate(questions):
        alike[id(question.sent), question.images_behind].append(i)
    for (_, behind), places in alike.items():
        sent = questions[places[0]].sent
        assert sent is not None
        sent.load_into(model)
        after = [craft.after(questions[i].artifact, sent).state for i in places]
        changes = [craft.change(questions[i].artifact, sent) for i in places]
        batches = max(batches_seen(state, sent.state) for state in after)  # public; random artifacts count none
        shown = [revealed(model, state, sent.state, batches) for state in after]
        moments = {name: _stacked([one[name] for one in shown]) for name in list(shown[0])[layers]}
        own = batches > 0 or not shares_statistics(sent.state)
        reader = LabelReader(view, model, sent, behind, rng)
        shares = [reader(change) for change in changes]
        labels = torch.stack([labels_of(share, min(most, behind)) for share in shares])
        likely = view.learned.get((Likely, sent, own), partial(Likely, view, model, own))
        start, guess = likely.of_class(labels), likely(moments, labels)
        yield Uploads(places, changes, shares, labels, moments, start, guess, own)


def _stacked(moments: Sequence[Moments]) -> Moments:
    return torch.stack([mean for mean, _ in moments]), torch.stack([variance for _, variance in moments])
