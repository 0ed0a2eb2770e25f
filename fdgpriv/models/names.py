"""The names of the backbones, importable without torch."""

from fdgpriv.utils.suggestions import did_you_mean

BACKBONES = ("small_resnet", "resnet18", "resnet50", "alexnet", "densenet121", "efficientnet_lite0")
TIMM = "timm:"  # followed by the name of a network of the package timm


def check_backbone(name: str) -> None:
    """Raises ValueError, with the known names, if this is neither one of `BACKBONES` nor ``timm:NAME``."""
    if name not in BACKBONES and (not name.startswith(TIMM) or name == TIMM):
        raise ValueError(
            f"want a backbone of {', '.join(BACKBONES)}, {TIMM}NAME; got {name!r}{did_you_mean(name, BACKBONES)}"
        )
