"""Changes a method's fields, for defenses that act by what the method can be set to."""

from dataclasses import fields, replace
from typing import Any, cast

from fdgpriv.defense import M


def with_fields(method: M, **changed: Any) -> M:
    """The method with these fields changed; ValueError if it has no such field or does not accept the value."""
    known = {field.name for field in fields(cast(Any, method))}
    if missing := sorted(set(changed) - known):
        raise ValueError(f"it has no field {missing[0]}")
    return cast(M, replace(cast(Any, method), **changed))


def with_buffers(method: M, buffers: str, defense: str) -> M:
    """The method with BatchNorm statistics ``keep_local`` or ``freeze``; LSI then does not recompute them either.

    Raises:
        ValueError: The method has no such setting.
    """
    more = {"recalibrate_bn": False} if hasattr(method, "recalibrate_bn") else {}
    try:
        return with_fields(method, buffers=buffers, **more)
    except ValueError as error:
        raise ValueError(f"{defense}: not applicable to {method.name()} ({error})") from None
