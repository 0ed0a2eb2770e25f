"""The words of a report: what a verdict, a role, an attack and a metric are called in plain English."""

from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.finding import ArtifactRow, Run

VERDICTS = {
    "leak": "Leak",
    "no_leak_found": "No leak found",
    "inconclusive": "Inconclusive",
    "not_applicable": "Not applicable",
    "not_attacked": "Not attacked",
    "supported": "Supported",
    "refuted": "Refuted",
    "undecided": "Undecided",
    "consistent": "Consistent with the proof",
    "violation": "Violation",
    "saturated": "Saturated",
    "no_guarantee": "No guarantee",
    "not_measured": "Proved, not measured",
}

NOT_ATTACKED = "Nothing was attacked; why not stands under “What was not measured”."

MEANINGS = (
    ("leak", "The attack beats every control that the adversary could have used instead (corrected p at most 0.025)."),
    (
        "no_leak_found",
        "It does not, and the same attack with the same budget succeeds where it must. No proof of privacy.",
    ),
    (
        "inconclusive",
        "Undecided: the attack fails even where it must succeed, or the evidence does not survive correction.",
    ),
    ("not_applicable", "The attack has nothing to read here; the reason stands beside it."),
)

ROLES = {
    "server": "the server",
    "client": "another client",
    "third_party": "a third party",
    "insider": "an insider",
}

_HOLDS = {
    "style_bank": ("style_statistics", "amplitude_spectrum"),
    "client_model": ("model_state",),
}  # by ledger's kind
_ALSO_CALLED = {"model_state:group": "global_model:group"}  # what attacks on an artifact of the ledger call it

_LEARNS = {
    "gan": "what private images look like",
    "style_inversion": "what private images look like",
    "deep_inversion": "what private images look like",
    "gradient_inversion": "what private images look like",
    "amplitude": "what private images look like",
    "latent_inversion": "the latents of private images",
    "identification": "which image was used",
    "membership": "whether an image was trained on",
    "style_membership": "whether an image is in the statistic",
    "domain_inference": "the client's domain",
    "label_histogram": "the client's label distribution",
    "class_probe": "the class of an image",
    "layout_probe": "where an image is light and where dark",
    "client_size": "how many samples the client has",
    "linkage": "which client it is, over rounds",
    "exact_recovery": "another party's artifact, exactly",
}

_METRICS = {
    "psnr": "PSNR, dB",
    "ssim": "SSIM",
    "lpips": "LPIPS",
    "fid": "FID",
    "kid": "KID",
    "is": "Inception score",
    "auc": "AUC",
    "r2": "R²",
    "l1": "L1 error",
    "mrr": "mean reciprocal rank",
    "top1": "top-1",
    "top5": "top-5",
}


def learns(finding: AttackFinding) -> str:
    """What the adversary learns: about a client where the client line leaks, else about its domain at most."""
    if finding.verdict != "leak" and finding.verdict_domain == "leak" and finding.attack != "domain_inference":
        if finding.family == "reconstruction":
            return "what images of the client's domain look like"
        return f"something about the client's domain (by {spoken(finding.attack)})"
    return _LEARNS.get(finding.attack, f"what the attack {spoken(finding.attack)} reads")


def role(name: str) -> str:
    """A role in running text; what a ledger adds in brackets stays."""
    base, bracket, note = name.partition(" (")
    return ROLES.get(base, spoken(base)) + bracket + note


def sight(row: ArtifactRow, name: str) -> str | None:
    """How this role comes to see the artifact: `sees it`, with the ledger's note; None where it does not.

    An insider is the server with more in hand, so it sees what the server sees.
    """
    for entry in row.visible_to:
        base, bracket, note = entry.partition(" (")
        if name == base or (name == "insider" and base == "server"):
            return f"sees it{bracket}{note}"
    return None


def spoken(name: str) -> str:
    """A name of ours, without underscores."""
    return name.replace("_", " ")


def metric(name: str) -> str:
    """A metric as a heading; the extractor named in brackets stays."""
    name, at, layer = name.partition("@")
    base, bracket, rest = name.removeprefix("single_image ").partition("[")
    single = "single image: " if name.startswith("single_image ") else ""
    return single + _METRICS.get(base.lower(), spoken(base)) + bracket + rest + (f" at {layer}" if at else "")


def artifact(finding: AttackFinding) -> str:
    """What was read, with its level in words: `style statistics (client)`."""
    return spoken(finding.kind) + (f" ({spoken(finding.level)})" if finding.level else "")


def defense(name: str) -> str:
    """A defense in running text."""
    return "no defense" if name == "none" else name


def title(run: Run) -> str:
    """A run in one line."""
    target = f", target {run.target}" if run.target is not None else ""
    return f"{run.method} on {run.dataset}{target}, {defense(run.defense)}, seed {run.seed}"


def joined(names: list[str], last: str = "and") -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}" if names else ""


def unique(names: list[str]) -> list[str]:
    """`names` without repeats, in order."""
    return list(dict.fromkeys(names))


def called(row: ArtifactRow) -> set[str]:
    """What attacks call the artifacts of this row of the ledger: kinds, and kinds with the level."""
    kinds = (row.kind, *_HOLDS.get(row.kind, ()))
    names = {name for kind in kinds for name in (kind, f"{kind}:{row.level}")}
    return names | {_ALSO_CALLED[name] for name in names & _ALSO_CALLED.keys()}
