"""Shadow clients: units of measurement beside a domain's few clients, made of public images, never of training images."""

from fdgpriv.federation import Domain

FEW = 4  # below this many clients to a domain, shadow clients make up the number


def shadow_clients(public: Domain, clients: list[int], classes: int) -> tuple[Domain, list[Domain]]:
    """The public images of one domain that adversaries keep, and the images of each shadow client of that domain.

    The shadows share at most half of the public images, so that adversaries keep more images than there are classes; none
    holds more images than the smallest client. There are none where each would have fewer than two images.

    Args:
        public: The domain's public images.
        clients: Numbers of images of the clients that hold images of this domain.
        classes: K.
    """
    wanted = FEW - len(clients)
    if not clients or wanted <= 0:
        return public, []
    spare = min(len(public) // 2, len(public) - classes - 1)
    size = min(min(clients), spare // wanted)
    if size < 2:
        return public, []
    kept = len(public) - wanted * size
    parts = [public.part(kept + i * size, kept + (i + 1) * size) for i in range(wanted)]
    return public.part(0, kept), parts
