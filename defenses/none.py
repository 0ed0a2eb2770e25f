"""No defense: artifacts are shared unchanged."""

from dataclasses import dataclass

from fdgpriv.defense import Defense, Guarantee


@dataclass(frozen=True)
class None_(Defense):
    """Shares artifacts unchanged; gives no guarantee."""

    def guarantee(self) -> Guarantee:
        return Guarantee(None, None, "No defense, no finite epsilon.")
