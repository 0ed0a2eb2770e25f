"""No defense: what the method shares is what it computes."""

from dataclasses import dataclass

import torch

from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.style import StyleDraft
from fdgpriv.defense import Defense, Guarantee


@dataclass(frozen=True)
class None_(Defense):
    """Guarantees nothing."""

    def protect(self, outgoing: Artifact | StyleDraft, rng: torch.Generator) -> Artifact:
        return outgoing.finish() if isinstance(outgoing, StyleDraft) else outgoing

    def guarantee(self) -> Guarantee:
        return Guarantee(None, None, "No defense, no finite epsilon.")
