"""A paper's claim as a hypothesis, and the rules by which evidence decides one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fdgpriv.artifacts.artifact import SERVER
from fdgpriv.evaluation.comparison import RunComparison
from fdgpriv.federation.transcript import Record
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.run import Claim
from fdgpriv.statistics.measured import Measured
from fdgpriv.statistics.multiplicity import holm, simes

Word = Literal["supported", "refuted", "undecided"]
FALSE_CLAIMS = 0.05  # family-wise, over the claims of one paper


@dataclass(frozen=True)
class Case:
    """The evidence of one run.

    Attributes:
        attacks: Its findings.
        records: What crossed the wire.
        facts: Further figures by name: measured by the evaluator with full knowledge, or logged in training.
        method: The method's name.
        settings: The method's hyperparameters by name.
        other_runs: The other runs of the report with the same target, seed and defense.
        shortfall: Why the training is not the method as its paper means it, by `Method.shortfall`; None if it is.
    """

    attacks: Sequence[AttackFinding]
    records: Sequence[Record]
    facts: Mapping[str, float]
    method: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    other_runs: Sequence[RunComparison] = ()
    shortfall: str | None = None

    def run_with(self, **changed: object) -> RunComparison | None:
        """The other run of this method whose settings differ in exactly these fields, or None."""
        settings = {**self.settings, **changed}
        return next((run for run in self.other_runs if (run.method, run.settings) == (self.method, settings)), None)


@dataclass(frozen=True)
class Decision:
    """What the evidence says, why, and the rows it rests on.

    Attributes:
        p: Simes' p over the tests it rests on, where it rests on any; corrected over the claims of the paper.
        leak: Whether it rests on one of them being a leak.
    """

    verdict: Word
    reason: str
    evidence: tuple[str, ...] = ()
    p: float | None = None
    leak: bool = False

    def undecided(self, reason: str) -> "Decision":
        """The same evidence, which does not decide the claim for this reason."""
        return replace(self, verdict="undecided", reason=reason, leak=False)


Rule = Callable[[Case], Decision]


@dataclass(frozen=True)
class Hypothesis:
    """A claim with its decision rule.

    Attributes:
        id: For example H-S1.
        quote: Verbatim from the paper.
        measurement: What is measured to decide it.
        rule: Decides it from the evidence.
    """

    id: str
    quote: str
    measurement: str
    rule: Rule

    def claim(self, found: Decision) -> Claim:
        """The entry of results.json."""
        return Claim(
            id=self.id,
            quote=self.quote,
            measurement=self.measurement,
            evidence=found.evidence,
            verdict=found.verdict,
            reason=found.reason,
        )


def decided(hypotheses: Sequence[Hypothesis], case: Case) -> list[Decision]:
    """The decision on each claim of a paper; one that rests on a leak must pass Holm's correction over the claims."""
    found = [hypothesis.rule(case) for hypothesis in hypotheses]
    tested = [i for i, one in enumerate(found) if one.p is not None]
    for i, p in zip(tested, holm([one.p for one in found if one.p is not None]), strict=True):
        if found[i].leak and p > FALSE_CLAIMS:
            reason = f"inconclusive: p = {found[i].p:.2g}, {p:.2g} after Holm's correction over the paper's claims"
            found[i] = replace(found[i], verdict="undecided", reason=reason)
    return found


def interval(facts: Mapping[str, float], name: str) -> str:
    """The figure of this name with its interval, if any: 0.62 [0.55, 0.70]."""
    low, high = facts.get(f"{name}_low"), facts.get(f"{name}_high")
    return f"{facts[name]:.2f}" + (f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else "")


def needs(what: str) -> Rule:
    """A rule that is always undecided, as `what` is not available."""
    return lambda case: Decision("undecided", f"not measured: needs {what}")


def no_leak_by(
    *attacks: str,
    image: bool = False,
    leak: Word = "refuted",
    on: Sequence[str] = (),
    by: Sequence[str] = (),
    level: str | None = None,
) -> Rule:
    """Rule for the claim that an artifact leaks nothing: a leak found by one of `attacks` refutes it.

    It is supported only if all of them ran, found no leak, and succeeded on their positive control.

    Args:
        attacks: Names of attacks.
        image: Use the results on single-image artifacts, shared or not.
        leak: Verdict if there is a leak; "supported" for a claim that the artifact is informative.
        on: Artifact kinds to include; none for all.
        by: Adversaries to include; none for all.
        level: Of the artifacts to include, image, client or group; None for all.
    """

    def decide(case: Case) -> Decision:
        rows = rows_of(case, attacks, on, by, level)
        verdicts = [(row, image_verdict(row)) if image else (row, wire_verdict(row)) for row in rows]
        p = together(_p(row, image) for row in rows)
        leaking = [row for row, verdict in verdicts if verdict == "leak"]
        if leaking:
            leaks = tuple(finding_text(row, image) for row in leaking)
            recovered = any(row.recovers for row in leaking)  # a fact, and no test
            reason = "an attack beats every control that lacks the artifact"
            return Decision(leak, reason, leaks, None if recovered else p, leak=True)
        if not verdicts:
            return Decision("undecided", f"not measured: needs {' or '.join(attacks)} on this artifact")
        if missing := _not_asked(case, attacks, on, by):
            return Decision("undecided", f"not measured: needs {' and '.join(missing)} on this artifact, too", p=p)
        unsure = [row for row, verdict in verdicts if verdict != "no_leak_found"]
        if unsure:
            return Decision("undecided", f"inconclusive: {why(unsure[0])}", p=p)
        other: Word = "supported" if leak == "refuted" else "refuted"
        reason = "no leak found at these budgets, by attacks that succeed on their positive control"
        return Decision(other, reason, tuple(finding_text(row, image) for row, _ in verdicts), p)

    return decide


