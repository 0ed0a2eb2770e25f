"""Membership: infers whether an image was trained on from a client's update or from the global model.

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

from ._contributions import Contributions
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

_PUBLIC = 100  # public images to evaluate the received model on, and for RMIA's comparison


@dataclass(frozen=True)
class Membership(Attack):
    """Compares what each candidate would contribute to a client's training with what the client shared, in all rounds.

    Other clients' artifacts serve as references (`_contributions.py`), so that no shadow model is trained. The other
    statistics compare the last model's confidence on each candidate with that of shadow models trained without it.

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
        statistic: ``lira``; ``rmia``; ``change`` of log-odds from the received model; ``loss`` of the trained model, as
            log-odds; ``auto`` is lira, and loss for the global model.
        online: LiRA with shadow models trained on half of the candidates each, retrained for each set of candidates.
            Not available for shadow federations.
        shadows: Shadow models for each number of images; a quarter where each client received a model of its own. For
            the global model, number of federations.
        rounds: Of ``contribution``: rounds of the view that are read, at most; evenly spaced, the last one included.
        gamma: RMIA's threshold.
        a: RMIA's offline slope.
    """

    reads = (ModelState, ModelUpdate, "global_model", "honest_mean")
    task = Members()
    threats = ("server", "client", "third_party")
    group_sizes = (1, 20, None)

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {"shadows": 2, "rounds": 2},
        "thorough": {"shadows": 16, "rounds": 100},
    }

    statistic: Literal["auto", "contribution", "lira", "rmia", "change", "loss"] = "auto"
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
    """Scores all observations of one adversary; caches what several have in common."""

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
        self.of_all = isinstance(self.simulator, SharedModelSimulator)
        self.statistic = self.attack.statistic
        if self.statistic == "auto":
            self.statistic = "loss" if self.of_all else "lira" if self.attack.online else "contribution"

    def scores(self, observations: Sequence[Observation]) -> list[Prediction]:
        """A score (N,) of each observation's membership candidates."""
        by_start: dict[tuple[int, int], list[Observation]] = {}
        by_artifact: dict[Hashable, list[Observation]] = {}
        for observation in observations:
            by_start.setdefault(self._start(observation), []).append(observation)
            by_artifact.setdefault(identity(observation.sent), []).append(observation)
        own_models = len({received_model for received_model, _ in by_start}) > 1
        count = max(2, self.attack.shadows // 4) if own_models else self.attack.shadows
        if self.statistic == "contribution" and self.attack.statistic == "auto" and own_models:
            self.statistic = "lira"
        self.outputs.evaluate_received_models(observations)
        if self.statistic == "contribution":
            contributions = Contributions(
                self.adversary, self._candidate_labels(observations), self.outputs, self.attack.rounds
            )
            return contributions.scores(observations)
        if self.of_all and self.statistic in ("lira", "rmia"):
            compared: dict[tuple[int, int], Logits | None] = dict.fromkeys(by_start, self._federations(observations))
        else:
            compared = {start: self._compared(some, count) for start, some in by_start.items()}
        found: dict[Observation, Tensor] = {}
        for some in by_artifact.values():
            received_model = received_model_of(some[0])
            model = self.simulator.after(some[0].artifact, received_model)
            output = self.outputs.candidate_logits_of_artifact(
                some[0].sent, model, some, received_model, self.statistic == "rmia"
            )
            found |= {one: self._score(one, output, compared[self._start(one)], count).nan_to_num(0.0) for one in some}
        return [found[observation] for observation in observations]

    def _candidate_labels(self, observations: Sequence[Observation]) -> Tensor:
        """Classes (P,) of all candidate images, by the received models, or where these are not trusted by other clients'."""
        received = list({id(one.received_model): received_model_of(one) for one in observations}.values())
        voters = [model for model in received if self.outputs.is_trusted(model)]
        if not voters:
            last = [self.adversary.view(observation)[-1] for observation in observations]
            models = {identity(other): (other, seen.received_model) for seen in last for other in seen.others.values()}
            models = models or {identity(seen.sent): (seen.artifact, seen.received_model) for seen in last}
            voters = [self.simulator.after(other, model) for other, model in models.values() if model is not None]
        logits = self.outputs.logits(voters, self.adversary.candidates, None)
        return logits.softmax(-1).mean(0).argmax(1)

    def _candidate_logits(
        self, states: Sequence[ModelState], observations: Sequence[Observation], received_model: ModelState | None
    ) -> Logits:
        """Logits of models trained from the received model; on public images too where the statistic needs them."""
        return self.outputs.candidate_logits(states, observations, received_model, self.statistic == "rmia")

    def _start(self, observation: Observation) -> tuple[int, int]:
        """What a shadow model depends on: the received model's id, and the nearest simulated number of images."""
        sizes = torch.tensor(self.adversary.sizes)
        return id(observation.received_model), int(sizes[(sizes - observation.n_images).abs().argmin()])

    def _compared(self, observations: Sequence[Observation], count: int) -> Logits | None:
        """Logits of shadow models trained without these observations' membership candidates; None where not needed."""
        if self.statistic in ("change", "loss") or self.attack.online:
            return None
        what = self.rng.initial_seed(), count, self._start(observations[0])[1], received_model_of(observations[0])
        evaluated = partial(self._of_shadows, observations, *what)
        known = self.adversary.cache.get((Logits, self.statistic, self.adversary.candidates, *what), evaluated)
        return known if bool(torch.isin(all_membership_candidates(observations), known.index).all()) else evaluated()

    def _of_shadows(
        self, observations: Sequence[Observation], seed: int, count: int, size: int, received_model: ModelState
    ) -> Logits:
        """Logits of so many shadow models of this size on these observations' candidates.

        The models depend on the seed of the attack's generator and not on its state, so that whatever is asked with it is
        compared with the same ones.
        """
        shadows = self.shadows.drawn_by(generator(self.adversary.seed, 57, seed, size))
        drawn = [shadows.draw(size, turn) for turn in range(count)]
        output = self._candidate_logits(shadows.of(drawn, received_model), observations, received_model)
        return self._unseen(output, torch.stack([torch.isin(self.public, index) for index in drawn]))

    def _federations(self, observations: Sequence[Observation]) -> Logits:
        """Logits of shadow federations, none of which was trained on a membership candidate."""
        federations = shadow_federations(self.adversary, self.attack.shadows)
        output = self._candidate_logits(
            [state for one in federations for state in one.received_model], observations, None
        )
        return self._unseen(
            output, torch.stack([one.saw[self.public] for one in federations for _ in one.received_model])
        )

    def _unseen(self, output: Logits, saw: Tensor) -> Logits:
        """The same with NaN for public images that a shadow model was trained on (S, M), where they are compared."""
        if self.statistic != "rmia":
            return output
        return Logits(output.index, output.membership_candidates, output.public.masked_fill(saw[:, :, None], torch.nan))

    def _score(self, observation: Observation, output: Logits, compared: Logits | None, count: int) -> Tensor:
        membership_candidates, name = observation.membership_candidates, self.statistic
        (own,) = output.of(membership_candidates)
        labels = self.outputs.labels(observation, own)
        phi = log_odds(own, labels)
        if name == "loss":
            return phi
        if name == "change":
            return phi - log_odds(self.outputs.before(observation), labels)
        if compared is None:
            shadows, saw = self._half_seen(observation, labels, count)
            return online(phi, log_odds(shadows, labels), saw)
        others = compared.of(membership_candidates)
        if name == "lira":
            return offline(phi, log_odds(others, labels))
        known = self.shadows.labels[self.public]
        unseen = likelihood(compared.public, known).nanmean(0).nan_to_num(1.0)
        mean = likelihood(others, labels).mean(0)
        public = likelihood(output.public[0], known)
        return rmia(likelihood(own, labels), mean, public, unseen, self.attack.gamma, self.attack.a)

    def _half_seen(self, observation: Observation, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Logits (S, N, K) of shadow models trained on some of the candidates each, and which was trained on which (S, N)."""
        key = (self._start(observation), id(observation.membership_candidates), tuple(labels.tolist()))
        if key not in self.halves:
            images = self.adversary.candidates[observation.membership_candidates]
            states, saw = self.shadows.with_some_of(images, labels, key[0][1], received_model_of(observation), count)
            self.halves[key] = self.outputs.logits(states, images, received_model_of(observation)), saw
        return self.halves[key]
