"""The matrix of attacks against methods: no cell is blank, and each says the worst that was found, and whose it is."""

from _results import results
from fdgpriv.reports._matrix import matrix

from fdgpriv.results.attack_finding import AttackFinding
from fdgpriv.results.finding import Results, Run


def runs(*changes: dict[str, object]) -> list[Run]:
    """The made-up run, once for each set of changes."""
    (first, *_) = Results.model_validate_json(results(defenses=("none",)).text()).runs
    return [first.model_copy(update=change) for change in changes]


def only(run: Run, verdicts: list[tuple[str, str]]) -> tuple[AttackFinding, ...]:
    """One finding of one attack for each pair of verdicts."""
    (template, *_) = run.attacks
    return tuple(
        template.model_copy(update={"attack": "gan", "verdict": client, "verdict_domain": domain, "reason": "because"})
        for client, domain in verdicts
    )


def test_one_method_needs_no_matrix() -> None:
    assert matrix(runs({})) is None
    table = matrix(runs({"seed": 0}, {"seed": 1}, {"defense": "gaussian"}))  # seeds share a column, defenses do not
    assert table is not None
    assert len(table.heads) == 3


def test_every_attack_meets_every_method() -> None:
    one, two = runs({"method": "a"}, {"method": "b"})
    table = matrix([one, two.model_copy(update={"attacks": two.attacks[:1]})])
    assert table is not None
    assert table.heads == ("Attack", "a", "b")
    assert [row[0].text for row in table.rows] == list(
        dict.fromkeys(finding.attack.replace("_", " ") for finding in one.attacks)
    )
    assert all(cell.text for row in table.rows for cell in row)


def test_a_cell_says_the_worst_word_and_whose_it_is() -> None:
    one, two = runs({"method": "a"}, {"method": "b"})
    mixed = [("no_leak_found", "leak"), ("inconclusive", "no_leak_found"), ("not_applicable", "not_applicable")]
    calm = [("not_applicable", "not_applicable")]
    table = matrix(
        [one.model_copy(update={"attacks": only(one, mixed)}), two.model_copy(update={"attacks": only(two, calm)})]
    )
    assert table is not None
    ((_, first, second),) = table.rows
    assert first.kind == "leak"
    assert first.sub.endswith(", domain only")
    assert (second.kind, second.sub) == ("not_applicable", "because")
