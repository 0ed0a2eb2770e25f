"""What an attack achieves in words that a reviewer understands: one function for each metric."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fdgpriv.results.question import Question
from fdgpriv.results.run import Run

from ._numbers import number, percent, plain, pooled
from ._words import metric

_CONTROLS = {
    "mean_image": "the public mean image",
    "domain_mean": "its domain's mean image",
    "class_mean": "its class's mean image",
    "other_client": "what another client's artifact gives",
    "other_domain": "what another domain's artifact gives",
    "random_style": "what a random artifact gives",
    "noise": "noise",
    "unconditional": "images drawn without the artifact",
}

_PRIORS = {
    "uniform": "equal shares",
    "public_shares": "the public shares",
    "half_uniform": "half equal, half public shares",
    "domain_shares": "its domain's public shares",
}


@dataclass(frozen=True)
class Effect:
    """One attack's figure beside that of its best control.

    Attributes:
        metric: The name of its metric.
        secret: What was asked for.
        value, control: The attack's figure and the control's, in the metric's unit.
        control_name: Which control.
        lead: Of the attack over the control, positive where it leaks.
        clients: How many clients were counted; None where figures of several runs are averaged, or of other units.
        choices: Among how many answers it chose; None where that is not known.
        upper: Larger leads are excluded; None where nothing is.
        planted: How often a leak of size `relevant`, planted in these artifacts, is found; None where that was not tried.
    """

    metric: str
    secret: str
    value: float
    control: float
    control_name: str
    lead: float
    clients: int | None = None
    choices: int | None = None
    upper: float | None = None
    planted: float | None = None
    relevant: float | None = None


def of_questions(asked: Sequence[tuple[Run, Question]]) -> Effect | None:
    """The figures of the first question's scope, averaged over the runs whose verdict rests on the same metric."""
    first = asked[0][1]
    same = [(run, q, q.strongest) for run, q in asked if q.scope == first.scope and q.strongest]
    if not same:
        return None
    metric = Counter(one.metric for _, _, one in same).most_common(1)[0][0]
    kept = [(run, q, one) for run, q, one in same if one.metric == metric]
    figures = [
        pooled([one.value for _, _, one in kept]),
        pooled([one.control_value for _, _, one in kept]),
        pooled([q.lead for _, q, _ in kept]),
    ]
    value, control, lead = (figure.value if figure else None for figure in figures)
    if value is None or control is None:
        return None
    run, question, one = kept[0]
    row = next((run.attacks[i] for i in question.attacks if run.attacks[i].attack == one.attack), None)
    units, chance = (row.units, row.chance and row.chance.value) if row else (None, None)
    return Effect(
        metric=metric,
        secret=first.secret,
        value=value,
        control=control,
        control_name=one.control,
        lead=lead or 0.0,
        clients=units.n if len(kept) == 1 and units and units.kind == "client" else None,
        choices=round(1 / chance) if chance else None,
        upper=None
        if None in (bounds := [q.upper_bound for _, q, _ in kept])
        else max(b for b in bounds if b is not None),
        planted=min((q.planted for _, q, _ in kept if q.planted is not None), default=None),
        relevant=max((q.relevant for _, q, _ in kept if q.relevant is not None), default=None),
    )


def effect(found: Effect) -> str:
    """The figure beside its control, in words."""
    return _WORDS.get(found.metric, _other)(found)


def brief(found: Effect) -> str:
    """The same in figures alone."""
    return f"{metric(found.metric)} {plain(found.value)} (control {plain(found.control)})"


def bound(found: Effect) -> str:
    """Which leads are excluded, in the metric's unit; where none is, how often a planted leak is found."""
    if found.upper is None:
        if found.planted is None or found.relevant is None:
            return ""
        return f"a leak of {amount(found.metric, found.relevant)}, planted, is found in {percent(found.planted)} of repeats"
    return f"leads above {amount(found.metric, found.upper)} are excluded"


