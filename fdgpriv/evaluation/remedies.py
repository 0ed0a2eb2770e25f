"""Lists the defenses that apply to a method, with the artifacts that each hides or has a proved guarantee for."""

from collections.abc import Collection, Iterator, Mapping

from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.defense import Defense, defended
from fdgpriv.method import Method
from fdgpriv.results.run import Remedy
from fdgpriv.simulation.shared_model import GLOBAL_MODEL

_MODELS = (ModelState.kind, ModelUpdate.kind)


def remedies(method: Method, sizes: Mapping[str, int]) -> tuple[Remedy, ...]:
    """A remedy for each defense with suggested settings that applies to this method; those that hide artifacts come first.

    Args:
        method: The undefended method.
        sizes: The number of images of each client.
    """
    candidates = (_remedy(part, method, sizes) for part in Defense.importable().values())
    return tuple(sorted((remedy for remedy in candidates if remedy is not None), key=lambda remedy: not remedy.hides))


def _remedy(part: type[Defense], method: Method, sizes: Mapping[str, int]) -> Remedy | None:
    """The first of the defense's suggested settings that applies and protects an artifact; None if there is none."""
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
