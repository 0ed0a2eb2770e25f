"""Changes of what attacks score: on the same units where both runs stored scores of the same trials, else from intervals."""

from collections import Counter
from collections.abc import Iterator

from fdgpriv.compare.audits import Audit, other_clients
from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.change import AttackChange, Change
from fdgpriv.results.run import Run
from fdgpriv.statistics.change import difference_of_intervals, p_of_pairs
from fdgpriv.training import Cell
from fdgpriv.verdicts.attack_scores import AttackScores
from fdgpriv.verdicts.paired_scores import PairedScores, difference

Name = tuple[str, str, str, str, int]  # attack, task, role, artifact, and its number among settings of the attack


def attack_changes(before: Audit, was: Run, after: Audit, now: Run) -> dict[Name, AttackChange]:
    """By name, every attack that both runs evaluated on an artifact that crossed the wire.

    Exact recovery is left out: its error is in the unit of the features, which differs between trainings.
    """
    old, new = (dict(named_attacks(run)) for run in (was, now))
    reason = other_clients(before, was, after, now)
    stored = ({}, {}) if reason else (_stored(before, was), _stored(after, now))
    found = {}
    for name, later in new.items():
        earlier = old.get(name)
        if earlier is None or not (_tested(earlier) and _tested(later)) or earlier.headline != later.headline:
            continue
        theirs, mine = (table.get(name[:4]) for table in stored)
        if mine is not None and theirs is not None and PairedScores.of(mine, theirs).reason is None:
            change = _paired(earlier, later, mine, theirs)
        else:
            change = _of_intervals(earlier, later, reason or "no scores of the same clients are stored")
        attack, _, role, artifact, _ = name
        found[name] = AttackChange(
            attack=attack, metric=later.headline, artifact=artifact, adversary=role, change=change
        )
    return found


def named_attacks(run: Run) -> Iterator[tuple[Name, AttackFinding]]:
    """The attacks of a run in order, each with its name."""
    seen: Counter[tuple[str, str, str, str]] = Counter()
    for found in run.attacks:
        key = (found.attack, found.task, found.threat.role, found.artifact)
        yield (*key, seen[key]), found
        seen[key] += 1


def _tested(found: AttackFinding) -> bool:
    return found.shared and found.headline in found.metrics and "recovered" not in found.metrics


def _stored(audit: Audit, run: Run) -> dict[tuple[str, ...], AttackScores]:
    """The stored scores of a run by attack, task, role and artifact; those of several settings of one attack are left out."""
    cell = Cell(run.method, str(run.target), run.seed, run.defense).folder
    scores = [attack for key, attack in audit.scores.items() if key.partition("/")[0] == cell]
    keys = [(attack.attack, attack.task, attack.threat.role, f"{attack.kind}:{attack.level}") for attack in scores]
    return {key: attack for key, attack in zip(keys, scores, strict=True) if keys.count(key) == 1}


def _paired(earlier: AttackFinding, later: AttackFinding, mine: AttackScores, theirs: AttackScores) -> Change:
    by_client = PairedScores.of(mine, theirs).by_client()
    return Change(
        before=earlier.metrics[earlier.headline],
        after=later.metrics[later.headline],
        difference=difference(mine, theirs),
        paired=True,
        basis=f"paired over {len(by_client)} clients",
        p=p_of_pairs(by_client),
    )


def _of_intervals(earlier: AttackFinding, later: AttackFinding, reason: str) -> Change:
    before, after = (one.metrics[one.headline] for one in (earlier, later))
    gap, p = difference_of_intervals(before, after)
    basis = f"two intervals, taken as independent: {reason}"
    return Change(before=before, after=after, difference=gap, paired=False, basis=basis, p=p)
