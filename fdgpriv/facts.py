"""What the evaluator measures of a run with all it knows, beside the attacks; the papers' claims are decided by both."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from fdgpriv.checksum import read_json, write_json
from fdgpriv.exam.proctor import Proctor
from fdgpriv.measures.equal_numbers import equal_numbers
from fdgpriv.measures.latent_space import latent_space
from fdgpriv.measures.leaked_share import leaked_share
from fdgpriv.measures.presence import presence
from fdgpriv.measures.style_space import style_space
from fdgpriv.measures.translation import translation

MEASURED = (style_space, latent_space, translation, presence, equal_numbers, leaked_share)
_FACTS = TypeAdapter(dict[str, Annotated[float, Field(allow_inf_nan=False)]])


def facts(proctor: Proctor, folder: Path) -> dict[str, float]:
    """Figures by name, measured now and kept as ``facts.json`` in `folder`, or read from there."""
    file = folder / "facts.json"
    if file.is_file():
        return read_json(file, _FACTS)
    found = {name: figure for measure in MEASURED for name, figure in measure(proctor).items()}
    write_json(file, _FACTS.dump_json(found))
    return found
