"""The roles a part can play: what a Method, a Defense, an Attack and a Report promise."""

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import torch
from torch import nn

from fdgpriv.artifact import Artifact, Message, Outgoing, StyleDraft
from fdgpriv.federation import Federation, LocalData
from fdgpriv.role import Role
from fdgpriv.setup import Setup
from fdgpriv.style import Moments, StyleRule, styles_of
from fdgpriv.upload import Wanted

if TYPE_CHECKING:
    from fdgpriv.exam import Guess, Question, Truth, View
    from fdgpriv.finding import Measured, Results
    from fdgpriv.models.backbone import Backbone
    from fdgpriv.subjects import Craft, Subject


@dataclass(frozen=True)
class Ask:
    """What the server asks of its clients: call `verb` on each with its message.

    Attributes:
        verb: The client's method.
        messages: What each asked client is sent.
        reduce: ``"mean"`` where the server needs only the (weighted) mean of the answers, so that secure aggregation
            may stand in; None where it needs each one.
        noted: What the server noted of its own work, for the evaluator; it crosses no wire.
        after: After how many rounds the model in it is, for the evaluator; None for the round that the model names. A model
            that is sent in round r is the one after r rounds.
        wanted: What each client's answer must hold, which the wire then checks; empty for nothing. None does not say: then
            kinds, numbers of artifacts, tensor names, shapes and dtypes are not checked.
    """

    verb: str
    messages: Mapping[str, Message]
    reduce: str | None = None
    noted: Mapping[str, float] = field(default_factory=dict)
    after: int | None = None
    wanted: Sequence[Wanted] | None = None

    def round(self, client: str) -> int:
        """The round that this client is asked to answer for: the latest of what it is sent, 0 where it is sent nothing."""
        return max((artifact.round for artifact in self.messages[client]), default=0)


Answers = dict[str, Message]
Server = Generator[Ask, Answers, nn.Module]
Verb = Callable[[Message], Outgoing]


