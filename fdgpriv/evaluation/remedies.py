"""Which defenses apply to a method, and which of its artifacts each would hide or prove a guarantee of."""

from collections.abc import Collection, Iterator, Mapping

from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.defense import Defense, defended
from fdgpriv.method import Method
from fdgpriv.results.run import Remedy
from fdgpriv.simulation.shared_model import GLOBAL_MODEL

_MODELS = (ModelState.kind, ModelUpdate.kind)


def remedies(method: Method, sizes: Mapping[str, int]) -> tuple[Remedy, ...]:
    """One for each defense that suggests itself and applies to this method; those that change no sum come first.

    Args:
        method: Without a defense.
        sizes: The number of images of each client.
    """
    found = (_remedy(part, method, sizes) for part in Defense.importable().values())
    return tuple(sorted((remedy for remedy in found if remedy is not None), key=lambda remedy: not remedy.hides))


def _remedy(part: type[Defense], method: Method, sizes: Mapping[str, int]) -> Remedy | None:
    """The first of the defense's suggested settings that applies; None if none does, or it protects nothing here."""
    for settings in part.suggested:
        spec = f"{part.name()}:{settings}" if settings else part.name()
        try:
            trained, defense = defended(method, spec)
            defense.check_sizes(sizes)
        except ValueError:
            continue
        sharing, guarantee = trained.disclosure(), defense.guarantee()
        hides = tuple(kind for kind in sharing.uploads if defense.aggregates and kind not in sharing.individual)
        covered = [kind for kind in guarantee.protects if kind in sharing.uploads]
        proves = tuple(_with_results(covered)) if guarantee.epsilon is not None else ()
        if hides or proves:
            return Remedy(defense=spec, hides=hides, proves=proves, epsilon=guarantee.epsilon)
    return None


def _with_results(kinds: Collection[str]) -> Iterator[str]:
    """The kinds, and the global model if it is computed from them, which a guarantee covers too."""
    yield from kinds
    if set(kinds) & set(_MODELS):
        yield GLOBAL_MODEL
