"""Results as flat rows for data frames: by attack, by question, and by run."""

from collections.abc import Sequence

from fdgpriv.results.question import WORST_FIRST, Question
from fdgpriv.results.run import Run
from fdgpriv.results.tally import Tally, shown

FlatRow = dict[str, str | int | float | bool | None]


def by_attack(runs: Sequence[Run]) -> list[FlatRow]:
    """One row for each attack of each run and each scope; an attack that was not evaluated has one without scope."""
    return [
        identity(run)
        | {
            "target_accuracy": run.utility.target_accuracy.value if run.utility else None,
            "attack": attack.attack,
            "threat": attack.threat.role,
            "artifact": attack.artifact,
            "shared": attack.shared,
            "metric": attack.headline,
            "value": figure.value if figure else None,
            "low": figure.ci95[0] if figure and figure.ci95 else None,
            "high": figure.ci95[1] if figure and figure.ci95 else None,
            "n": attack.n,
            "scope": scope,
            "p": test.p if test else None,
            "lead": test.lead.value if test and test.lead else None,
            "marked": test is not None and test.marked,
            "grade": test.grade if test else None,
        }
        for run in runs
        for attack in run.attacks
        for figure in (attack.metrics.get(attack.headline),)
        for scope, test in (attack.leakage.items() or [(None, None)])
    ]


def by_question(runs: Sequence[Run]) -> list[FlatRow]:
    """One row for each question of each run, and for what was sent in clear, with the decisive attack."""
    return [
        identity(run)
        | {
            "adversary": question.adversary,
            "also": ", ".join(question.also),
            "artifact": question.artifact,
            "secret": question.secret,
            "scope": question.scope,
            "verdict": question.verdict,
            "beyond_doubt": question.beyond_doubt,
            "attack": best.attack if best else None,
            "metric": best.metric if best else None,
            "value": best.value.value if best else None,
            "control": best.control if best else None,
            "control_value": best.control_value.value if best else None,
            "lead": question.lead.value if question.lead else None,
            "grade": question.grade,
            "share_of_achievable": question.share_of_achievable,
            "relevant": question.relevant,
            "upper_bound": question.upper_bound,
            "q": question.q,
        }
        for run in runs
        for question in shown(run.questions)
        for best in (question.strongest,)
    ]


def by_run(runs: Sequence[Run]) -> list[FlatRow]:
    """One row for each run, so each defense: its accuracy on the unseen domain, what is proved, and what leaks.

    Of each secret `verdict_SECRET` is the worst verdict, and `leakage_SECRET` the largest lead among questions with that
    verdict: of the strongest attack over its strongest control, in units of the least lead that matters; 0 where it does not
    lead, None where nothing was tested.
    """
    secrets = list(dict.fromkeys(question.secret for run in runs for question in run.questions))
    rows = []
    for run in runs:
        accuracy = run.utility.target_accuracy if run.utility else None
        row = identity(run) | {
            "target_accuracy": accuracy.value if accuracy else None,
            "low": accuracy.ci95[0] if accuracy and accuracy.ci95 else None,
            "high": accuracy.ci95[1] if accuracy and accuracy.ci95 else None,
            "epsilon_proved": run.privacy.epsilon_proved,
            "delta": run.privacy.delta,
            "epsilon_unit": run.privacy.unit,
            "not_covered": ", ".join(run.privacy.not_covered),
            "proof": run.privacy.verdict,
        }
        tally = Tally.of(run.questions)
        row["leak"] = tally.leaks
        for verdict in WORST_FIRST[1:]:
            row[verdict] = getattr(tally, verdict)
        for secret in secrets:
            questions = [question for question in run.questions if question.secret == secret]
            worst = min((question.verdict for question in questions), key=WORST_FIRST.index, default=None)
            leads = (_lead(question) for question in questions if question.verdict == worst)
            largest = max((lead for lead in leads if lead is not None), default=None)
            row |= {f"verdict_{secret}": worst, f"leakage_{secret}": largest}
        rows.append(row)
    return rows


def identity(run: Run) -> FlatRow:
    """The columns that identify the run of a row."""
    return {
        "method": run.method,
        "dataset": run.dataset,
        "target": run.target,
        "seed": run.seed,
        "defense": run.defense,
    }


def _lead(question: Question) -> float | None:
    """The lead of the strongest attack in units of the least lead that matters, at least 0."""
    lead = question.lead.value if question.lead else None
    return None if lead is None or not question.relevant else max(0.0, lead / question.relevant)
