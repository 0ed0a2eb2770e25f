"""Scores images by how sure a client's models are of their labels, relative to other clients' models, over all rounds seen.

For clients whose received models have little in common: only predictions can be compared with other clients', and no
gradient has to be taken for each client. What other clients' models of the same round predict of the log-odds of a
candidate's label, such as how hard the image is, is subtracted.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fdgpriv.adversary import Observation
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.simulation.mixture import Sent, identity, read
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.utils.seeds import generator
from fdgpriv.view import SeenRound

from ._contributions import standardised, unexplained
from ._membership import RoundScorer, log_odds, pool_of, received_model_of, unions

_REFERENCES = 12  # other clients whose models are evaluated in each round


@dataclass(eq=False)
class Confidences(RoundScorer):
    """Scores candidates by the sum over rounds of their residual log-odds."""

    _references: dict[tuple[Hashable, bytes], Tensor] = field(default_factory=dict, init=False)

    def scores(self, observations: Sequence[Observation]) -> list[Tensor]:
        """A score (N,) of each observation's membership candidates: the sum over rounds of their residual log-odds."""
        pools = unions([observation.membership_candidates for observation in observations])
        views = [self.rounds_read(observation) for observation in observations]
        names = sorted({name for view in views for seen in view for name in seen.others})
        order = torch.randperm(len(names), generator=generator(self.adversary.seed, 61)).tolist()
        references = [names[i] for i in order[:_REFERENCES]]
        scores = []
        for observation, view in zip(observations, views, strict=True):
            candidates, pool = observation.membership_candidates, pool_of(observation, pools)
            index = torch.searchsorted(pool, candidates)
            score = torch.zeros(len(candidates), dtype=torch.float64)
            for seen in view:
                observed = self._log_odds(seen, seen.sent, received_model_of(seen), candidates)
                others = [
                    self._of_reference(seen, name, pool)[index] for name in references if name in seen.received_models
                ]
                score += standardised(unexplained(observed, torch.stack([observed, *others])[1:]))
            scores.append(score.float())
        return scores

    def _of_reference(self, seen: SeenRound, name: str, pool: Tensor) -> Tensor:
        """(P,): log-odds of the labels of the images at `pool` (P,) under the model of another client; computed once."""
        artifact = seen.others[name]
        key = identity(artifact), pool.numpy().tobytes()  # recorded artifacts live on, so that their ids stay unique
        if key not in self._references:
            self._references[key] = self._log_odds(seen, artifact, seen.received_models[name], pool)
        return self._references[key]

    def _log_odds(self, seen: SeenRound, sent: Sent, received_model: ModelState, index: Tensor) -> Tensor:
        """(N,): log-odds of the labels of the images at `index` (N,) under the model that a client sent in this round."""
        assert isinstance(seen.simulator, TrainingSimulator)
        model = seen.simulator.after(read(sent), received_model)
        logits = self.outputs.logits([model], self.adversary.candidates[index], received_model)[0]
        return log_odds(logits, self.labels[index])
