"""fdgpriv in Flower: a method as a Flower app, and the recording of other people's apps; wants the extra `flower`."""

from fdgpriv.flower.deployment import client_app, server_app
from fdgpriv.flower.recorded import recorded

__all__ = ["client_app", "recorded", "server_app"]  # by which Flower finds the apps
