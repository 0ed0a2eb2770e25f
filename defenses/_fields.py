"""Changes a method's fields, for defenses that act by what the method can be set to."""

from dataclasses import fields, replace
from typing import Any, cast

from torch import nn

from fdgpriv.defense import M


def with_fields(method: M, **changed: Any) -> M:
    """The method with these fields changed; ValueError if it has no such field or does not accept the value."""
    field_names = {field.name for field in fields(cast(Any, method))}
    if missing := sorted(set(changed) - field_names):
        raise ValueError(f"it has no field {missing[0]}")
    return cast(M, replace(cast(Any, method), **changed))


def with_buffers(method: M, buffers: str, defense: str) -> M:
    """The method with BatchNorm statistics ``keep_local`` or ``freeze``; LSI then does not recompute them either.

    Raises:
        ValueError: The method has no such setting.
    """
    other_changes = {"recalibrate_bn": False} if hasattr(method, "recalibrate_bn") else {}
    try:
        changed = with_fields(method, buffers=buffers, **other_changes)
    except ValueError as error:
        raise ValueError(f"{defense}: not applicable to {method.name()} ({error})") from None
    if changed == method:
        raise ValueError(f"{defense}: has no effect: {method.name()}.buffers is {buffers} already")
    return changed


def check_normalised(model: nn.Module, defense: str) -> None:
    """Raises ValueError where a network has no BatchNorm statistics."""
    if not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        raise ValueError(f"{defense}: has no effect: the network that is trained has no BatchNorm")
