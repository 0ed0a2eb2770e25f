"""Membership: infers from a client's update or from the global model whether an image was trained on.

References: as in `_membership.py`.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fdgpriv.adversary import Adversary, Observation, Prediction
from fdgpriv.artifacts.parameters import ModelState, ModelUpdate
from fdgpriv.attack import Attack
from fdgpriv.simulation.artifact_series import ArtifactSeries
from fdgpriv.simulation.mixture import identity
from fdgpriv.simulation.shared_model import SharedModelSimulator
from fdgpriv.simulation.simulator import Simulator
from fdgpriv.simulation.training import TrainingSimulator
from fdgpriv.tasks.membership import Members
from fdgpriv.utils.fields import Fraction, PositiveFloat, PositiveInt, TwoOrMore
from fdgpriv.utils.seeds import generator

from ._confidence import Confidences
from ._contributions import Contributions, mostly_alike
from ._membership import (
    Logits,
    ModelOutputs,
    all_membership_candidates,
    likelihood,
    log_odds,
    offline,
    online,
    received_model_of,
    rmia,
)
from ._shadow_models import Shadows, shadow_federations

_PUBLIC = 100  # public images on which the received model is evaluated, and which RMIA compares with


@dataclass(frozen=True)
class Membership(Attack):
    """Compares what each candidate would contribute to a client's training with what the client shared, in all rounds.

    Other clients' artifacts serve as references (`_contributions.py`; where clients receive models that have little in
    common, `_confidence.py`), so that no shadow model is trained. The other statistics compare the last model's confidence
    on each candidate with that of shadow models trained without it.

    Shadow models of a client start from the model that it received, hold as many public images as the artifact has (of
    one domain where one has so many), and pass through the run's defense. A candidate's label is unknown to all roles:
    the received model's prediction serves as label, or, where that model is right on fewer than half of the public
    images, the trained model's, which raises the scores of non-members.

    Where the received model is trusted with labels, all models are evaluated with its BatchNorm statistics: a client's
    own drift towards its data, which masks the effect of its gradients.

    Shadows of the global model are whole federations, trained from the start with the run's method and defense on
    public images only, and evaluated with their own statistics. They cost whole trainings, so `auto` is the model's own
    loss there.

    Attributes:
        statistic: ``contribution`` to the training, by gradients, BatchNorm statistics and last confidence; ``confidence`` of
            all rounds' models alone; ``lira``; ``rmia``; ``change`` of log-odds from the received model; ``loss`` of the
            trained model, as log-odds. ``auto`` is contribution, confidence where clients receive models that have little
            in common, lira if `online`, and loss for the global model.
        online: LiRA with shadow models trained on half of the candidates each, retrained for each set of candidates.
            Not available for shadow federations.
        shadows: Shadow models for each number of images; a quarter where each client received a personal model. For
            the global model, number of federations.
        rounds: Of ``contribution`` and ``confidence``: rounds of the view that are read, at most; evenly spaced, the last
            one included.
        gamma: RMIA's threshold.
        a: RMIA's offline slope.
    """

    also_called: ClassVar[tuple[str, ...]] = ("mia", "membership_inference", "lira", "rmia")

    reads = (ModelState, ModelUpdate, "global_model", "honest_mean")
    task = Members()
    threats = ("server", "client", "third_party")
    group_sizes = (1, 20, None)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"shadows": 2, "rounds": 2},
        "thorough": {"shadows": 16, "rounds": 100},
    }

    statistic: Literal["auto", "contribution", "confidence", "lira", "rmia", "change", "loss"] = "auto"
    online: bool = False
    shadows: TwoOrMore = 8
    rounds: PositiveInt = 8
    gamma: PositiveFloat = 1.0
    a: Fraction = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.online and self.statistic not in ("auto", "lira"):
            raise ValueError(f"membership.online: want statistic=lira, got {self.statistic}")

    def inapplicable(self, series: ArtifactSeries[Simulator]) -> str | None:
        if self.online and self.statistic == "lira" and isinstance(series.simulator, SharedModelSimulator):
            return "shadow federations never hold a candidate, so membership.online has nothing to compare with here"
        return None

    def infer(
        self, adversary: Adversary, observations: Sequence[Observation], rng: torch.Generator
    ) -> list[Prediction]:
        return _Inference(self, adversary, rng).scores(observations)


@dataclass(eq=False)
class _Inference:
    """Scores all observations of one adversary; caches the computations that several observations share."""

    attack: Membership
    adversary: Adversary
    rng: torch.Generator

    def __post_init__(self) -> None:
        self.simulator = self.adversary.simulator(TrainingSimulator)
        self.shadows = Shadows(self.simulator, self.adversary.domains, self.rng)
        self.halves: dict[object, tuple[Tensor, Tensor]] = {}
        order = torch.randperm(len(self.shadows.labels), generator=generator(self.adversary.seed, 56))
        self.public = order[:_PUBLIC]
        public = self.shadows.images[self.public], self.shadows.labels[self.public]
        self.outputs = ModelOutputs(
            self.simulator.network(),
            self.adversary.candidates,
            *public,
            self.adversary.output_cache,
        )
        self.is_global = isinstance(self.simulator, SharedModelSimulator)
        self.statistic = self.attack.statistic
        if self.statistic == "auto":
            self.statistic = "loss" if self.is_global else "lira" if self.attack.online else "contribution"

    def scores(self, observations: Sequence[Observation]) -> list[Prediction]:
        """A score (N,) of each observation's membership candidates."""
        by_start: dict[tuple[int, int], list[Observation]] = {}
        by_artifact: dict[Hashable, list[Observation]] = {}
        for observation in observations:
            by_start.setdefault(self._start(observation), []).append(observation)
            by_artifact.setdefault(identity(observation.sent), []).append(observation)
        has_personal_models = len({received_model for received_model, _ in by_start}) > 1
        count = max(2, self.attack.shadows // 4) if has_personal_models else self.attack.shadows
        received = list({id(o.received_model): received_model_of(o) for o in observations}.values())
        comparable = not has_personal_models or mostly_alike(received)
        if self.statistic == "contribution" and self.attack.statistic == "auto" and not comparable:
            self.statistic = "confidence"
        self.outputs.evaluate_received_models(observations)
        if self.statistic in ("contribution", "confidence"):
            scorer = Contributions if self.statistic == "contribution" else Confidences
            labels = self._candidate_labels(observations)
            return scorer(self.adversary, labels, self.outputs, self.attack.rounds).scores(observations)
        if self.is_global and self.statistic in ("lira", "rmia"):
            shadow_logits: dict[tuple[int, int], Logits | None] = dict.fromkeys(
                by_start, self._of_federations(observations)
            )
        else:
            shadow_logits = {start: self._shadow_logits(group, count) for start, group in by_start.items()}
        scores: dict[Observation, Tensor] = {}
        for group in by_artifact.values():
            received_model = received_model_of(group[0])
            model = self.simulator.after(group[0].artifact, received_model)
            output = self.outputs.candidate_logits_of_artifact(
                group[0].sent, model, group, received_model, self.statistic == "rmia"
            )
            scores |= {
                observation: self._score(
                    observation, output, shadow_logits[self._start(observation)], count
                ).nan_to_num(0.0)
                for observation in group
            }
        return [scores[observation] for observation in observations]

    def _candidate_labels(self, observations: Sequence[Observation]) -> Tensor:
        """Classes (P,) of all candidate images, by the received models, or where none is trusted, by other clients' models."""
        received = list(
            {id(observation.received_model): received_model_of(observation) for observation in observations}.values()
        )
        voters = [model for model in received if self.outputs.is_trusted(model)]
        if not voters:
            latest = [self.adversary.view(observation)[-1] for observation in observations]
            models = {
                identity(artifact): (artifact, latest_round.received_model)
                for latest_round in latest
                for artifact in latest_round.others.values()
            }
            models = models or {
                identity(latest_round.sent): (latest_round.artifact, latest_round.received_model)
                for latest_round in latest
            }
            voters = [self.simulator.after(artifact, model) for artifact, model in models.values() if model is not None]
        logits = self.outputs.logits(voters, self.adversary.candidates, None)
        return logits.softmax(-1).mean(0).argmax(1)

    def _candidate_logits(
        self, states: Sequence[ModelState], observations: Sequence[Observation], received_model: ModelState | None
    ) -> Logits:
        """Logits of models trained from the received model; on public images too, if the statistic needs them."""
        return self.outputs.candidate_logits(states, observations, received_model, self.statistic == "rmia")

    def _start(self, observation: Observation) -> tuple[int, int]:
        """Key of the shadow models of an observation: the received model's id, and the nearest simulated number of images."""
        sizes = torch.tensor(self.adversary.sizes)
        return id(observation.received_model), int(sizes[(sizes - observation.n_images).abs().argmin()])

    def _shadow_logits(self, observations: Sequence[Observation], count: int) -> Logits | None:
        """Logits of shadow models trained without these observations' membership candidates; None where not needed."""
        if self.statistic in ("change", "loss") or self.attack.online:
            return None
        settings = self.rng.initial_seed(), count, self._start(observations[0])[1], received_model_of(observations[0])
        evaluate = partial(self._of_shadows, observations, *settings)
        logits = self.adversary.cache.get((Logits, self.statistic, self.adversary.candidates, *settings), evaluate)
        return logits if bool(torch.isin(all_membership_candidates(observations), logits.index).all()) else evaluate()

    def _of_shadows(
        self, observations: Sequence[Observation], seed: int, count: int, size: int, received_model: ModelState
    ) -> Logits:
        """Logits of `count` shadow models of `size` images on these observations' candidates.

        The models depend on the seed of the attack's generator and not on its state, so that all inferences with this seed
        use the same shadow models.
        """
        shadows = self.shadows.with_rng(generator(self.adversary.seed, 57, seed, size))
        indices = [shadows.draw(size, turn) for turn in range(count)]
        output = self._candidate_logits(shadows.trained_on(indices, received_model), observations, received_model)
        return self._without_trained(output, torch.stack([torch.isin(self.public, index) for index in indices]))

    def _of_federations(self, observations: Sequence[Observation]) -> Logits:
        """Logits of shadow federations, none of which was trained on a membership candidate."""
        federations = shadow_federations(self.adversary, self.attack.shadows)
        output = self._candidate_logits(
            [state for federation in federations for state in federation.received_model], observations, None
        )
        return self._without_trained(
            output,
            torch.stack([federation.saw[self.public] for federation in federations for _ in federation.received_model]),
        )

    def _without_trained(self, output: Logits, saw: Tensor) -> Logits:
        """Logits with NaN where a shadow model was trained on a public image, by `saw` (S, M), if the statistic is RMIA."""
        if self.statistic != "rmia":
            return output
        return Logits(output.index, output.logits, output.public.masked_fill(saw[:, :, None], torch.nan))

    def _score(self, observation: Observation, output: Logits, shadow_logits: Logits | None, count: int) -> Tensor:
        """A score (N,) of each candidate of an observation, from logits of the observed model and of shadow models."""
        candidates, statistic = observation.membership_candidates, self.statistic
        (candidate_logits,) = output.of(candidates)
        labels = self.outputs.labels(observation, candidate_logits)
        phi = log_odds(candidate_logits, labels)
        if statistic == "loss":
            return phi
        if statistic == "change":
            return phi - log_odds(self.outputs.received_logits(observation), labels)
        if shadow_logits is None:
            shadows, saw = self._halves_logits(observation, labels, count)
            return online(phi, log_odds(shadows, labels), saw)
        shadow_candidates = shadow_logits.of(candidates)
        if statistic == "lira":
            return offline(phi, log_odds(shadow_candidates, labels))
        public_labels = self.shadows.labels[self.public]
        out_public = likelihood(shadow_logits.public, public_labels).nanmean(0).nan_to_num(1.0)
        out = likelihood(shadow_candidates, labels).mean(0)
        observed_public = likelihood(output.public[0], public_labels)
        return rmia(
            likelihood(candidate_logits, labels), out, observed_public, out_public, self.attack.gamma, self.attack.a
        )

    def _halves_logits(self, observation: Observation, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Logits (S, N, K) of shadow models trained on half of the candidates each; whether each was trained on each (S, N)."""
        key = (self._start(observation), id(observation.membership_candidates), tuple(labels.tolist()))
        if key not in self.halves:
            images = self.adversary.candidates[observation.membership_candidates]
            states, saw = self.shadows.trained_on_halves(
                images, labels, key[0][1], received_model_of(observation), count
            )
            self.halves[key] = self.outputs.logits(states, images, received_model_of(observation)), saw
        return self.halves[key]
