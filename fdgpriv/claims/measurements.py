"""Measurements by the evaluator with full knowledge, used in addition to attacks to decide the papers' claims."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from fdgpriv.claims.equal_numbers import equal_numbers
from fdgpriv.claims.latent_space import latent_space
from fdgpriv.claims.leaked_share import leaked_share
from fdgpriv.claims.presence import presence
from fdgpriv.claims.style_space import style_space
from fdgpriv.claims.translation import translation
from fdgpriv.evaluation.evaluator import Evaluator
from fdgpriv.utils.checksum import read_json, write_json

MEASURED = (style_space, latent_space, translation, presence, equal_numbers, leaked_share)
_FACTS = TypeAdapter(dict[str, Annotated[float, Field(allow_inf_nan=False)]])


def facts(evaluator: Evaluator, folder: Path) -> dict[str, float]:
    """Figures by name, read from ``facts.json`` in `folder`, or measured and written there."""
    file = folder / "facts.json"
    if file.is_file():
        return read_json(file, _FACTS)
    found = {name: figure for measure in MEASURED for name, figure in measure(evaluator).items()}
    write_json(file, _FACTS.dump_json(found))
    return found
