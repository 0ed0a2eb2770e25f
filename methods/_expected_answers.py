"""Templates of expected client answers: artifacts with the expected shapes, dtypes and facts; their values are 0."""

import torch
from torch import Tensor

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.artifacts.statistics import ModelEvaluation, SampleCount, ValidationMetrics
from fdgpriv.artifacts.style import StyleDraft
from fdgpriv.federation.upload import ExpectedArtifact


def sample_count() -> ExpectedArtifact:
    """One sample count."""
    return ExpectedArtifact(SampleCount(client=SERVER, round=0, count=torch.tensor(0)))


def accuracy(dtype: torch.dtype, least: int = 1) -> ExpectedArtifact:
    """One accuracy on held-out images; `least` 0 allows none, for clients without held-out images."""
    return ExpectedArtifact(ValidationMetrics(client=SERVER, round=0, accuracy=torch.zeros((), dtype=dtype)), least)


def evaluation(metric: str, trained: bool) -> ExpectedArtifact:
    """One evaluation by this metric of the model that the client has trained, or of the one that it received."""
    zero = torch.zeros(())
    return ExpectedArtifact(ModelEvaluation(client=SERVER, round=0, value=zero, metric=metric, trained=trained))


def style(
    channels: int, at: str, rule: str, granularity: str = "client", variances: bool = False, most: int = 1
) -> ExpectedArtifact:
    """One to `most` styles with C = `channels` channels, taken at layer `at` by this rule."""
    zeros: Tensor = torch.zeros(1, channels)
    draft = StyleDraft(
        client=SERVER, round=0, mean=zeros, std=zeros, variances=variances, granularity=granularity, at=at, rule=rule
    )
    return ExpectedArtifact(draft.pooled(zeros[0], zeros[0], zeros[0], zeros[0]), most=most)
