"""Who attacks, what it sees, and what it holds besides: threat models whose limits are enforced."""

from dataclasses import dataclass
from enum import StrEnum


class Capability(StrEnum):
    """What an adversary may have or do; an attack that uses one it was not granted is stopped."""

    SEES_INDIVIDUAL_ARTIFACT = "sees_individual_artifact"
    SEES_ALL_ROUNDS = "sees_all_rounds"
    KNOWS_ENCODER = "knows_encoder"
    KNOWS_N = "knows_n"
    KNOWS_DOMAIN = "knows_domain"
    KNOWS_DEFENSE = "knows_defense"
    HAS_BN = "has_bn"
    HAS_UPDATES = "has_updates"
    HAS_CANDIDATES = "has_candidates"


class Auxiliary(StrEnum):
    """The data an adversary holds besides the artifact."""

    NONE = "A0 none"
    OTHER_DOMAIN = "A2 public images of the same classes in a domain that no client has"
    OWN_DOMAIN = "A3 public images of the adversary's own domain"
    SAME_DOMAINS = "A3 public images of every source domain, disjoint from the clients'"
    LABELLED_ARTIFACTS = "A1 the artifacts of the other clients, with their domains"
    LEAKED = "A4 a leaked share of each client's own images, with the public images of its domain"


class NotGranted(PermissionError):
    """An attack asked for what its threat model does not grant."""


@dataclass(frozen=True)
class ThreatModel:
    """An adversary.

    Attributes:
        role: Its name on the command line.
        summary: Who that is, in one sentence.
        auxiliary: The data it holds besides.
        capabilities: What it may use.
    """

    role: str
    summary: str
    auxiliary: Auxiliary
    capabilities: frozenset[Capability]

    def require(self, capability: Capability) -> None:
        """Raise NotGranted, naming the capability, where this adversary does not have it."""
        if capability not in self.capabilities:
            held = ", ".join(sorted(self.capabilities)) or "nothing"
            raise NotGranted(f"the threat model {self.role!r} does not grant {capability}; it grants {held}")


_COMMON = frozenset(
    {
        Capability.SEES_INDIVIDUAL_ARTIFACT,
        Capability.KNOWS_ENCODER,
        Capability.KNOWS_DEFENSE,
        Capability.HAS_CANDIDATES,
    }
)
_SERVER = _COMMON | {
    Capability.SEES_ALL_ROUNDS,
    Capability.KNOWS_N,
    Capability.KNOWS_DOMAIN,
    Capability.HAS_BN,
    Capability.HAS_UPDATES,
}

THREATS = {
    threat.role: threat
    for threat in (
        ThreatModel(
            "server",
            "The server, honest but curious: it keeps to the protocol and reads all that it receives.",
            Auxiliary.SAME_DOMAINS,
            _SERVER,
        ),
        ThreatModel(
            "client",
            "A malicious client: it reads what the server passes on to it, and knows its own domain.",
            Auxiliary.OWN_DOMAIN,
            _COMMON,
        ),
        ThreatModel(
            "third_party",
            "An outsider who obtained the artifact and the model of that round, with public images only.",
            Auxiliary.OTHER_DOMAIN,
            _COMMON,
        ),
        ThreatModel(
            "insider",
            "The server, holding in addition a leaked share of each client's images beside their styles.",
            Auxiliary.LEAKED,
            _SERVER,
        ),
    )
}


def threat(role: str) -> ThreatModel:
    """The threat model called `role`; a ValueError lists the known ones."""
    if role not in THREATS:
        raise ValueError(f"want a threat model of {', '.join(THREATS)}; got {role!r}")
    return THREATS[role]
