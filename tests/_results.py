"""A made-up but plausible set of results, with everything a report must survive: nulls, hostile names, every verdict."""

import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from fdgpriv.results.attack_finding import (
    AttackFinding,
    CurvePoint,
    Leakage,
    PositiveControl,
    RoundsPoint,
    Threat,
    Unaware,
    Units,
)
from fdgpriv.results.finding import DatasetNote, Results, Timing
from fdgpriv.results.question import Question, Scope, Secret, Strongest
from fdgpriv.results.run import ArtifactRow, Claim, EpsilonMeasured, ImageCount, ImagesByDomain, Privacy, Run, RunFigure
from fdgpriv.results.utility_finding import RoundUtility, Utility
from fdgpriv.statistics.grades import Grade
from fdgpriv.statistics.measured import Direction, Measured
from fdgpriv.statistics.questions import Verdict

HOSTILE = (
    '"><script>alert(1)</script> & <img src=x onerror=alert(2)> | `x` {{7*7}} https://evil.example/a.js \u202ekcab'
)
AUXILIARY = {
    "server": "A3 public images of every source domain, disjoint from the clients'",
    "third_party": "A2 public images of the same classes in a domain that no client has",
    "client": "A3 public images of the adversary's own domain",
    "insider": "A4 a leaked share of each client's own images, with the public images of its domain",
}


def measured(value: float, half: float, n: int = 24, direction: Direction = "higher_leaks") -> Measured:
    """A figure with a symmetric interval."""
    return Measured(value=value, ci95=(round(value - half, 6), round(value + half, 6)), n=n, direction=direction)


def missing(reason: str, direction: Direction = "higher_leaks") -> Measured:
    """A figure that could not be measured."""
    return Measured(value=None, n=0, direction=direction, reason=reason)


def png(folder: Path, name: str, side: int = 8) -> str:
    """Writes a small grey PNG and returns its name."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(255 * x // side for x in range(side)) for _ in range(side))
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    path.write_bytes(head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return name


def ledger() -> tuple[ArtifactRow, ...]:
    """What StableFDG sends, with one hostile level."""
    style = {"kind": "style_statistics", "level": "client", "shape": "mean (64,), std (64,), var (64,), var (64,)"}
    state = {"kind": "model_state", "shape": "122 tensors", "dtype": "float32, int64"}
    both = ("server", "insider", "third_party")
    return (
        ArtifactRow(**style, verb="style", **{"from": "client"}, to="server", per_client_per_round_bytes=1024, dtype="float32",
                    times=60, samples_behind=71, visible_to=("server", "insider")),
        ArtifactRow(**style, verb="fit", **{"from": "server"}, to="client", via="server", per_client_per_round_bytes=1024,
                    dtype="float32", times=60, samples_behind=71, visible_to=("server", "client", "insider")),
        ArtifactRow(**state, level="group", verb="fit", **{"from": "server"}, to="client", per_client_per_round_bytes=2_798_132,
                    times=60, samples_behind=None, visible_to=("server", "client", *both[1:])),
        ArtifactRow(**state, level=HOSTILE, verb="fit", **{"from": "client"}, to="server", per_client_per_round_bytes=2_798_132,
                    times=60, samples_behind=71, visible_to=("server", "insider")),
    )  # fmt: skip


def line(
    p: float | None,
    value: float | None = 0.4,
    lead: float = 0.5,
    verdict: Verdict | None = None,
    relevant: float = 0.2,
    why: str | None = None,
) -> Leakage:
    """One scope's test over 24 units; without a verdict, a leak where p <= 0.025 and no leak found elsewhere."""
    verdict = verdict or ("leak" if p is not None and p <= 0.025 else "no_leak_found")
    missing_why = (
        "the attack fails on its positive control too" if verdict in ("inconclusive", "not_applicable") else None
    )
    return Leakage(
        value=value, ci95=None if value is None else (value - 0.1, value + 0.1), p=p, control="mean_image",
        lead=measured(lead, 0.05), resolution=0.15, upper_bound=lead + 0.05, relevant=relevant, planted=0.9,
        against=("mean_image", "noise", "other_client", "random_style"), marked=verdict == "leak", verdict=verdict,
        why=why or missing_why, reason="the upper bound is not above the strongest control" if value is None else None,
    )  # fmt: skip


