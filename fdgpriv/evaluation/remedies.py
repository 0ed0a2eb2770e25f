"""Lists the defenses that apply to a method, with the artifacts that each hides or has a proved guarantee for."""

import csv
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.defense import Defense, Guarantee, defended
from fdgpriv.method import Method
from fdgpriv.results.run import MeasuredCost, Remedy
from fdgpriv.simulation.shared_model import GLOBAL_MODEL

COSTS = Path(__file__).with_name("measured_costs.csv")
_MODELS = (ModelState.kind, ModelUpdate.kind)


def remedies(method: Method, sizes: Mapping[str, int]) -> tuple[Remedy, ...]:
    """A remedy for each defense with suggested settings that applies to this method.

    Those that did not end trainings of the same method come first, then those that hide artifacts; those that ended all
    trainings of which the costs were measured come last.

    Args:
        method: The undefended method.
        sizes: The number of images of each client.
    """
    applicable = []
    for part in Defense.importable().values():
        plain = _remedy(part, method, sizes)
        applicable += [plain] if plain is not None else []
        if plain is not None and plain.unit == "client":
            variants = (_remedy(part, method, sizes, setting) for setting in method.single_image_settings)
            applicable += [remedy for remedy in variants if remedy is not None and remedy.unit == "image"]

    def order(remedy: Remedy) -> tuple[bool, bool, bool]:
        keeps_accuracy = any(not cost.ended and cost.method.partition(":")[0] == method.name() for cost in remedy.costs)
        return remedy.ended_training, not keeps_accuracy, not remedy.hides

    return tuple(sorted(applicable, key=order))


def not_covered(shared: Collection[str], guarantee: Guarantee) -> tuple[str, ...]:
    """The kinds that clients share and that the guarantee does not cover; empty where it proves nothing."""
    return () if guarantee.epsilon is None else tuple(kind for kind in shared if kind not in guarantee.protects)


def measured_costs(method: str, defense: str) -> tuple[MeasuredCost, ...]:
    """The shipped costs of this defense in accuracy: with this method, else with others; empty if there are none.

    Args:
        method: Its name, with the settings that matter to defenses: ``stablefdg:style_mode=eval``.
        defense: Its specification.
    """
    of_defense = [cost for cost in _shipped_costs() if cost.defense == defense]
    return tuple([cost for cost in of_defense if cost.method == method] or of_defense)


@cache
def _shipped_costs() -> tuple[MeasuredCost, ...]:
    """The table that ships with the package."""
    with COSTS.open(encoding="utf-8", newline="") as file:
        return tuple(MeasuredCost.model_validate_strings(row) for row in csv.DictReader(file))


def _remedy(part: type[Defense], method: Method, sizes: Mapping[str, int], setting: str = "") -> Remedy | None:
    """The first of the defense's suggested settings that applies and protects an artifact; None if there is none.

    Args:
        part: The defense.
        method, sizes: As of `remedies`.
        setting: Of the method, ``name=value``, that is changed first.
    """
    for settings in part.suggested:
        spec = f"{part.name()}:{settings}" if settings else part.name()
        try:
            trained, defense = defended(_with_setting(method, setting), spec)
            defense.check_sizes(sizes)
        except ValueError:
            continue
        sharing, guarantee = trained.disclosure(), defense.guarantee()
        hides = tuple(kind for kind in sharing.uploads if defense.aggregates and kind not in sharing.individual)
        covered = [kind for kind in guarantee.protects if kind in sharing.uploads]
        proves = tuple(_with_results(covered)) if guarantee.epsilon is not None else ()
        if hides or proves:
            return Remedy(
                defense=spec,
                settings=(setting,) if setting else (),
                hides=hides,
                proves=proves,
                epsilon=guarantee.epsilon,
                delta=guarantee.delta,
                unit=guarantee.unit,
                not_covered=not_covered(sharing.uploads, guarantee),
                costs=measured_costs(_costed_name(_with_setting(method, setting)), spec),
            )
    return None


def _with_setting(method: Method, setting: str) -> Method:
    """The method with this setting instead of its own."""
    if not setting:
        return method
    part, settings = type(method).described(method.spec())
    key, _, value = setting.partition("=")
    return part.configured({**settings, key: value})


def _costed_name(method: Method) -> str:
    """The method's name, with its single-image settings where they hold."""
    holding = [setting for setting in method.single_image_settings if _with_setting(method, setting) == method]
    return f"{method.name()}:{','.join(holding)}" if holding else method.name()


def _with_results(kinds: Collection[str]) -> Iterator[str]:
    """The kinds, and the global model if it is computed from them, which a guarantee covers too."""
    yield from kinds
    if set(kinds) & set(_MODELS):
        yield GLOBAL_MODEL
