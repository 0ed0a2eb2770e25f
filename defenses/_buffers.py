"""Sets how a method shares BatchNorm statistics."""

from dataclasses import fields, replace
from typing import Any


def with_buffers(method: Any, buffers: str, defense: str) -> Any:
    """The method with BatchNorm statistics ``keep_local`` or ``freeze``; LSI then does not recompute them either.

    Raises:
        ValueError: The method has no such setting.
    """
    changed: dict[str, Any] = {"buffers": buffers}
    if any(field.name == "recalibrate_bn" for field in fields(method)):
        changed["recalibrate_bn"] = False
    try:
        return replace(method, **changed)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{defense}: not applicable to {method.name()} ({error})") from None
