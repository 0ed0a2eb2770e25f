"""fdgpriv in Flower: a method as a Flower app; wants the extra `flower`."""

from fdgpriv.flower.deployment import client_app, server_app

__all__ = ["client_app", "server_app"]  # by which Flower finds them
