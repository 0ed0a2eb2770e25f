"""No defense: artifacts are shared unchanged."""

from dataclasses import dataclass

import torch

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.style import StyleDraft
from fdgpriv.defense import Defense, Guarantee


@dataclass(frozen=True)
class None_(Defense):
    """Shares artifacts unchanged; gives no guarantee."""

    def protect(self, outgoing: Artifact | StyleDraft, rng: torch.Generator) -> Artifact:
        return outgoing.finish() if isinstance(outgoing, StyleDraft) else outgoing

    def guarantee(self) -> Guarantee:
        return Guarantee(None, None, "No defense, no finite epsilon.")
