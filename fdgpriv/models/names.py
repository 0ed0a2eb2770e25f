"""The names of the backbones, importable without torch."""

BACKBONES = ("small_resnet", "resnet18", "resnet50", "alexnet", "densenet121", "efficientnet_lite0")
TIMM = "timm:"  # followed by the name of a network of the package timm


def is_backbone(name: str) -> bool:
    """Whether this is one of `BACKBONES` or ``timm:NAME``."""
    return name in BACKBONES or (name.startswith(TIMM) and name != TIMM)