def scopes(client: Verdict, domain: Verdict, why: str | None = None, **given: float) -> dict[str, Leakage]:
    """Both scopes' tests with these verdicts; a scope that is not applicable is left out."""
    both: dict[str, Verdict] = {"client": client, "domain": domain}
    ps = {"leak": 0.0004, "no_leak_found": 0.41, "inconclusive": 0.21}
    leads = {"leak": 0.6, "no_leak_found": 0.01, "inconclusive": 0.12}
    return {
        scope: line(ps[word], None if word == "no_leak_found" else 0.44, leads[word], word, why=why, **given)
        for scope, word in both.items()
        if word != "not_applicable"
    }


def reconstruction(
    role: str, psnr: float, p: float, verdict: Verdict, shared: bool, noised: bool = False
) -> AttackFinding:
    """A `gan` finding with controls, bounds, a positive control and a curve."""
    level = "client" if shared else "image"
    control = {"mean_image": 13.47, "noise": 7.91, "random_style": 12.74, "other_client": 13.21, "unconditional": 10.9}
    if verdict == "leak":
        control["other_client"] = psnr - 2.1
    controls = {
        name: {"psnr": measured(value, 0.31), "ssim": measured(value / 40, 0.02), "lpips[digits-extractor-1]":
               measured(6 / value, 0.03, direction="lower_leaks")}
        for name, value in control.items()
    }  # fmt: skip
    bests = {"nearest_own": 17.9, "autoencoder": 27.4, "single_image": 20.2}
    curve = tuple(
        CurvePoint(images=images, units=24, value=measured(value, 0.5), controls={"mean_image": measured(13.4, 0.2),
                   "other_client": measured(11.4 + 0.35 * i, 0.3), "random_style": measured(10.9 + 0.3 * i, 0.3)})
        for i, (images, value) in enumerate(((1, 20.2), (2, 15.3), (5, 13.9), (20, 13.4), (None, 13.3)))
    )  # fmt: skip
    tests = scopes(verdict, verdict, relevant=1.0)
    lead = psnr - 13.47 if verdict == "leak" else tests["client"].lead.value or 0.0 if tests["client"].lead else 0.0
    client = line(p, tests["client"].value, lead, verdict, 1.0)
    return AttackFinding(
        attack="gan", task="images", secret="content", artifact=f"style_statistics:{level}", shared=shared,
        threat=Threat(role=role, auxiliary=AUXILIARY[role], capabilities=("sees_individual_artifact", "knows_encoder")),
        n=240, headline="psnr",
        metrics={"psnr": measured(psnr, 0.42), "ssim": measured(0.41, 0.03), "lpips[digits-extractor-1]":
                 measured(0.33, 0.02, direction="lower_leaks"), "fid[digits-extractor-1]":
                 missing("240 images; FID needs 2,048", "neutral"),
                 "kid[digits-extractor-1]": measured(0.081, 0.012, 240, "neutral")},
        controls=controls,
        upper_bounds={name: {"psnr": measured(value, 0.6)} for name, value in bests.items()},
        positive_control=PositiveControl(value=measured(20.2, 0.6), controls={"mean_image": measured(13.5, 0.2)}, p=0.0004,
                                         lead=6.7, succeeded=True),
        curve=() if noised else curve, units=Units(kind="client", n=24, federated=12, shadows=12),
        trust={"all": 0.5}, leakage={"client": client, "domain": tests["domain"]},
        figures=(f"figures/gan_{role}_{level}{'_noised' if noised else ''}.png",),
    )  # fmt: skip


ASKS: dict[str, tuple[str, Secret]] = {  # the task and the secret of each attack that is made up here
    "domain_inference": ("domain_label", "domain"),
    "label_histogram": ("label_shares", "labels"),
    "class_probe": ("class_label", "labels"),
    "linkage": ("linked_client", "identity"),
    "client_size": ("size_of_client", "size"),
    "gan": ("images", "content"),
}


