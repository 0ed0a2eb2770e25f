"""Effect sizes in plain English: one function for each metric."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fdgpriv.results.attack_finding import Units
from fdgpriv.results.question import Question
from fdgpriv.results.run import Run

from ._numbers import decimal, percent, plain, pooled, quantity
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
    """The figure of an attack and that of its best control.

    Attributes:
        metric: The name of the metric.
        secret: The secret that was asked for.
        value, control: The attack's figure and the control's, in the metric's unit.
        control_name: The best control.
        lead: Of the attack over the control, positive if it leaks.
        units: The clients counted; None for an average over runs, or other units.
        choices: The number of answers that the attack chooses among; None if not known.
        upper: Larger leads are excluded; None if none are.
        planted: How often a leak of size `relevant`, planted in these artifacts, is found; None if not tried.
        relevant: The least lead that matters; None if not tested.
    """

    metric: str
    secret: str
    value: float
    control: float
    control_name: str
    lead: float
    units: Units | None = None
    choices: int | None = None
    upper: float | None = None
    planted: float | None = None
    relevant: float | None = None


def pooled_effect(asked: Sequence[tuple[Run, Question]]) -> Effect | None:
    """The effect for the first question's scope, averaged over the runs whose strongest attack has the commonest metric."""
    first = asked[0][1]
    same_scope = [(run, q, q.strongest) for run, q in asked if q.scope == first.scope and q.strongest]
    if not same_scope:
        return None
    metric = Counter(strongest.metric for _, _, strongest in same_scope).most_common(1)[0][0]
    comparable = [(run, q, strongest) for run, q, strongest in same_scope if strongest.metric == metric]
    figures = [
        pooled([strongest.value for _, _, strongest in comparable]),
        pooled([strongest.control_value for _, _, strongest in comparable]),
        pooled([q.lead for _, q, _ in comparable]),
    ]
    value, control, lead = (figure.value if figure else None for figure in figures)
    if value is None or control is None:
        return None
    run, question, strongest = comparable[0]
    attack = next((run.attacks[i] for i in question.attacks if run.attacks[i].attack == strongest.attack), None)
    units, chance = (attack.units, attack.chance and attack.chance.value) if attack else (None, None)
    bounds = [q.upper_bound for _, q, _ in comparable if q.upper_bound is not None]
    return Effect(
        metric=metric,
        secret=first.secret,
        value=value,
        control=control,
        control_name=strongest.control,
        lead=lead or 0.0,
        units=units if len(comparable) == 1 and units and units.kind == "client" else None,
        choices=round(1 / chance) if chance else None,
        upper=max(bounds) if len(bounds) == len(comparable) else None,
        planted=min((q.planted for _, q, _ in comparable if q.planted is not None), default=None),
        relevant=max((q.relevant for _, q, _ in comparable if q.relevant is not None), default=None),
    )


def clients_in_words(units: Units) -> str:
    """The attacked clients, simulated ones apart: ``30 clients``, or ``30 (12 clients, 18 simulated)``."""
    if not units.shadows:
        return quantity(units.n, "client")
    return f"{units.n} ({quantity(units.federated or 0, 'client')}, {units.shadows} simulated)"


def effect_in_words(effect: Effect) -> str:
    """The attack's figure and the control's, in a phrase."""
    return _PHRASES.get(effect.metric, _other)(effect)


def effect_in_figures(effect: Effect) -> str:
    """The attack's figure and the control's, as `AUC 0.81 (control 0.5)`."""
    return f"{metric(effect.metric)} {plain(effect.value)} (control {plain(effect.control)})"


def bound_in_words(effect: Effect) -> str:
    """The leads that are excluded, in the metric's unit; if none are, how often a planted leak is found."""
    if effect.upper is not None:
        return f"leads above {amount(effect.metric, effect.upper)} are excluded"
    if effect.planted is None or effect.relevant is None:
        return ""
    leak = amount(effect.metric, effect.relevant)
    return f"a leak of {leak}, planted, is found in {percent(effect.planted)} of repeats"


