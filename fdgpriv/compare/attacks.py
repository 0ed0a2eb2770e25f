"""Changes of attack scores: on the same units if both runs stored scores of the same trials, else from intervals."""

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

AttackKey = tuple[str, str, str, str, int]  # attack, task, role, artifact, and its number among settings of the attack


def attack_changes(before: Audit, old_run: Run, after: Audit, new_run: Run) -> dict[AttackKey, AttackChange]:
    """Every attack that both runs evaluated on an artifact that crossed the wire.

    Exact recovery is left out: its error is in the unit of the features, which differs between trainings.
    """
    old, new = (dict(keyed_attacks(run)) for run in (old_run, new_run))
    reason = other_clients(before, old_run, after, new_run)
    old_scores, new_scores = ({}, {}) if reason else (_stored_scores(before, old_run), _stored_scores(after, new_run))
    changes = {}
    for key, later in new.items():
        earlier = old.get(key)
        if earlier is None or not (_comparable(earlier) and _comparable(later)) or earlier.headline != later.headline:
            continue
        scores, baseline_scores = new_scores.get(key[:4]), old_scores.get(key[:4])
        if scores is None or baseline_scores is None or PairedScores.of(scores, baseline_scores).reason is not None:
            change = _change_of_intervals(earlier, later, reason or "no scores of the same clients are stored")
        else:
            change = _paired_change(earlier, later, scores, baseline_scores)
        attack, _, role, artifact, _ = key
        changes[key] = AttackChange(
            attack=attack, metric=later.headline, artifact=artifact, adversary=role, change=change
        )
    return changes


def keyed_attacks(run: Run) -> Iterator[tuple[AttackKey, AttackFinding]]:
    """The attacks of a run in order, each with its key."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for attack in run.attacks:
        key = (attack.attack, attack.task, attack.threat.role, attack.artifact)
        yield (*key, counts[key]), attack
        counts[key] += 1


def _comparable(attack: AttackFinding) -> bool:
    return attack.shared and attack.headline in attack.metrics and "recovered" not in attack.metrics


def _stored_scores(audit: Audit, run: Run) -> dict[tuple[str, ...], AttackScores]:
    """The stored scores of a run by attack, task, role and artifact, without attacks that ran with several settings."""
    cell = Cell(run.method, str(run.target), run.seed, run.defense).folder
    scores = [attack for key, attack in audit.scores.items() if key.partition("/")[0] == cell]
    keys = [(attack.attack, attack.task, attack.threat.role, f"{attack.kind}:{attack.level}") for attack in scores]
    return {key: attack for key, attack in zip(keys, scores, strict=True) if keys.count(key) == 1}


def _paired_change(
    earlier: AttackFinding, later: AttackFinding, scores: AttackScores, baseline_scores: AttackScores
) -> Change:
    by_client = PairedScores.of(scores, baseline_scores).by_client()
    return Change(
        before=earlier.metrics[earlier.headline],
        after=later.metrics[later.headline],
        difference=difference(scores, baseline_scores),
        paired=True,
        basis=f"paired over {len(by_client)} clients",
        p=p_of_pairs(by_client),
    )


def _change_of_intervals(earlier: AttackFinding, later: AttackFinding, reason: str) -> Change:
    before, after = (attack.metrics[attack.headline] for attack in (earlier, later))
    gap, p = difference_of_intervals(before, after)
    basis = f"two intervals, taken as independent: {reason}"
    return Change(before=before, after=after, difference=gap, paired=False, basis=basis, p=p)