class Method(Role):
    """A federated learning method: what the server does with answers, and what a client answers.

    Attributes:
        presets: By preset of the audit, the fields that it sets.
        paper_setup: The federation of the paper's experiments, for the preset ``paper``.
    """

    folder = "methods"
    paper_setup: ClassVar[Setup] = Setup()
    frozen_encoder: ClassVar[bool] = False  # whether styles come from a public network that training does not change
    trains_plainly: ClassVar[bool] = False  # whether `train_plainly` says what clients do
    steps_alone: ClassVar[bool] = False  # whether its clients' optimiser moves each entry of a parameter by itself
    personal: ClassVar[bool] = False  # whether each client is sent a model of its own
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]

    rounds: int

    @abstractmethod
    def model(self, federation: Federation, rng: torch.Generator) -> nn.Module:
        """The global model as it starts: a public fact."""

    @abstractmethod
    def server(self, federation: Federation, rng: torch.Generator) -> Server:
        """The paper's server: yields Ask, receives answers, returns the trained global model."""

    @abstractmethod
    def client(self, federation: Federation, data: LocalData, rng: torch.Generator) -> object:
        """The paper's client: an object with one method per verb."""

    def model_of(self, model: nn.Module, client: str) -> nn.Module:
        """The model that `client` ends with, of what the server returned: here the global one."""
        return model

    def check(self, model: nn.Module) -> None:
        """Raise ValueError where a setting does not fit the model that was built."""
        return

    def train_plainly(
        self, model: nn.Module, data: LocalData, round: int, rng: torch.Generator, device: torch.device
    ) -> None:
        """Train `model` in place as a client does in this round, on cross-entropy alone; where `trains_plainly`."""
        raise NotImplementedError(f"{self.name()} does not say how its clients train")

    def plain_batches(self, data: LocalData, rng: torch.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The batches, augmented, of which `train_plainly` makes a step each: images (B, 3, H, W) and labels (B,)."""
        raise NotImplementedError(f"{self.name()} does not say how its clients train")

    def ready(self, model: nn.Module, n: int) -> None:
        """Put `model` into the mode in which a client with n images trains it.

        BatchNorm never normalises a batch of one image by that image: it stays in evaluation mode there.
        """
        model.train()

    def new_optimizer(self, model: nn.Module, round: int) -> torch.optim.Optimizer:
        """What a client trains with in this round, afresh."""
        raise NotImplementedError(f"{self.name()} does not say how its clients train")

    def cut_to(self, clients: int) -> Self:
        """This method for a federation of so few clients: with what presumes more of them cut, as adversaries train it."""
        return self

    def check_data(self, data: LocalData) -> None:
        """Raise ValueError where a setting does not fit what a client holds; asked before anything is trained."""
        return

    def features(self, model: nn.Module, layer: str) -> Callable[[torch.Tensor], torch.Tensor]:
        """The public encoder whose features' styles this method shares: here a layer of the global model itself."""
        backbone = cast("Backbone", model.backbone)
        return lambda images: backbone.features(images, layer)

    @property
    def normalises_jointly(self) -> bool:
        """Whether an image's style depends on the client's other images, because batch statistics normalise its features."""
        return False

    def client_styles(self, model: nn.Module, images: torch.Tensor, layer: str, rule: StyleRule) -> Moments:
        """Mean and std (n, C) of the features of each image (n, 3, H, W) of one client that holds these; `model` is kept."""
        device = next(model.parameters()).device
        encoder = self.features(model, layer)
        mean, std = styles_of(images, lambda part: encoder(part.to(device)), rule)
        return mean.cpu(), std.cpu()

    def in_frame_of(self, model: nn.Module, images: torch.Tensor, layer: str) -> nn.Module:
        """A model that normalises a single image as among those of a client that holds `images` (n, 3, H, W), up to `layer`.

        It is `model` itself, unless the method `normalises_jointly`.
        """
        return model

    def layers(self, model: nn.Module) -> tuple[str, ...]:
        """The layers at which `features` can be taken."""
        return tuple(cast("Backbone", model.backbone).stages)

    def style_rule(self) -> StyleRule | None:
        """How the styles that it shares are taken and pooled; None where it shares none, or plain averages."""
        return None

    def releases(self, kind: str) -> int:
        """At most how often one client's artifact of this kind leaves it in a run; where `by_image`, one image's."""
        return self.rounds

    def steps(self, n: int) -> int:
        """How many mini-batches a client that has n images trains on in a round; where `trains_plainly`."""
        raise NotImplementedError(f"{self.name()} does not say how its clients train")

    def by_image(self, kind: str) -> bool:
        """Whether an artifact of this kind describes one image, and a client shares as many as its size makes it."""
        return False


@dataclass(frozen=True)
class Guarantee:
    """What a defense proves.

    Attributes:
        epsilon: For one unit over the whole run, or None where it proves nothing.
        delta: Beside epsilon.
        statement: In words: of which artifact, for which unit, under which adjacency, over how many releases.
        protects: The kinds of artifact the proof covers.
    """

    epsilon: float | None
    delta: float | None
    statement: str
    protects: tuple[str, ...] = ()


class Defense(Role):
    """What a client does before it shares. Same kind in, same kind out."""

    folder = "defenses"

    def bound_to(self, method: Method) -> Self:
        """This defense, calibrated to how often `method` shares; unchanged where nothing depends on it."""
        return self

    @abstractmethod
    def protect(self, outgoing: Artifact | StyleDraft, rng: torch.Generator) -> Artifact:
        """What leaves the client instead of `outgoing`; runs on the client, before the wire."""

    def worlds(self, dim: int, draws: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Scores (draws,) of the whole run's releases in two neighbouring worlds, the first with the canary.

        None where the defense proves nothing that two worlds could contradict. The worlds are the defense's own worst
        case, drawn through the code that protects.

        Args:
            dim: Length of the vector that is released.
            draws: Independent runs of each world.
            rng: Of the noise.
        """
        return None

    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What it proves, or that it proves nothing."""


class Attack(Role):
    """An algorithm that reads private facts out of artifacts, under a stated threat model.

    `read` sees what the adversary sees; only `score`, `describe` and `realism` see the truth.

    Attributes:
        family: reconstruction, identification, membership, property or algebra.
        reads: The kinds of artifact, the first the one it is best known for; it is examined on each that a run shared.
        headline: The metric that `score` returns; `higher_leaks` is its direction, `bounds` its range if it has one.
        lines: The verdict lines it can speak to.
        presets: Fields that a preset of the audit sets.
        sizes: Numbers of images behind the artifacts it is examined on; None is the whole client.
        by_layer: Whether it is also examined on every layer at which styles could be taken.
        by_round: Numbers of images at which it is also examined on what a client shared in several rounds together.
        asks_size: Whether the number of images behind an artifact is what it guesses: it is not told it then, and other
            artifacts in the target's place are of any number.
        threats: The roles it can be played in.
    """

    folder = "attacks"
    family: ClassVar[str]
    reads: ClassVar[tuple[str, ...]]
    headline: ClassVar[str]
    higher_leaks: ClassVar[bool]
    bounds: ClassVar[tuple[float, float] | None] = None
    lines: ClassVar[tuple[str, ...]] = ("client", "domain")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    sizes: ClassVar[tuple[int | None, ...]] = (1, 2, 5, 20, None)
    by_layer: ClassVar[bool] = False
    by_round: ClassVar[tuple[int | None, ...]] = ()
    asks_size: ClassVar[bool] = False
    threats: ClassVar[tuple[str, ...]]

    @abstractmethod
    def read(
        self, view: "View", questions: "Sequence[Question]", rng: torch.Generator
    ) -> "tuple[Sequence[Guess], Mapping[str, list[Guess]]]":
        """A guess for each question, and, by control, what the same adversary says without any artifact.

        Controls that depend on what only some adversaries know carry it in their name: ``domain_mean:NAME``,
        ``class_mean:LABEL``. Several guesses under one name are averaged.
        """

    def sizes_on(self, subject: "Subject[Craft]") -> tuple[int | None, ...]:
        """The numbers of images behind this subject's artifacts that it is examined on: `sizes`, or fewer."""
        return self.sizes

    def refuses(self, subject: "Subject[Craft]") -> str | None:
        """Why it makes no sense on artifacts of this subject, in one sentence; None where it does."""
        return None

    def fits(self, truth: "Truth") -> bool:
        """Whether a target of this truth can be asked about; all can, but where the truth lacks what is asked."""
        return True

    def settings(self, kind: str) -> "Mapping[str, Attack]":
        """By name, this attack under settings that it is also examined in on single images, the most telling last.

        Args:
            kind: Of the artifacts that it reads.
        """
        return {}

    def budget(self) -> str:
        """What it may spend, in words, for the reason of a verdict."""
        settings: Sequence[Any] = fields(self) if is_dataclass(self) else ()
        return ", ".join(f"{f.name}={getattr(self, f.name)}" for f in settings) or "no settings"

    def chance(self, view: "View", truth: "Truth") -> float | None:
        """What guessing reaches on the headline metric, where that is one number."""
        return None

    @abstractmethod
    def score(self, guesses: "Sequence[Guess]", truths: "Sequence[Truth]") -> torch.Tensor:
        """The headline metric of each guess (M,) against its truth."""

    def describe(self, guesses: "Sequence[Guess]", truths: "Sequence[Truth]") -> "dict[str, torch.Tensor]":
        """Further metrics of each guess, by name, (M,) each."""
        return {}

    def realism(self, guesses: "Sequence[Guess]", truths: "Sequence[Truth]") -> "dict[str, Measured]":
        """What the guesses look like as a set; measures no person's leakage, so no verdict rests on it."""
        return {}


class Report(Role):
    """Findings in, one document out."""

    folder = "reports"
    filename: ClassVar[str]

    @abstractmethod
    def render(self, results: "Results", folder: Path) -> str:
        """The document; `folder` holds the figures that the findings name."""
