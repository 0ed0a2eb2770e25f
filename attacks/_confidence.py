"""Scores images by how sure a client's models are of their labels, relative to other clients' models, over all rounds seen.

For clients whose received models have little in common: only predictions can be compared with other clients', and no
gradient has to be taken for each client. What other clients' models of the same round predict of the log-odds of a
candidate's label, such as how hard the image is, is subtracted.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation
from fdgpriv.artifacts.parameters import ModelState
from fdgpriv.simulation.mixture import Sent, identity, read
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.utils.seeds import generator
from fdgpriv.view import SeenRound

from ._contributions import standardised, unexplained
from ._membership import ModelOutputs, log_odds, pool_of, received_model_of, rounds_read, unions

_REFERENCES = 12  # other clients whose models are evaluated in each round


@dataclass(eq=False)
class Confidences:
    """Scores the membership candidates of observed models or updates, by all rounds of each observation's view; used once.

    Attributes:
        adversary: The adversary, with its view of each observation.
        labels: (P,) of its candidate images, as far as it knows.
        outputs: Outputs of models on its candidate images; the received models are already evaluated.
        rounds: The largest number of rounds that are read of each view: evenly spaced, the last one included.
    """

    adversary: Adversary
    labels: Tensor
    outputs: ModelOutputs
    rounds: int
    _log_odds_of: dict[tuple[Hashable, bytes], tuple[Sent, Tensor]] = field(default_factory=dict, init=False)

    def scores(self, observations: Sequence[Observation]) -> list[Tensor]:
        """A score (N,) of each observation's membership candidates: the sum over rounds of their residual log-odds."""
        pools = unions([observation.membership_candidates for observation in observations])
        views = [rounds_read(self.adversary, observation, self.rounds) for observation in observations]
        names = sorted({name for view in views for seen in view for name in seen.others})
        order = torch.randperm(len(names), generator=generator(self.adversary.seed, 61)).tolist()
        references = [names[i] for i in order[:_REFERENCES]]
        scores = []
        for observation, view in zip(observations, views, strict=True):
            pool = pool_of(observation, pools)
            index = torch.searchsorted(pool, observation.membership_candidates)
            score = torch.zeros(len(index), dtype=torch.float64)
            for seen in view:
                rows = self._log_odds_in(seen, references, pool)[:, index]
                score += standardised(unexplained(rows[0], rows[1:]))
            scores.append(score.float())
        return scores

    def _log_odds_in(self, seen: SeenRound, references: Sequence[str], pool: Tensor) -> Tensor:
        """Log-odds (1 + R, P) of the labels of the images at `pool` (P,): by the observed model, and by those of references.

        A reference that the view lacks is left out.
        """
        compared = [(seen.sent, received_model_of(seen))]
        compared += [
            (seen.others[name], seen.received_models[name]) for name in references if name in seen.received_models
        ]
        return torch.stack([self._log_odds(seen, sent, received_model, pool) for sent, received_model in compared])

    def _log_odds(self, seen: SeenRound, sent: Sent, received_model: ModelState, pool: Tensor) -> Tensor:
        """(P,): log-odds of the labels of the images at `pool` (P,) under the model that a client sent in this round."""
        key = identity(sent), pool.numpy().tobytes()
        if key not in self._log_odds_of:
            assert isinstance(seen.simulator, TrainingSimulator)
            model = seen.simulator.after(read(sent), received_model)
            logits = self.outputs.logits([model], self.adversary.candidates[pool], received_model)[0]
            self._log_odds_of[key] = (
                sent,
                log_odds(logits, self.labels[pool]),
            )  # `sent` is stored so that its id stays unique
        return self._log_odds_of[key][1]
