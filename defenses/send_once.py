"""Send once: clients share their style in their first round only, instead of in every round."""

from dataclasses import dataclass

from fdgpriv.defense import Defense, Guarantee, M

from ._fields import with_fields


@dataclass(frozen=True)
class SendOnce(Defense):
    """Sets `resend_styles` of the method to false; the server keeps the first styles. Fewer releases need less noise."""

    def local_training(self, method: M) -> M:
        if not getattr(method, "resend_styles", False):
            raise ValueError(f"send_once: not applicable to {method.name()}, which does not share a style repeatedly")
        return with_fields(method, resend_styles=False)

    def guarantee(self) -> Guarantee:
        return Guarantee(None, None, "Each client's style is shared once and not in every round. No finite epsilon.")