def amount(metric: str, value: float) -> str:
    """A difference in the metric's unit: `0.05 AUC`, `0.7 dB`, `12 points`."""
    form = _UNITS.get(metric)
    return form(value) if form else f"{value:.3g} {metric.replace('_', ' ')}".replace("-", "−")


def _accuracy(found: Effect) -> str:
    asked = "the domain" if found.secret == "domain" else "the answer"
    right = found.value * (found.clients or 0)
    if found.clients and abs(right - round(right)) < 0.05:
        guessed = number(found.control * found.clients, 0)
        return f"names {asked} of {round(right)} of {found.clients} clients; guessing: {guessed}"
    return f"names {asked} of {percent(found.value)} of clients; guessing: {percent(found.control)}"


def _auc(found: Effect) -> str:
    """Where the best control does not round to a guess, it is named."""
    value, control = number(found.value, 2), number(found.control, 2)
    best = "" if control == "0.50" else f"; best control: {control}"
    return f"tells members from non-members with AUC {value} (guessing: 0.50{best})"


def _top1(found: Effect) -> str:
    if found.secret == "identity":
        return (
            f"links {percent(found.value)} of clients to their earlier upload; best control: {percent(found.control)}"
        )
    among = f" out of {found.choices}" if found.choices else ""
    return f"picks the right image{among} in {percent(found.value)} of line-ups; best control: {percent(found.control)}"


def _l1(found: Effect) -> str:
    name = _PRIORS.get(found.control_name.partition(":")[0], "best control")
    return f"label shares off by {number(found.value, 2)} in all ({name}: {number(found.control, 2)})"


def _psnr(found: Effect) -> str:
    name, places = found.control_name.partition(":")[0], 1 if abs(found.lead) >= 0.05 else 2
    way = "nearer" if found.lead > 0 else "farther off"
    than = _CONTROLS.get(name, name.replace("_", " "))
    return f"reconstructions {number(abs(found.lead), places)} dB {way} than {than}"


def _mse(found: Effect) -> str:
    name = found.control_name.partition(":")[0]
    share, way = abs(found.lead) / (found.control or 1.0), "smaller" if found.lead > 0 else "larger"
    than = _CONTROLS.get(name, name.replace("_", " "))
    return f"squared error of the average image {percent(share)} {way} than that of {than}"


def _relative_error(found: Effect) -> str:
    return f"client size off by {percent(found.value)} (prior: {percent(found.control)})"


def _balanced_accuracy(found: Effect) -> str:
    return (
        f"names an image's class in {percent(found.value)} of cases, balanced (best control: {percent(found.control)})"
    )


def _r2(found: Effect) -> str:
    what = "where images are light and dark" if found.secret == "content" else "what varies"
    return f"explains {percent(found.value)} of {what} (best control: {percent(found.control)})"


def _max_abs_error(found: Effect) -> str:
    return f"largest error {found.value:.2g} (best control: {found.control:.2g})".replace("-", "−")


def _other(found: Effect) -> str:
    name = found.metric.replace("_", " ")
    return f"{name} {found.value:.3g} (best control: {found.control:.3g})".replace("-", "−")


def _points(value: float) -> str:
    return f"{number(100 * value, 0 if abs(value) >= 0.015 or not value else 1)} points"


_WORDS: dict[str, Callable[[Effect], str]] = {
    "accuracy": _accuracy,
    "auc": _auc,
    "top1": _top1,
    "l1": _l1,
    "psnr": _psnr,
    "mse": _mse,
    "relative_error": _relative_error,
    "balanced_accuracy": _balanced_accuracy,
    "r2": _r2,
    "max_abs_error": _max_abs_error,
}

_UNITS: dict[str, Callable[[float], str]] = {
    "accuracy": _points,
    "top1": _points,
    "balanced_accuracy": _points,
    "relative_error": _points,
    "auc": lambda value: f"{number(value, 2)} AUC",
    "l1": lambda value: f"{number(value, 2)} in label shares",
    "psnr": lambda value: f"{number(value, 1 if abs(value) >= 0.05 else 2)} dB",
    "r2": lambda value: f"{number(value, 2)} R²",
}
