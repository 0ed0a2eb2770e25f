"""Plain English names of verdicts, adversaries, artifacts, secrets and metrics."""

import re
from collections.abc import Collection, Iterable

from fdgpriv.results.question import Question
from fdgpriv.results.run import ArtifactRow, Run
from fdgpriv.statistics.grades import Grade
from fdgpriv.threat import IN_WORDS

VERDICTS = {
    "leak": "Leak",
    "sent_in_clear": "Sent in clear",
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

OUTCOMES = {"worse": "Worse", "better": "Better", "not_shown": "No change shown", "not_tested": "Not tested"}


NOT_ATTACKED = "Nothing was attacked; why not stands under “What was not measured”."

MEANINGS = (
    (
        "leak",
        "An attacker who saw the artifact does clearly better than one who did not: better than every control that needs no "
        "artifact, surely, although many questions were asked. Of all leaks that a report calls, at most 5% are expected to "
        "be false. The grade says how much it gives away, by the point estimate.",
    ),
    (
        "sent_in_clear",
        "What crosses the wire is the secret itself, such as a client's number of images. That is a fact and no question: it "
        "is not tested, has no grade, and is in no count of questions or leaks.",
    ),
    (
        "no_leak_found",
        "The attack works where it must (a leak that was planted is found), and found nothing here; larger leads are excluded "
        "where a bound is given. Not a proof of privacy.",
    ),
    (
        "inconclusive",
        "Undecided: the attack fails even where it must succeed, the test is too coarse, or the evidence does not survive "
        "the correction for asking many questions. It says nothing about safety.",
    ),
    ("not_applicable", "Nothing can be tested here; the reason stands with the evidence."),
)

GRADE_MEANINGS: tuple[tuple[Grade, str], ...] = (
    (
        "severe",
        "The lead matters, and the attack gets at least half-way from the best blind answer to a perfect one; or an artifact "
        "is recovered exactly.",
    ),
    ("moderate", "The lead is at least the least that matters."),
    ("trace", "The lead is real, and smaller than what matters."),
)

BECAUSE = {
    "weak_attack": "attack too weak to tell",
    "failed": "the attack failed",
    "too_coarse": "test too coarse to tell",
    "not_after_correction": "not significant after correction",
}
FOILED = "attack too weak to tell; it leaks without this defense"

SECRETS = {
    "domain": "Which domain?",
    "labels": "Which labels?",
    "size": "How many images?",
    "membership": "Is this image in it?",
    "content": "What do images look like?",
    "average_look": "What do they look like on average?",
    "identity": "Who sent it?",
}

LEARNT = {
    "domain": "its domain",
    "labels": "its labels",
    "size": "its number of images",
    "membership": "whether an image is in it",
    "content": "what its images look like",
    "average_look": "what its images look like on average",
    "identity": "who sent it",
}

IMAGES = {"target": "Target domain", "source": "Source domains, held-out images"}

BOUNDS = {
    "proved": "Proved ε, at most",
    "delta": "at δ",
    "clopper_pearson": "Measured ε, at least (Clopper-Pearson)",
    "gdp": "Measured ε, at least (GDP)",
    "one_run": "Measured ε, at least (one run)",
}

ROLES = {
    "server": "the server",
    "client": "another client",
    "third_party": "a third party",
    "insider": "an insider",
}

LEVELS = {"client": "of one client", "image": "of one image", "group": "of all clients"}

_CONTENTS = {  # kinds of artifact within an artifact of the ledger
    "style_bank": ("style_statistics", "amplitude_spectrum"),
    "client_model": ("model_state",),
}
_ATTACKED_AS = {"model_state:group": "global_model:group"}  # artifacts that attacks know by another name

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
    "mse": "mean squared error",
    "mrr": "mean reciprocal rank",
    "top1": "top-1",
    "top5": "top-5",
    "over_own_colour": "PSNR above its own mean colour's, dB",
    "epsilon_at_least": "epsilon at least (95 %, delta 1e-5)",
}


def verdict_words(verdict: str, grade: Grade | None = None) -> str:
    """A verdict as a heading, a leak with its grade: ``Severe leak``, ``Trace``."""
    return VERDICTS[verdict] if grade is None else "Trace" if grade == "trace" else f"{upper(grade)} leak"


def role(name: str) -> str:
    """A role in running text; a note in brackets stays as it is."""
    base, bracket, note = name.partition(" (")
    return ROLES.get(base, spoken(base)) + bracket + note


def capabilities(names: Collection[str]) -> str:
    """What an adversary knows, sees and has, in running text."""
    return joined([capability.in_words for capability in IN_WORDS if capability in names])


def auxiliary(text: str) -> str:
    """An adversary's data in running text, without the code that it begins with (`A3`)."""
    return re.sub(r"^A\d ", "", text)


def role_order(names: Iterable[str]) -> list[str]:
    """Roles without repeats: those of `ROLES` first, in its order."""
    roles = unique(names)
    return [name for name in ROLES if name in roles] + [name for name in roles if name not in ROLES]


def spoken(name: str) -> str:
    """A name with spaces for underscores."""
    return name.replace("_", " ")


def upper(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def metric(name: str) -> str:
    """A metric as a heading; the name of its network in brackets stays as it is."""
    name, at, layer = name.partition("@")
    base, bracket, rest = name.removeprefix("single_image ").partition("[")
    single = "single image: " if name.startswith("single_image ") else ""
    return single + _METRICS.get(base.lower(), spoken(base)) + bracket + rest + (f" at {layer}" if at else "")


def artifact(name: str) -> str:
    """`style_statistics:client` as `style statistics of one client`."""
    kind, _, level = name.partition(":")
    return f"{spoken(kind)} {LEVELS.get(level, spoken(level))}".rstrip()


def artifact_of(question: Question) -> str:
    """The artifact that a question is about: ``kind:level``, or the kind alone."""
    return f"{question.artifact}:{question.level}" if question.level else question.artifact


def scope(question: Question) -> str:
    """Whether a verdict is about the client or its domain; empty for the secret domain."""
    if question.secret == "domain":
        return ""
    return "about the client itself" if question.scope == "client" else "about its domain only"


def guaranteed(unit: str | None, not_covered: Iterable[str]) -> tuple[str, str]:
    """What a proved epsilon is about, ``for one image of a client``, and what it does not cover; empty if it covers all."""
    about = {"image": "for one image of a client", "client": "for a client with all its images"}
    kinds = [spoken(kind) for kind in not_covered]
    return about.get(
        unit or "", "for the unit that its statement names"
    ), f"not covered: {joined(kinds)}" if kinds else ""


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


def unique(names: Iterable[str]) -> list[str]:
    """`names` without repeats, in order."""
    return list(dict.fromkeys(names))


def attacked_names(row: ArtifactRow) -> set[str]:
    """The names by which attacks refer to the artifacts of a ledger row: kinds, and kinds with the level."""
    kinds = (row.kind, *_CONTENTS.get(row.kind, ()))
    names = {name for kind in kinds for name in (kind, f"{kind}:{row.level}")}
    return names | {_ATTACKED_AS[name] for name in names & _ATTACKED_AS.keys()}
