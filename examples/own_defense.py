"""Audits StableFDG with a defense of one's own, and prints what an attack on its styles still learns."""

from dataclasses import dataclass

import torch

import fdgpriv
from fdgpriv.artifacts.artifact import Artifact
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.artifacts.style import StyleDraft
from fdgpriv.defense import Defense


@dataclass(frozen=True)
class Rounding(Defense):
    """Rounds every number that leaves a client to a grid of this step."""

    step: float = 0.1

    def protect(
        self, outgoing: Artifact | StyleDraft, rng: torch.Generator, received: ModelState | None = None
    ) -> Artifact:
        shared = outgoing.finish() if isinstance(outgoing, StyleDraft) else outgoing
        return shared.map(
            lambda tensor: (tensor / self.step).round() * self.step if tensor.is_floating_point() else tensor
        )


if __name__ == "__main__":
    results = fdgpriv.run_audit(
        method="stablefdg",
        defenses=["none", Rounding(0.05)],
        attacks=["identification", "domain_inference"],
        preset="quick",
    )
    for asked in results.questions():
        question = asked.question
        print(asked.defense, question.adversary, question.secret, question.scope, question.verdict, question.p)