def amount(metric: str, value: float) -> str:
    """A difference in the metric's unit: `0.05 AUC`, `0.7 dB`, `12 points`."""
    form = _UNITS.get(metric)
    return form(value) if form else f"{value:.3g} {metric.replace('_', ' ')}".replace("-", "−")


def _accuracy(effect: Effect) -> str:
    secret = "the domain" if effect.secret == "domain" else "the answer"
    n = effect.units.n if effect.units else 0
    right = effect.value * n
    if effect.units and n and abs(right - round(right)) < 0.05:
        guessed = decimal(effect.control * n, 0)
        return f"names {secret} of {round(right)} of {clients_in_words(effect.units)}; guessing: {guessed}"
    return f"names {secret} of {percent(effect.value)} of clients; guessing: {percent(effect.control)}"


def _auc(effect: Effect) -> str:
    """The best control is given unless it rounds to guessing."""
    value, control = decimal(effect.value, 2), decimal(effect.control, 2)
    best = "" if control == "0.50" else f"; best control: {control}"
    return f"tells members from non-members with AUC {value} (guessing: 0.50{best})"


def _top1(effect: Effect) -> str:
    if effect.secret == "identity":
        return (
            f"links {percent(effect.value)} of clients to their earlier upload; best control: {percent(effect.control)}"
        )
    among = f" out of {effect.choices}" if effect.choices else ""
    return (
        f"picks the right image{among} in {percent(effect.value)} of line-ups; best control: {percent(effect.control)}"
    )


def _l1(effect: Effect) -> str:
    name = _PRIORS.get(effect.control_name.partition(":")[0], "best control")
    return f"label shares off by {decimal(effect.value, 2)} in all ({name}: {decimal(effect.control, 2)})"


def _psnr(effect: Effect) -> str:
    if abs(effect.lead) < 0.005:
        return f"reconstructions as near as {_control(effect)}"
    places = 1 if abs(effect.lead) >= 0.05 else 2
    comparative = "nearer" if effect.lead > 0 else "farther off"
    return f"reconstructions {decimal(abs(effect.lead), places)} dB {comparative} than {_control(effect)}"


def _mse(effect: Effect) -> str:
    share = abs(effect.lead) / (effect.control or 1.0)
    if share < 0.005:
        return f"squared error of the average image as large as that of {_control(effect)}"
    comparative = "smaller" if effect.lead > 0 else "larger"
    return f"squared error of the average image {percent(share)} {comparative} than that of {_control(effect)}"


def _control(effect: Effect) -> str:
    name = effect.control_name.partition(":")[0]
    return _CONTROLS.get(name, name.replace("_", " "))


def _relative_error(effect: Effect) -> str:
    return f"client size off by {percent(effect.value)} (prior: {percent(effect.control)})"


def _balanced_accuracy(effect: Effect) -> str:
    return f"names an image's class in {percent(effect.value)} of cases, balanced (best control: {percent(effect.control)})"


def _r2(effect: Effect) -> str:
    varying = "where images are light and dark" if effect.secret == "content" else "what varies"
    return f"explains {percent(effect.value)} of {varying} (best control: {percent(effect.control)})"


def _max_abs_error(effect: Effect) -> str:
    return f"largest error {effect.value:.2g} (best control: {effect.control:.2g})".replace("-", "−")


def _other(effect: Effect) -> str:
    name = effect.metric.replace("_", " ")
    return f"{name} {effect.value:.3g} (best control: {effect.control:.3g})".replace("-", "−")


def _points(value: float) -> str:
    return f"{decimal(100 * value, 0 if abs(value) >= 0.015 or not value else 1)} points"


_PHRASES: dict[str, Callable[[Effect], str]] = {
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
    "auc": lambda value: f"{decimal(value, 2)} AUC",
    "l1": lambda value: f"{decimal(value, 2)} in label shares",
    "psnr": lambda value: f"{decimal(value, 1 if abs(value) >= 0.05 else 2 if abs(value) >= 0.005 else 3)} dB",
    "mse": lambda value: f"{value:.2g} in squared error".replace("-", "−"),
    "r2": lambda value: f"{decimal(value, 2)} R²",
}
