"""The kinds of artifact: data that clients and server exchange. `Artifact.kinds` has all of them once any was imported."""

from fdgpriv.artifacts import parameters, prototypes, statistics, style

__all__ = ["parameters", "prototypes", "statistics", "style"]