def inference(
    name: str, headline: str, value: float, chance: float, verdict: Verdict, domain: Verdict, **given: object
) -> AttackFinding:
    """A finding of the server on client styles; `verdict` is of the client scope; a `reason` is that of its verdicts."""
    task, secret = ASKS.get(name, ("members", "membership"))
    why = str(given["reason"]) if given.get("reason") else None
    settings: dict[str, object] = {
        "task": task, "secret": secret, "artifact": "style_statistics:client", "shared": True, "n": 24,
        "threat": Threat(role="server", auxiliary=AUXILIARY["server"], capabilities=("sees_individual_artifact",)),
        "units": Units(kind="client", n=24, federated=12, shadows=12),
        "apart": {"federated": measured(0.71, 0.1, 12), "shadows": measured(0.69, 0.1, 12)},
        "controls": {name: {headline: measured(chance + more, 0.05)}
                     for name, more in (("mean_image", 0.02), ("noise", 0.0), ("other_client", 0.01))},
        "chance": Measured(value=chance, direction="higher_leaks"),
        "positive_control": PositiveControl(value=measured(0.85, 0.06), p=0.0004, lead=0.5, succeeded=True),
        "leakage": scopes(verdict, domain, why),
    }  # fmt: skip
    metrics = {headline: measured(value, 0.07), "top-5": measured(min(1.0, value + 0.1), 0.05)}
    return AttackFinding.model_validate({**settings, "attack": name, "headline": headline, "metrics": metrics, **given})


def question(found: AttackFinding, at: int, scope: Scope) -> Question:
    """What one attack, the run's `at`-th, says of its question in one scope."""
    test = found.leakage[scope]
    assert test.p is not None
    name = test.control if test.control in found.controls else next(iter(found.controls))
    open_ = test.verdict == "inconclusive"
    best = Strongest(attack=found.attack, metric=found.headline, value=found.metrics[found.headline], control=name,
                     control_value=found.controls[name][found.headline])  # fmt: skip
    size: Grade | None = "moderate" if test.verdict == "leak" else None
    return Question(
        artifact=found.kind, level=found.level, adversary=found.threat.role, secret=found.secret, scope=scope,
        verdict=test.verdict, grade=size, grade_interval=size and (size, size), lead=test.lead, planted=test.planted,
        share_of_achievable=0.3, strongest=best, p=test.p, q=min(1.0, 4 * test.p), p_holm=min(1.0, 9 * test.p),
        beyond_doubt=test.verdict == "leak" and 9 * test.p <= 0.025, resolution=test.resolution,
        upper_bound=test.upper_bound, relevant=test.relevant, inconclusive_because="weak_attack" if open_ else None,
        reason=test.why or "beats every control or none", attacks=(at,),
    )  # fmt: skip


def questions(found: Sequence[AttackFinding]) -> tuple[Question, ...]:
    """One for each attack on what crossed the wire and each of its scopes."""
    names: tuple[Scope, ...] = ("client", "domain")
    asked = [(one, at, scope) for at, one in enumerate(found) if one.shared for scope in names if scope in one.leakage]
    return tuple(question(*one) for one in asked)


def over_rounds() -> tuple[RoundsPoint, ...]:
    """One round and two of whole clients, the two tested."""
    return (
        RoundsPoint(rounds=1, images=None, units=24, value=measured(0.412, 0.05), controls={"noise": measured(0.011, 0.05)}),
        RoundsPoint(rounds=2, images=None, units=24, value=measured(0.467, 0.05), rise=measured(0.055, 0.021), p_rise=0.0004,
                    verdict="leak", p=0.0036, reason="beats every control"),
    )  # fmt: skip


