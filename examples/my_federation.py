"""What an audit of record_my_training.py's recording needs besides: network, clients' images, public images, training."""

from fdgpriv import data
from fdgpriv.federation.partition import populate
from record_my_training import Net, train

__all__ = ["clients", "network", "public", "train"]

network = Net
_digits = data.load("digits").few(200)
_population = populate(_digits, "scan", "single", 6, seed=0, attacked=True)
clients = {
    name: (owned.images, owned.labels, _population.sources[_population.main_domain(name)])
    for name, owned in _population.clients.items()
}
public = {name: (domain.images, domain.labels) for name, domain in _population.auxiliary.items()}
public["scan"] = (_population.target.images, _population.target.labels)