def rows_of(
    case: Case, attacks: Sequence[str], on: Sequence[str] = (), by: Sequence[str] = (), level: str | None = None
) -> list[AttackFinding]:
    """What these attacks found, arguments as of `no_leak_by`."""
    return [
        row
        for row in case.attacks
        if row.attack in attacks
        and not refused(row)
        and (not on or row.kind in on)
        and (not by or row.threat.role in by)
        and level in (None, row.level)
    ]


def _not_asked(case: Case, attacks: Sequence[str], on: Sequence[str], by: Sequence[str]) -> list[str]:
    """Those of `attacks` that the audit left out; one that is not applicable could not have found a leak."""
    listed = {row.attack for row in case.attacks if (not on or row.kind in on) and (not by or row.threat.role in by)}
    return [attack for attack in attacks if attack not in listed]


def together(ps: Iterable[float | None]) -> float | None:
    """Simes' p over those tests that have a p; None where none has."""
    known = [p for p in ps if p is not None]
    return simes(known) if known else None


def why(row: AttackFinding) -> str:
    """The reason of what `wire_verdict` says."""
    return (row.main.why if row.main else row.reason) or "see the attack"


def refused(row: AttackFinding) -> bool:
    """Whether nothing was attacked."""
    return all(one.verdict == "not_applicable" for one in row.leakage.values())


def _p(row: AttackFinding, image: bool) -> float | None:
    """The p of the test that the verdict on this row rests on; None where it rests on none."""
    if row.recovers:
        return None
    if image and row.shared and row.level != "image":
        return row.positive_control.p if row.positive_control else None
    return row.main.p if row.main else None


def wire_verdict(row: AttackFinding) -> str:
    """The verdict on the shared artifact; ``not_shared`` if it was not."""
    if not row.shared:
        return "not_shared"
    return _own_verdict(row)


def _own_verdict(row: AttackFinding) -> str:
    """The verdict in the client scope, or in the domain scope where the attack has no other."""
    return row.main.verdict if row.main else "not_applicable"


def image_verdict(row: AttackFinding) -> str:
    """The verdict on a single-image artifact: the finding's own if it attacks one, otherwise its positive control's."""
    if not row.shared or row.level == "image":
        return _own_verdict(row)
    if row.positive_control is None or row.positive_control.succeeded is None:
        return "inconclusive"
    return "leak" if row.positive_control.succeeded else "inconclusive"


def finding_text(row: AttackFinding, image: bool = False) -> str:
    """Attack, adversary, artifact and figure: membership by client on global_model:group: auc 0.52 [0.45, 0.59]."""
    single = image and row.shared and row.level != "image" and row.positive_control is not None
    value = row.positive_control.value if single and row.positive_control else row.metrics[row.headline]
    on = "single images" if image else row.artifact
    return f"{row.attack} by {row.threat.role} on {on}: {row.headline} {figure(value)}"


def figure(value: Measured) -> str:
    """The figure with its interval, if any: 0.62 [0.55, 0.7]."""
    if value.value is None:
        return "–"
    return f"{value.value:.3g}" + (f" [{value.ci95[0]:.3g}, {value.ci95[1]:.3g}]" if value.ci95 is not None else "")


def difference_text(value: Measured) -> str:
    """A paired difference with its interval and the number of clients."""
    if value.value is None:
        return f"not comparable ({value.reason})"
    low, high = value.ci95 or (0.0, 0.0)
    ends = "" if value.ci95 is None else f" [{_rounded(low):+.3g}, {_rounded(high):+.3g}]"
    return f"{_rounded(value.value):+.3g}{ends} paired over {value.n} clients"


def _rounded(value: float) -> float:
    """0 without a sign where the value is 0 up to rounding."""
    return 0.0 if abs(value) < 1e-12 else value


_MODELS = ("model_state", "model_update")
_FROZEN = {"freeze": ("",), "freeze_backbone": ("backbone.",)}  # by `buffers`, how the names of frozen layers begin
_HEAD = "head."  # a head sent by itself has its tensors' names without this


def statistics_layers(case: Case) -> int:
    """Number of BatchNorm layers whose running statistics, computed from images, clients share with the server.

    Over all rounds; frozen statistics are nobody's.
    """
    frozen = _FROZEN.get(str(case.settings.get("buffers")), ())
    names = {
        name.rpartition(".")[0]
        for record in case.records
        if record.receiver == SERVER
        for name in record.shapes
        if name.endswith("running_mean") and not (record.kind in _MODELS and name.startswith(frozen))
    }
    return len({name.removeprefix(_HEAD) for name in names})


def bytes_per_client_round(case: Case, kinds: Sequence[str]) -> float:
    """Mean bytes of these kinds that one client sends and receives per round."""
    some = [record for record in case.records if record.kind in kinds]
    pairs = {(record.round, record.sender if record.receiver == SERVER else record.receiver) for record in case.records}
    return sum(record.nbytes for record in some) / max(1, len(pairs))
