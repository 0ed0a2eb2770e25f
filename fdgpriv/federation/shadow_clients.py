"""Shadow clients: additional units of evaluation for domains with few clients, made of public images."""

from fdgpriv.data.dataset import Domain

FEW = 4  # domains with fewer clients are filled up to this number with shadow clients
LEAST = 8  # minimum images of a shadow client; with fewer, a client's artifact reveals almost as much as one image's


def shadow_clients(public: Domain, clients: list[int], classes: int) -> tuple[Domain, list[Domain]]:
    """Splits one domain's public images into those of adversaries and those of each shadow client.

    All shadows together get at most half of the public images and leave more images than classes; each gets at least
    `LEAST` images and at most as many as the smallest client. If that is impossible, there are fewer shadows or none.

    Args:
        public: The domain's public images.
        clients: Number of images of each client of this domain.
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
