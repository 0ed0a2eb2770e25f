"""Shadow clients: units of measurement beside a domain's few clients, made of public images, never of training images."""

from fdgpriv.data.dataset import Domain

FEW = 4  # below this many clients to a domain, shadow clients make up the number
LEAST = 8  # images of a shadow client: with fewer, what it shares would say of one image what it says of a client


def shadow_clients(public: Domain, clients: list[int], classes: int) -> tuple[Domain, list[Domain]]:
    """The public images of one domain that adversaries keep, and the images of each shadow client of that domain.

    All shadows together have at most half of the public images, and leave more images than there are classes; each has at
    least `LEAST` images, but never more than the smallest client. Where that cannot be there are fewer shadows, or none.

    Args:
        public: The domain's public images.
        clients: Numbers of images of the clients that hold images of this domain.
        classes: K.
    """
    spare = min(len(public) // 2, len(public) - classes - 1)
    count = min(FEW - len(clients), spare // LEAST)
    if not clients or count <= 0:
        return public, []
    size = min(min(clients), spare // count)
    kept = len(public) - count * size
    parts = [public.part(kept + i * size, kept + (i + 1) * size) for i in range(count)]
    return public.part(0, kept), parts