def attacks(noised: bool) -> tuple[AttackFinding, ...]:
    """Every verdict once at least; with noise on the styles fewer of them are leaks."""
    nothing = "the method shares no amplitude spectrum"
    refused = AttackFinding(
        attack="amplitude", task="unplaced_images", secret="content", artifact="amplitude_spectrum:image", shared=False, n=0,
        headline="psnr", threat=Threat(role="server", auxiliary="A0 none"), reason=nothing,
    )  # fmt: skip
    failing = PositiveControl(value=measured(0.3, 0.2), p=0.06, succeeded=False)
    weak = "the positive control fails too: at least 60 units would be needed"
    domain: Verdict = "no_leak_found" if noised else "leak"
    return (
        reconstruction("third_party", 13.4, 0.31, "no_leak_found", True, noised),
        reconstruction("insider", 15.9 if not noised else 13.5, 0.29 if noised else 0.0006, domain, True, noised),
        reconstruction("server", 20.2 if not noised else 14.9, 0.0004, "leak", False, noised),
        inference("identification", "top1", 0.29, 0.02, "inconclusive", "not_applicable", positive_control=failing,
                  reason=weak),
        inference("domain_inference", "accuracy", 0.36 if noised else 0.96, 0.33, "not_applicable", domain),
        inference("label_histogram", "r2", 0.41, 0.0, "leak", "leak", rounds=over_rounds()),
        inference("class_probe", "balanced_accuracy", 0.38, 0.1, "leak", "leak",
                  artifact="style_statistics:image", shared=False),
        inference("linkage", HOSTILE, 0.1, 0.08, "no_leak_found", "not_applicable"),
        refused,
    )  # fmt: skip


def run(defense: str, seed: int = 0) -> Run:
    """One run of StableFDG on the digits."""
    noised = defense != "none"
    lost = 0.06 if noised else 0.0
    rounds = [
        RoundUtility(
            round=r,
            source_accuracy=0.96 - 0.8 * math.exp(-0.9 * r) - lost,
            target_accuracy=0.71 - 0.58 * math.exp(-0.7 * r) - lost,
        )
        for r in range(5)
    ]
    if noised:
        rounds[2] = RoundUtility(round=2, source_accuracy=0.4, target_accuracy=None, reason="loss was NaN")
    guarantee = (
        "(4, 1e-05) for one image, replace-one, over the 5 rounds in which the style is sent; model states are not."
    )
    return Run(
        method="stablefdg", dataset="digits", target="outline", seed=seed, defense=defense,
        images=ImagesByDomain(train=1215, held_out=135, public=396, shadow=54, unused=12, domains={
            name: ImageCount(train=405, held_out=45, public=132, shadow=18, unused=4) for name in ("scan", "blend", "type")}),
        utility=Utility(source_accuracy=measured(0.947 - lost + 0.004 * seed, 0.013, 331, "higher_better"),
                        target_accuracy=measured(0.672 - lost + 0.006 * seed, 0.031, 899, "higher_better"),
                        calibration_error=missing("fewer than 15 images in a bin", "lower_better"), rounds=tuple(rounds)),
        artifacts=ledger(), attacks=attacks(noised), questions=questions(attacks(noised)),
        privacy=Privacy(epsilon_proved=4.0, delta=1e-5, statement=guarantee, verdict="not_measured", unit="image",
                        not_covered=("model_state",)) if noised else
        Privacy(epsilon_proved=None, delta=None, statement="No defense, no finite epsilon.", verdict="no_guarantee"),
        claims=(
            Claim(id="H-S1", quote="label information is not contained in the style statistics, resolving privacy issues",
                  measurement="balanced accuracy of a probe on single-image layer1 styles", verdict="refuted",
                  evidence=("class_probe, balanced_accuracy 0.38 [0.31, 0.45]",), reason="above chance on held-out clients"),
            Claim(id="H-S4", quote=HOSTILE, measurement="style membership", verdict="undecided", reason="not measured"),
            Claim(id="H-S5", kind="design", quote="sent in each round", measurement="membership by rounds", verdict=None,
                  reason="a statement of design"),
        ),
        figures=(RunFigure(file="figures/adain.png", caption=f"AdaIN to the style of {HOSTILE}"),
                 RunFigure(file="figures/gone.png", caption="A figure that is not there")),
        not_measured=("membership: no attack of that family in this version", f"class {HOSTILE}"),
    )  # fmt: skip


