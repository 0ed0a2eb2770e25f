"""Checks of a recorded training against the images, network and training that its user gave: one function for each.

A check returns a `RecordingCheck`: an error where verdicts would be wrong, a note where they are weaker or nothing could be
measured. Thresholds were set on federated averaging of small networks on photographs and drawings (15 clients of 40 to 80
images, with and without BatchNorm); each docstring gives the values of right and of wrong input that they lie between.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.external.recorded_changes import ComparedClient, ModelChange, cosine, cosines
from fdgpriv.results.recording_check import RecordingCheck
from fdgpriv.simulation.shared_model import GLOBAL_MODEL

MODEL_QUESTIONS = (
    ModelState.kind,
    ModelUpdate.kind,
    GLOBAL_MODEL,
)  # artifacts whose questions rest on simulated clients
REVERSED = "updates that are received minus trained"
_NAMED = 3  # clients, classes or rounds that a sentence names
_LEAST_INFORMATION = 0.02  # nats that predictions tell of labels, below which a model has learned nothing


def sample_counts(recorded: Sequence[tuple[str, int, int]], given: Mapping[str, int]) -> RecordingCheck:
    """Whether each recorded number of images is that of the images given; they are counts, so that any difference is an error.

    Args:
        recorded: Client, round and number of each recorded count.
        given: By client, its number of images.
    """
    wrong = [(client, round, n) for client, round, n in recorded if n != given[client]]
    if not recorded:
        return RecordingCheck(check="number of images", outcome="pass", sentence="no numbers of images were recorded")
    if not wrong:
        clients = len({client for client, _, _ in recorded})
        return RecordingCheck(
            check="number of images",
            outcome="pass",
            sentence=f"the recorded numbers are those of the images given, of {clients} clients",
        )
    client, round, n = wrong[0]
    others = len({name for name, _, _ in wrong}) - 1
    more = f" (and {_count(others, 'client')} more)" if others else ""
    return RecordingCheck(
        check="number of images",
        outcome="error",
        sentence=f"clients: client {client} recorded n = {n} in round {round}, got {given[client]} images{more}; want the "
        "images that it trained on, and n their number: size, labels and membership are judged by them",
    )


def messages(missing: Sequence[str]) -> RecordingCheck:
    """Whether the recording has all messages of all clients given; a note with what it lacks."""
    if not missing:
        return RecordingCheck(check="messages", outcome="pass", sentence="the recording is complete")
    return RecordingCheck(check="messages", outcome="note", sentence=" ".join(missing).removesuffix("."))


def public_images(private: Mapping[str, Collection[bytes]], public: Mapping[str, Sequence[bytes]]) -> RecordingCheck:
    """Whether public images are among clients' images.

    They count as images that nobody trained on. An error from 5 % of a domain's images, which shifts a measured membership
    AUC by .025; below that a note: data sets have a few images twice (PACS .1 %).

    Args:
        private: By client, hashes of its images.
        public: By domain, a hash of each image.
    """
    everything = {digest for digests in private.values() for digest in digests}
    shared = {domain: sum(digest in everything for digest in digests) for domain, digests in public.items()}
    shares = {domain: shared[domain] / len(digests) for domain, digests in public.items() if digests}
    if not any(shared.values()):
        total = sum(map(len, public.values()))
        return RecordingCheck(
            check="public images", outcome="pass", sentence=f"none of {total:,} public images is among the clients'"
        )
    worst = max(shares, key=lambda domain: shares[domain])
    digests = set(public[worst])
    owner = next(client for client, hashes in private.items() if not digests.isdisjoint(hashes))
    sentence = (
        f"public: {shared[worst]:,} of the {len(public[worst]):,} images of {worst} are clients' images (e.g. of {owner}), "
        "and count as images that nobody trained on"
    )
    serious = shares[worst] >= 0.05
    return RecordingCheck(
        check="public images",
        outcome="error" if serious else "note",
        sentence=f"{sentence}; want images that no client has" if serious else sentence,
        secrets=("membership",),
    )


def clients_in_common(images: Mapping[str, Collection[bytes]]) -> RecordingCheck:
    """Whether two clients were given the same images: a note, as clients may hold copies, from half of the smaller one."""
    names = list(images)
    pairs = [
        (one, other, count)
        for i, one in enumerate(names)
        for other in names[i + 1 :]
        if 2 * (count := len(set(images[one]) & set(images[other]))) >= min(len(images[one]), len(images[other]))
    ]
    if not pairs:
        return RecordingCheck(
            check="clients' images", outcome="pass", sentence="no two clients have half of their images in common"
        )
    one, other, count = pairs[0]
    more = f" (and {_count(len(pairs) - 1, 'pair')} more)" if len(pairs) > 1 else ""
    return RecordingCheck(
        check="clients' images",
        outcome="note",
        sentence=f"clients: {one} and {other} have {_count(count, 'image')} in common{more}: one client's membership is that "
        "of the other",
        secrets=("membership", "identity"),
    )


class LabelFit(NamedTuple):
    """How well a client's labels fit the model that it sent.

    Attributes:
        client: Its name.
        loss: Cross-entropy of the labels given, nats.
        permuted: Its mean over permutations of these labels, nats.
        information: What predictions tell of each other's differences: entropy of their mean minus their mean entropy, nats.
        confusion: (K, K), number of images by label given (row) and predicted class (column).
    """

    client: str
    loss: float
    permuted: float
    information: float
    confusion: Tensor

    @classmethod
    def of(cls, client: str, log_probabilities: Tensor, labels: Tensor) -> "LabelFit":
        """From predictions (N, K) and labels (N,)."""
        classes = log_probabilities.shape[1]
        shares = torch.bincount(labels, minlength=classes).float() / len(labels)
        probabilities = log_probabilities.exp()
        mean = probabilities.mean(0)
        confusion = torch.zeros(classes, classes)
        confusion.index_put_((labels, log_probabilities.argmax(1)), torch.ones(len(labels)), accumulate=True)
        return cls(
            client,
            float(-log_probabilities.gather(1, labels[:, None]).mean()),
            float(-(log_probabilities @ shares).mean()),
            float((probabilities * log_probabilities).sum(1).mean() - (mean * mean.clamp_min(1e-30).log()).sum()),
            confusion,
        )


def labels(fits: Sequence[LabelFit], classes: Sequence[str]) -> RecordingCheck:
    """Whether the models that clients sent predict their images' labels better than permuted ones.

    BatchNorm takes the statistics of the client's images, so that neither slow running statistics nor a wrong normalisation
    decides. Right labels: lower loss for all of 15 clients, by .3 to .7 nats after one round; labels shifted by three
    classes: for 7 to 27 % of them. An error below two thirds, and a note that names the clients below all. It cannot be told
    where predictions do not depend on the image (information below `_LEAST_INFORMATION`; .08 to .2 after one round).
    """
    fits = [fit for fit in fits if int((fit.confusion.sum(1) > 0).sum()) > 1]  # one class is equal to its permutation
    if not fits:
        return RecordingCheck(
            check="labels",
            outcome="note",
            sentence="labels could not be checked: no client has two classes and sent a whole model",
        )
    information = _median([fit.information for fit in fits])
    loss, permuted = _median([fit.loss for fit in fits]), _median([fit.permuted for fit in fits])
    better = sum(fit.loss < fit.permuted for fit in fits)
    of = f"medians of {_count(len(fits), 'client')}"
    figures = f"loss {loss:.2f} on the labels given and {permuted:.2f} on permuted ones ({of})"
    if better == len(fits):
        return RecordingCheck(check="labels", outcome="pass", sentence=figures)
    if 3 * better >= 2 * len(fits):
        wrong = sorted((fit for fit in fits if fit.loss >= fit.permuted), key=lambda fit: fit.permuted - fit.loss)
        return RecordingCheck(
            check="labels",
            outcome="note",
            sentence=f"the labels given of {_named([fit.client for fit in wrong])} fit what they sent no better than permuted "
            f"ones: are they right? loss {wrong[0].loss:.2f} on the labels given of {wrong[0].client} and "
            f"{wrong[0].permuted:.2f} on permuted ones; {loss:.2f} and {permuted:.2f} ({of})",
            secrets=("labels", "membership"),
        )
    if information < _LEAST_INFORMATION:
        return RecordingCheck(
            check="labels",
            outcome="note",
            sentence=f"labels could not be checked: the models have learned too little; {figures}",
        )
    return RecordingCheck(
        check="labels",
        outcome="error",
        sentence=f"clients: the labels given are not those that the recorded models were trained on: {figures}; lower for "
        f"{better}{_other_order(fits, classes)}",
    )


def _other_order(fits: Sequence[LabelFit], classes: Sequence[str]) -> str:
    """The order of the classes by which predictions fit, if it is another one and clearly does."""
    confusion = sum(fit.confusion for fit in fits[1:]) + fits[0].confusion
    rows, columns = linear_sum_assignment(-confusion.numpy())
    matched, equal = float(confusion[rows, columns].sum()), float(confusion.diag().sum())
    moved = [(i, j) for i, j in zip(rows, columns, strict=True) if i != j and confusion[i].sum() > 0]
    if not moved or matched < 0.4 * float(confusion.sum()) or matched < 1.5 * equal:
        return ""
    order = ", ".join(f"{classes[i]} are predicted as {classes[j]}" for i, j in moved[:_NAMED])
    return f"; images given as {order}: another order of classes?"


def direction(clients: Sequence[ComparedClient]) -> RecordingCheck:
    """Whether recorded changes point along the simulated ones: the median cosine must be positive.

    Right: .85 to .90 on real images, as between two simulated changes (.87 to .90); received minus trained: -.90 to -.87.
    Labels of another order give -.14 to .04, which the check of labels names.
    """
    unchanged = [client.client for client in clients if not client.recorded.length > 0]
    if 2 * len(unchanged) > len(clients):
        return RecordingCheck(
            check="direction",
            outcome="error",
            sentence=f"what {len(unchanged)} of {_count(len(clients), 'client')} sent is what they received: want "
            "wire.down(client, round, model=...) with the model before training, and wire.up with the one after it",
        )
    fits = [cosine(client.recorded.parameters, client.simulated.parameters) for client in clients]
    controls = [cosine(client.repeated.parameters, client.simulated.parameters) for client in clients]
    fit, control = _median(fits), _median(controls)
    figures = (
        f"cosine of simulated with recorded changes {fit:.2f}, of two simulated ones {control:.2f} (medians of "
        f"{_count(len(clients), 'client')})"
    )
    if fit > 0:
        return RecordingCheck(check="direction", outcome="pass", sentence=figures)
    if control < 0.1:
        return RecordingCheck(
            check="direction",
            outcome="note",
            sentence=f"directions could not be checked: train is mostly chance; {figures}",
            artifacts=MODEL_QUESTIONS,
        )
    why = (
        f": {REVERSED}? want trained minus received"
        if fit <= -control / 2
        else ": want the images, labels and train of the recorded training"
    )
    return RecordingCheck(
        check="direction",
        outcome="error",
        sentence=f"recorded changes do not point along those of train: {figures}{why}",
    )


def names(clients: Sequence[ComparedClient]) -> RecordingCheck:
    """Whether each client's recorded change fits its images better than those of other clients.

    For at least two thirds of the clients, the cosine with the change simulated on their images must be above the median of
    the cosines with other clients' simulated changes. Right: for all, by .3 to .8, also for clients of one domain with equal
    shares of classes; shifted by one client: for 40 to 70 %. A client is named if another client's images fit better by half
    of the margin that simulated changes have (.35 to .5; right: by none, the closest -.09): an error if that other client's
    images fit another one, too, as in any exchange of names, else a note (right, one logit: one of 12 clients). It cannot be
    told where simulated changes do not tell clients apart either (below nine tenths of them, or a median margin below .05), or
    with one client.
    """
    table, control = cosines(clients, lambda client: client.recorded), cosines(clients, lambda client: client.repeated)
    rows = [i for i in range(len(clients)) if int(table[i].isfinite().sum()) > 1]
    margins, control_margins = ([_lead(t[i], i, torch.median) for i in rows] for t in (table, control))
    if len(rows) < 2 or sum(m > 0 for m in control_margins) < 0.9 * len(rows) or _median(control_margins) < 0.05:
        return RecordingCheck(
            check="names",
            outcome="note",
            sentence="whether clients' images stand under the right names could not be checked: simulated changes "
            "do not tell the clients apart",
            secrets=("labels", "size", "membership", "content", "identity"),
        )
    fitting = sum(margin > 0 for margin in margins)
    figures = f"their images fit {fitting} of {_count(len(rows), 'client')} better than other clients' images"
    leads, control_leads = ([_lead(t[i], i, torch.max) for i in rows] for t in (table, control))
    least = max(0.05, _median(control_leads) / 2)
    better = {i: int(table[i].nan_to_num(-2).argmax()) for i in rows}
    lead_of = dict(zip(rows, leads, strict=True))
    misfits = [i for i in rows if lead_of[i] < -least]
    displaced = [i for i in misfits if lead_of.get(better[i], 0.0) < 0]
    shown = displaced or misfits
    examples = ", ".join(
        f"what {clients[i].client} sent fits the images given as {clients[better[i]].client}" for i in shown[:_NAMED]
    )
    if displaced or 3 * fitting < 2 * len(rows):
        return RecordingCheck(
            check="names",
            outcome="error",
            sentence=f"clients: {figures}{f': {examples}' if examples else ''}; want each client's images and labels under its "
            "name",
        )
    if misfits:
        cosine_of = {i: float(table[i, i]) for i in misfits}
        first = misfits[0]
        return RecordingCheck(
            check="names",
            outcome="note",
            sentence=f"{examples} better than its own (cosine {cosine_of[first] - lead_of[first]:.2f} against "
            f"{cosine_of[first]:.2f}), of {_count(len(rows), 'client')}: are its images and labels right?",
            secrets=("labels", "size", "membership", "content", "identity"),
        )
    return RecordingCheck(check="names", outcome="pass", sentence=f"{figures}; margin {_median(margins):.2f}")


def _lead(row: Tensor, i: int, of: Callable[[Tensor], Tensor]) -> float:
    """Entry i minus the median or maximum of the other entries that are not NaN."""
    others = torch.cat([row[:i], row[i + 1 :]])
    return float(row[i] - of(others[others.isfinite()]))


class Misfit(NamedTuple):
    """How much simulated changes deviate from recorded ones, and from each other (see `deviation`)."""

    recorded: float
    control: float

    @property
    def is_large(self) -> bool:
        """Whether recorded changes deviate more than simulated ones do from each other.

        Wrong normalisations: 3 (channels in reverse order) to 80 times as much; right input .2 to 1.7 times. A thousandth is
        left for half precision.
        """
        return self.recorded > max(2 * self.control, 1e-3)


def misfit(clients: Sequence[ComparedClient]) -> Misfit:
    """The median deviations of these clients."""
    return Misfit(
        _median([deviation(client.recorded, client.simulated) for client in clients]),
        _median([deviation(client.repeated, client.simulated) for client in clients]),
    )


def deviation(change: ModelChange, simulated: ModelChange) -> float:
    """How far a simulated change is from this one.

    With BatchNorm, the squared distance of the changes of the first layer's statistics, relative to that of `change`: these
    depend on the images' values and little on the order of batches. Without, one minus the cosine of the parameters' changes.
    """
    one, other = change.statistics.double(), simulated.statistics.double()
    if len(one) and len(one) == len(other) and float(one.norm()) > 0:
        return float((one - other).square().sum() / one.square().sum())
    return 1 - cosine(change.parameters, simulated.parameters)


class Alternative(NamedTuple):
    """How a conversion of images fits.

    Attributes:
        name: In a few words.
        deviations: By client, as of `deviation`, of the change simulated under it from the recorded one.
        loss: Median loss of the models that clients sent, on their images so converted, nats.
    """

    name: str
    deviations: tuple[float, ...]
    loss: float


def normalisation(
    given: Alternative, alternatives: Sequence[Alternative], control: float, is_whole: bool = True
) -> RecordingCheck:
    """Whether another conversion of images fits the recorded models better than that given.

    Recorded and simulated changes are compared, under each conversion with the same random draws, which tells more than the
    loss: after one round running statistics lag, and a wrong conversion may have the lower loss (1.60 against 1.76). An error
    where an alternative deviates at most half as much as the conversion given, for three quarters of the clients, and at most
    twice as much as two simulated changes from each other. Forgotten (x - .5) / .5, after one and after three rounds: .099 and
    2.2 given, .0005 and .003 right, .003 and .027 control with BatchNorm; .106 and .153, .004 and .010, .008 and .009 without.
    Right: the conversion given is the best. A note where none fits.

    Args:
        given: The user's conversion.
        alternatives: Others; empty where that given fits as well as right input does.
        control: Deviation of two simulated changes.
        is_whole: Whether clients share all of the model; if not, what they keep makes simulated changes deviate, too.
    """
    own = _median(given.deviations)
    figures = f"{given.name}: simulated changes deviate from recorded ones by {own:.2g}, loss {given.loss:.2f}"
    fitting = [
        other
        for other in alternatives
        if _median(other.deviations) <= max(2 * control, 1e-3)
        and 4 * sum(2 * a <= b for a, b in zip(other.deviations, given.deviations, strict=True))
        >= 3 * len(given.deviations)
    ]
    if fitting:
        best = min(fitting, key=lambda other: _median(other.deviations))
        return RecordingCheck(
            check="normalisation",
            outcome="error",
            sentence=f"normalize: the recorded models were trained on {best.name}, by which simulated changes deviate from "
            f"recorded ones by {_median(best.deviations):.2g} (loss {best.loss:.2f}), and not on {given.name}: {own:.2g} "
            f"(loss {given.loss:.2f}); want that conversion as normalize=",
        )
    if alternatives and is_whole:
        return RecordingCheck(
            check="normalisation",
            outcome="note",
            sentence=f"{figures}, from each other by {control:.2g}, and none of {len(alternatives)} other conversions fits: "
            "are normalize and train those of the recorded training?",
            artifacts=MODEL_QUESTIONS,
        )
    return RecordingCheck(
        check="normalisation", outcome="pass", sentence=f"{figures}; from each other by {control:.2g}"
    )


def inputs(batches: Sequence[Tensor], converted: Tensor) -> RecordingCheck:
    """Whether train feeds the network with images of the range that the evaluator's are converted to; an error if not.

    A training that normalises by itself makes right changes, while attacks feed the same network with other values. An error
    where the mean differs by half a standard deviation, or the standard deviation by a factor of 1.5: augmentations stay
    below both (zeros around a shifted image: .2 and 1.1); (x - .5) / .5 of images in [0, 1] is a factor of 2.

    Args:
        batches: What the network got in one training (B, C, H, W).
        converted: The images of that client, converted as for the network (N, C, H, W).
    """
    if not batches:
        return RecordingCheck(check="inputs", outcome="pass", sentence="what train feeds the network with was not seen")
    (mean, std), (wanted_mean, wanted_std) = (
        (float(values.mean()), float(values.std()))
        for values in (torch.cat([batch.flatten() for batch in batches]), converted.flatten())
    )
    figures = f"images of mean {mean:.2f} and std {std:.2f}"
    ratio = std / max(wanted_std, 1e-12)
    if abs(mean - wanted_mean) <= 0.5 * wanted_std and 1 / 1.5 <= ratio <= 1.5:
        return RecordingCheck(
            check="inputs", outcome="pass", sentence=f"train feeds the network with {figures}, as attacks do"
        )
    return RecordingCheck(
        check="inputs",
        outcome="error",
        sentence=f"train: feeds the network with {figures}, attacks with mean {wanted_mean:.2f} and std {wanted_std:.2f}: want "
        "the conversion in normalize=, and train to take images that are converted already",
    )


def steps(clients: Sequence[ComparedClient]) -> RecordingCheck:
    """Whether train makes as many steps as BatchNorm's recorded counters; a note, for any difference of a step or more.

    Means of counters are no whole numbers, and clients round what they receive: less than one step.
    """
    known = [
        (client, client.recorded.steps, client.simulated.steps)
        for client in clients
        if client.recorded.steps is not None and client.simulated.steps is not None
    ]
    if not known:
        return RecordingCheck(check="steps", outcome="pass", sentence="no counters of batches were recorded")
    differing = [entry for entry in known if abs(entry[1] - entry[2]) >= 1]
    if not differing:
        client, recorded, _ = known[0]
        return RecordingCheck(
            check="steps",
            outcome="pass",
            sentence=f"as many batches as recorded, of {_count(len(known), 'client')} (e.g. {recorded:.0f} of {client.client})",
        )
    client, recorded, simulated = differing[0]
    return RecordingCheck(
        check="steps",
        outcome="note",
        sentence=f"{client.client} trained on {recorded:.0f} batches in round {client.round} by its BatchNorm counters, train "
        f"on {simulated:.0f} (so {len(differing)} of {_count(len(known), 'client')}): another number of epochs or batch size",
        artifacts=MODEL_QUESTIONS,
    )


def weights(clients: Sequence[ComparedClient], sizes: Mapping[str, int]) -> RecordingCheck:
    """Whether recorded changes are multiplied by the clients' weights: their numbers of images, or the shares of these.

    An error where recorded changes are n or n / N times as long as simulated ones, to a factor of 1.4, for three quarters of
    the clients; where these factors explain most of the differences between clients, which another learning rate does not;
    and where they are at least 2 or at most one half. Right: .8 to 1.25 times as long. Clients of equal size cannot be told.

    Args:
        clients: Their changes.
        sizes: By client of the federation, its number of images.
    """
    ratios = {client.client: 1 / max(ratio, 1e-30) for client, ratio in zip(clients, _ratios(clients), strict=True)}
    median = _median(list(ratios.values()))
    total = sum(sizes.values())
    for name, divisor in (("number of images n", 1), ("share of images n / N", total)):
        factors = {client: sizes[client] / divisor for client in ratios}
        fitting = sum(1 / 1.4 <= ratio / factors[client] <= 1.4 for client, ratio in ratios.items())
        rest = _spread([math.log(ratio / factors[client]) for client, ratio in ratios.items()])
        is_explained = rest <= _spread([math.log(factor) for factor in factors.values()]) / 2
        if 4 * fitting >= 3 * len(ratios) and is_explained and not 0.5 < median < 2:
            return RecordingCheck(
                check="weights",
                outcome="error",
                sentence=f"what clients sent changes models by {median:.2g} times what train does (median of "
                f"{_count(len(ratios), 'client')}), which is each client's {name}: want trained minus received, and the "
                "weight as n=",
            )
    return RecordingCheck(
        check="weights", outcome="pass", sentence=f"recorded changes are {median:.2g} times as long as those by train"
    )


def uploads(clients: Sequence[ComparedClient]) -> RecordingCheck:
    """Whether recorded changes are of the size and kind that train makes, and if not, in what they differ; a note.

    Four signs, in this order:
    - sparsified: half of the entries are exactly 0, and twice as many as of simulated ones (top-k: 90 %; plain: .2 %);
    - quantised: at most 256 values of thousands of entries, a tenth of those of simulated ones;
    - clipped: half of the clients' changes have one length to four digits, simulated ones have not;
    - noise: of the squared length, the part that is not the simulated change times a factor, beyond that of repeated ones,
      is above 30 % (noise of .02 in each parameter: 73 %; right input: below 8 %);
    - another length, by a factor above 1.2: another learning rate, or number of epochs (five times the rate: 3.4).
    """
    signs = (_sparsified, _quantised, _clipped, _noise, _length)
    sentence = next((sentence for sign in signs if (sentence := sign(clients)) is not None), None)
    if sentence is not None:
        return RecordingCheck(
            check="uploads",
            outcome="note",
            sentence=f"{sentence}; verdicts about models rest on clients simulated by train",
            artifacts=MODEL_QUESTIONS,
        )
    return RecordingCheck(
        check="uploads",
        outcome="pass",
        sentence=f"train changes models by {_median(_ratios(clients)):.2f} of what was recorded (median of "
        f"{_count(len(clients), 'client')})",
    )


def _sparsified(clients: Sequence[ComparedClient]) -> str | None:
    recorded, simulated = (
        _median([float((change.parameters == 0).float().mean()) for change in changes])
        for changes in ([c.recorded for c in clients], [c.simulated for c in clients])
    )
    if recorded < 0.5 or recorded < 2 * simulated:
        return None
    return (
        f"{recorded:.0%} of a recorded change is exactly 0, {simulated:.0%} of one by train: uploads are sparsified (top-k?), "
        "and train does not do that"
    )


def _quantised(clients: Sequence[ComparedClient]) -> str | None:
    recorded, simulated = (
        _median([float(len(change.parameters.unique())) for change in changes])
        for changes in ([c.recorded for c in clients], [c.simulated for c in clients])
    )
    if recorded > 256 or 10 * recorded > simulated or len(clients[0].recorded.parameters) < 2560:
        return None
    return (
        f"a recorded change has {recorded:.0f} different values, one by train {simulated:.0f}: uploads are quantised, and "
        "train does not do that"
    )


def _clipped(clients: Sequence[ComparedClient]) -> str | None:
    def most_equal(lengths: Sequence[float]) -> int:
        return max(sum(abs(a - b) <= 1e-4 * b for a in lengths) for b in lengths)

    recorded = [client.recorded.length for client in clients]
    equal = most_equal(recorded)
    simulated = most_equal([client.simulated.length for client in clients])
    if len(clients) < 4 or 2 * equal < len(clients) or 2 * simulated >= len(clients):
        return None
    return (
        f"{equal} of {len(clients)} recorded changes have the length {max(recorded):.3g}: uploads are clipped, and train does "
        "not do that"
    )


def _noise(clients: Sequence[ComparedClient]) -> str | None:
    share = _median([_unexplained(client) for client in clients])
    if share < 0.3:
        return None
    levels = []
    for client in clients:
        entries = len(client.recorded.parameters)
        levels.append(float(client.recorded.parameters.norm()) * math.sqrt(max(0.0, _unexplained(client)) / entries))
    return (
        f"{share:.0%} of recorded changes (squared length) is not what train makes, as from noise of std "
        f"{_median(levels):.2g} in each parameter: a defense that train does not have, or another training"
    )


def _unexplained(client: ComparedClient) -> float:
    """The share of the recorded change's squared length that is no multiple of a change by train.

    With s and s' two simulated changes, r = a s'' + noise has r s = a s' s and |r|^2 = a^2 |s|^2 + |noise|^2.
    """
    recorded, simulated, repeated = (
        change.parameters.double() for change in (client.recorded, client.simulated, client.repeated)
    )
    common = float(repeated @ simulated)
    if common <= 0 or float(recorded @ simulated) <= 0:
        return 0.0
    factor = float(recorded @ simulated) / common
    length = float(recorded.square().sum())
    return 1 - factor**2 * float(simulated.square().sum()) / length if length > 0 else 0.0


def _length(clients: Sequence[ComparedClient]) -> str | None:
    ratio = _median(_ratios(clients))
    if 1 / 1.2 <= ratio <= 1.2:
        return None
    return (
        f"train changes models by {ratio:.2g} of what was recorded (median of {_count(len(clients), 'client')}): another "
        "learning rate, or number of epochs"
    )


def _ratios(clients: Sequence[ComparedClient]) -> list[float]:
    return [client.simulated.length / max(client.recorded.length, 1e-30) for client in clients]


class StatisticsSent(NamedTuple):
    """Distances of BatchNorm's statistics that the server sent after a round, in units of the round's change.

    Attributes:
        round: The round whose uploads they follow.
        from_mean: To the mean of the clients' statistics.
        from_received: To the statistics that it had sent before.
    """

    round: int
    from_mean: float
    from_received: float

    @property
    def are_mean(self) -> bool:
        """Whether they are the mean; a twentieth is left for half precision and weights."""
        return self.from_mean <= 0.05

    @property
    def are_kept(self) -> bool:
        """Whether they are those sent before."""
        return not self.are_mean and self.from_received <= 1e-3


def buffers(sent: Sequence[StatisticsSent]) -> RecordingCheck:
    """Whether BatchNorm's statistics in the server's next model are the mean of its clients'; a note if not.

    A mean of the parameters alone leaves them as they were: distance 1 from the mean and 0 from those sent before.
    """
    if not sent:
        return RecordingCheck(
            check="buffers", outcome="pass", sentence="no statistics of BatchNorm were sent in two rounds"
        )
    if all(entry.are_mean for entry in sent):
        return RecordingCheck(
            check="buffers",
            outcome="pass",
            sentence=f"the server's BatchNorm statistics are the mean of its clients', to "
            f"{max(entry.from_mean for entry in sent):.1g} of a round's change",
        )
    if all(entry.are_kept for entry in sent):
        return RecordingCheck(
            check="buffers",
            outcome="note",
            sentence="the server sends BatchNorm statistics as they were, and not the mean of its clients': the model after "
            "the last round has those that were sent",
        )
    worst = max(sent, key=lambda entry: entry.from_mean)
    return RecordingCheck(
        check="buffers",
        outcome="note",
        sentence=f"the BatchNorm statistics that the server sends after round {worst.round} are not the mean of its clients' "
        f"(off by {worst.from_mean:.2g} of the round's change): the accuracy of a model that takes the mean is not that of the "
        "server's",
    )


def rounds(misplaced: Sequence[tuple[int, int]]) -> RecordingCheck:
    """Whether models stand in the round in which clients received them; an error if they are the mean of other uploads.

    Args:
        misplaced: The round of a model, and that of the uploads of which it is the mean; not the round before.
    """
    if not misplaced:
        return RecordingCheck(
            check="rounds", outcome="pass", sentence="no model is the mean of another round's uploads"
        )
    round, source = misplaced[0]
    whose = "the same round" if source == round else f"round {source}"
    more = f" (and so in {_count(len(misplaced) - 1, 'round')} more)" if len(misplaced) > 1 else ""
    return RecordingCheck(
        check="rounds",
        outcome="error",
        sentence=f"the model recorded as sent in round {round} is the mean of what clients sent in {whose}{more}: want "
        "wire.down(client, round, model=...) with the model that they received in that round",
    )


def _spread(values: Sequence[float]) -> float:
    """Root mean square deviation from the median."""
    middle = _median(values)
    return math.sqrt(sum((value - middle) ** 2 for value in values) / len(values))


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _named(clients: Sequence[str]) -> str:
    more = len(clients) - _NAMED
    return ", ".join(clients[:_NAMED]) + (f" and {_count(more, 'client')} more" if more > 0 else "")


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
