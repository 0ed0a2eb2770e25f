"""What reconstructions read in what clients sent before they draw: labels, batch statistics, a guess."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from fdgpriv.artifact import ModelState
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
        changes: By parameter, sent minus trained; none where nothing was trained.
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
    for behind, places, sent in alike(questions):
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


def taken_anew(
    view: View, model: nn.Module, questions: Sequence[Question], most: int, layers: slice
) -> Iterator[Uploads]:
    """The same of BatchNorm statistics that nobody trained for: labels too are read from these.

    Layers that kept what was sent saw nothing.
    """
    for behind, places, sent in alike(questions):
        sent.load_into(model)
        shown = [revealed(model, questions[i].artifact.tensors(), None, 0) for i in places]
        kept = {
            name for name, (mean, _) in revealed(model, sent.state, None, 0).items() if _any_kept(name, mean, shown)
        }
        names = [name for name in shown[0] if name not in kept][layers]
        moments = {name: _stacked([one[name] for one in shown]) for name in names}
        likely = view.learned.get((Likely, sent, True), partial(Likely, view, model, True))
        shares = likely.shares(moments)
        labels = torch.stack([labels_of(share, min(most, behind)) for share in shares])
        yield Uploads(places, [], list(shares), labels, moments, likely.of_class(labels), likely(moments, labels), True)


def _any_kept(name: str, sent: Tensor, shown: Sequence[Mapping[str, Moments]]) -> bool:
    return any(torch.allclose(one[name][0], sent, rtol=1e-4, atol=1e-6) for one in shown)


def alike(questions: Sequence[Question]) -> Iterator[tuple[int, list[int], ModelState]]:
    """How many images are behind them, places and what was sent, of the questions that have these in common."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, question in enumerate(questions):
        found[id(question.sent), question.images_behind].append(i)
    for (_, behind), places in found.items():
        sent = questions[places[0]].sent
        assert sent is not None
        yield behind, places, sent


def _stacked(moments: Sequence[Moments]) -> Moments:
    return torch.stack([mean for mean, _ in moments]), torch.stack([variance for _, variance in moments])