def protected(
    defense: str,
    accuracy: Sequence[float],
    leads: dict[str, float | None],
    epsilon: float | None = None,
    unaware: float | None = None,
    half: float = 0.03,
) -> tuple[Run, ...]:
    """Runs under one defense, of which only accuracy, leads and epsilon matter.

    Args:
        defense: Its specification.
        accuracy: On the target domain, of each seed, with this `half` of an interval.
        leads: By secret, the lead of domain inference in effects that matter (one is 20 points); None: not applicable.
        epsilon: Proved.
        unaware: The accuracy of an attacker that does not know the defense.
        half: Of the accuracies' intervals.
    """
    base = run("none")
    at, found = next((i, a) for i, a in enumerate(base.attacks) if a.attack == "domain_inference")
    whole = next(q for q in base.questions if q.secret == "domain")
    assert whole.strongest is not None
    controls = {"noise": measured(0.3, 0.05), "mean_image": measured(0.33, 0.05)}
    ignorant = (
        None
        if unaware is None
        else Unaware(value=measured(unaware, 0.1), controls=controls, difference=measured(0.1, 0.1))
    )
    asked = []
    for secret, lead in leads.items():
        verdict: Verdict = "not_applicable" if lead is None else "leak" if lead >= 1 else "no_leak_found"
        effect = measured(0.33 + 0.2 * (lead or 0.0), 0.05)
        one = whole.strongest.model_copy(update={"value": effect})
        size, amount = "moderate" if verdict == "leak" else None, None if lead is None else measured(0.2 * lead, 0.04)
        asked.append(
            whole.model_copy(
                update={"secret": secret, "verdict": verdict, "strongest": None if lead is None else one, "relevant": 0.2,
                        "beyond_doubt": False, "upper_bound": 0.05, "lead": amount,
                        "grade": size, "grade_interval": size and (size, size)}
            )
        )  # fmt: skip
    attacks = list(base.attacks)
    attacks[at] = found.model_copy(update={"unaware": ignorant})
    proved = Privacy(epsilon_proved=epsilon, delta=1e-5, statement="one image", verdict="consistent", unit="image",
                     epsilon_measured=EpsilonMeasured(clopper_pearson=0.4, gdp=0.7)) if epsilon else base.privacy  # fmt: skip
    assert base.utility is not None
    return tuple(
        base.model_copy(
            update={
                "defense": defense,
                "seed": seed,
                "questions": tuple(asked),
                "attacks": tuple(attacks),
                "privacy": proved,
                "utility": base.utility.model_copy(
                    update={"target_accuracy": measured(value, half, 899, "higher_better")}
                ),
            }
        )
        for seed, value in enumerate(accuracy)
    )


def results(
    folder: Path | None = None, seeds: int = 1, defenses: tuple[str, ...] = ("none", "gaussian:epsilon=4,delta=1e-05")
) -> Results:
    """The whole file; with a folder, its figures are drawn there."""
    found = Results(
        fdgpriv="0.1.0",
        command="python -m fdgpriv.audit --method stablefdg --defense none gaussian:epsilon=4,delta=1e-05",
        config={"method": ["stablefdg"], "preset": "default", "rounds": 5, "classes": ["0", HOSTILE], "target": None},
        environment={"python": "3.11.2", "torch": "2.11.0+cpu", "cores": 2, "device": "cpu"},
        timing=Timing(total_s=142.318, train_s=71.4, attack_s=64.0, peak_rss_mb=1210.5),
        dataset=DatasetNote(
            name="digits",
            about="Real handwritten digits (1,797 scans) and rendered type, as four domains of 32x32 RGB images.",
            limits="Small, centred, no persons: figures on it say how an attack behaves, not how much a photograph leaks.",
        ),
        runs=tuple(run(defense, seed) for defense in defenses for seed in range(seeds)),
    )
    if folder is not None:
        for entry in found.runs:
            for name in (*(f for a in entry.attacks for f in a.figures), "figures/adain.png"):
                png(folder, name)
    return found
