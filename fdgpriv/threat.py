"""Threat models: role, capabilities and auxiliary data of adversaries, enforced at run time."""

from dataclasses import dataclass
from enum import StrEnum

from fdgpriv.utils.suggestions import did_you_mean


class Capability(StrEnum):
    """Knowledge and access of an adversary; using one that is not granted raises NotGranted."""

    SEES_INDIVIDUAL_ARTIFACT = "sees_individual_artifact"
    SEES_ALL_ROUNDS = "sees_all_rounds"
    SEES_BROADCASTS = "sees_broadcasts"
    KNOWS_ENCODER = "knows_encoder"
    SEES_SAMPLE_COUNTS = "sees_sample_counts"
    KNOWS_DOMAIN = "knows_domain"
    KNOWS_DEFENSE = "knows_defense"
    HAS_BN = "has_bn"
    HAS_UPDATES = "has_updates"
    HAS_CANDIDATES = "has_candidates"

    @property
    def in_words(self) -> str:
        """What an adversary with it knows, sees or has, as a verb phrase."""
        return IN_WORDS[self]


IN_WORDS = {
    Capability.SEES_INDIVIDUAL_ARTIFACT: "sees each client's artifact",
    Capability.SEES_ALL_ROUNDS: "sees every round",
    Capability.SEES_BROADCASTS: "sees what the server sends",
    Capability.SEES_SAMPLE_COUNTS: "sees how many images a client has",
    Capability.KNOWS_ENCODER: "knows the encoder",
    Capability.KNOWS_DOMAIN: "knows each client's domain",
    Capability.KNOWS_DEFENSE: "knows the defense",
    Capability.HAS_BN: "has the model's BatchNorm statistics",
    Capability.HAS_UPDATES: "has clients' model updates",
    Capability.HAS_CANDIDATES: "has images to test for membership",
}


class Auxiliary(StrEnum):
    """Data that an adversary has in addition to the artifact."""

    NONE = "A0 none"
    OTHER_DOMAIN = "A2 public images of the same classes in a domain that no client has"
    OWN_DOMAIN = "A3 public images of the adversary's own domain"
    SAME_DOMAINS = "A3 public images of every source domain, disjoint from the clients'"
    LABELLED_ARTIFACTS = "A1 the artifacts of the other clients, with their domains"
    LEAKED = "A4 a leaked share of each client's own images, with the public images of its domain"


class NotGranted(PermissionError):
    """An attack used a capability that its threat model does not grant."""


@dataclass(frozen=True)
class ThreatModel:
    """An adversary.

    Attributes:
        role: Its name on the command line.
        summary: Description in one sentence.
        auxiliary: Its data in addition to the artifact.
        capabilities: Its granted capabilities.
    """

    role: str
    summary: str
    auxiliary: Auxiliary
    capabilities: frozenset[Capability]

    def require(self, capability: Capability) -> None:
        """Raises NotGranted if this adversary does not have the capability."""
        if capability not in self.capabilities:
            granted = ", ".join(sorted(self.capabilities)) or "nothing"
            raise NotGranted(f"the threat model {self.role!r} does not grant {capability}; it grants {granted}")


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
    Capability.SEES_BROADCASTS,
    Capability.SEES_SAMPLE_COUNTS,
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
            _COMMON | {Capability.SEES_BROADCASTS},
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
        raise ValueError(f"want a threat model of {', '.join(THREATS)}; got {role!r}{did_you_mean(role, THREATS)}")
    return THREATS[role]
