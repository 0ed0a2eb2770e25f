"""Tells parts that users write, which may change what they are given in place, from those of this package."""

_PACKAGE = __name__.partition(".")[0]


def is_user_code(part: object) -> bool:
    """Whether the class of this object is defined outside this package."""
    return type(part).__module__.partition(".")[0] != _PACKAGE
