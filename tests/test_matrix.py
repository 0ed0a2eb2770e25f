"""The matrix: what a cell says in words, which verdict colours it, how seeds are pooled and methods stand side by side."""

from typing import Any

import pytest
from _golden import assert_golden
from _results import HOSTILE, measured, results
from fdgpriv.reports import _advice, _arms
from fdgpriv.reports._bars import LeadBar, in_effects
from fdgpriv.reports._command import AuditCommand
from fdgpriv.reports._effects import Effect, bound_in_words, effect_in_words
from fdgpriv.reports._matrix import matrix, matrix_questions
from fdgpriv.reports._words import artifact_of, attacked_names

from fdgpriv.audit_results import AuditResults
from fdgpriv.results.attack_finding import Units
from fdgpriv.results.finding import Results
from fdgpriv.results.question import Question
from fdgpriv.results.run import MeasuredCost, Remedy, Run
from fdgpriv.results.tally import Tally
from fdgpriv.statistics.grades import GRADES, Grade
from fdgpriv.statistics.measured import Measured


def plain() -> Run:
    """The made-up run without a defense."""
    (run,) = results(defenses=("none",)).runs
    return run


def report_on(*runs: Run) -> Results:
    """These runs in one report."""
    return results().model_copy(update={"runs": runs})


def quiet(question: Question) -> Question:
    """The same question with no leak found."""
    change = {"verdict": "no_leak_found", "p": 0.4, "q": 0.9, "upper_bound": 0.05, "inconclusive_because": None}
    change |= {"grade": None, "grade_interval": None, "planted": 0.9}
    return Question.model_validate({**dict(question), **change, "beyond_doubt": False})


def cells(*runs: Run, adversary: str = "the server") -> dict[str, tuple[str, str]]:
    """Of one adversary's table, verdict and words by heading, of the first row."""
    (table,) = [section.table for section in matrix(runs) if section.title == f"What {adversary} learns"]
    assert table is not None
    return {heading: (cell.kind, cell.detail) for heading, cell in zip(table.headings, table.rows[0], strict=True)}


WORDS: list[tuple[str, dict[str, Any], str]] = [
    ("accuracy", {"secret": "domain", "value": 1.0, "control": 0.344, "units": Units(kind="client", n=15, federated=15)},
     "names the domain of 15 of 15 clients; guessing: 5"),
    ("accuracy", {"secret": "domain", "value": 0.98, "control": 0.33}, "names the domain of 98% of clients; guessing: 33%"),
    ("auc", {"secret": "membership", "value": 0.574, "control": 0.503},
     "tells members from non-members with AUC 0.57 (guessing: 0.50)"),
    ("auc", {"secret": "membership", "value": 0.574, "control": 0.517},
     "tells members from non-members with AUC 0.57 (guessing: 0.50; best control: 0.52)"),
    ("top1", {"secret": "membership", "value": 0.12, "control": 0.01, "choices": 100},
     "picks the right image out of 100 in 12% of line-ups; best control: 1%"),
    ("top1", {"secret": "identity", "value": 1 / 3, "control": 0.09},
     "links 33% of clients to their earlier upload; best control: 9%"),
    ("l1", {"secret": "labels", "value": 0.225, "control": 0.283, "control_name": "uniform"},
     "label shares off by 0.23 in all (equal shares: 0.28)"),
    ("psnr", {"secret": "content", "value": 16.0, "control": 15.3, "lead": 0.734},
     "reconstructions 0.7 dB nearer than the public mean image"),
    ("psnr", {"secret": "content", "value": 12.6, "control": 14.1, "lead": -1.5},
     "reconstructions 1.5 dB farther off than the public mean image"),
    ("relative_error", {"secret": "size", "value": 0.03, "control": 0.2}, "client size off by 3% (prior: 20%)"),
    ("balanced_accuracy", {"secret": "labels", "value": 0.38, "control": 0.15},
     "names an image's class in 38% of cases, balanced (best control: 15%)"),
    ("mse", {"secret": "average_look", "value": 0.0015, "control": 0.002, "lead": 0.0005, "control_name": "domain_mean"},
     "squared error of the average image 25% smaller than that of its domain's mean image"),
    ("r2", {"secret": "content", "value": 0.39, "control": 0.25},
     "explains 39% of where images are light and dark (best control: 25%)"),
    ("max_abs_error", {"secret": "content", "value": 2e-5, "control": 0.08}, "largest error 2e−05 (best control: 0.08)"),
    ("f_score", {"secret": "size", "value": 0.5, "control": 0.25}, "f score 0.5 (best control: 0.25)"),
]  # fmt: skip


@pytest.mark.parametrize(("metric", "given", "said"), WORDS)
def test_each_metric_has_words(metric: str, given: dict[str, Any], said: str) -> None:
    effect = Effect(**{"metric": metric, "control_name": "mean_image", "lead": 0.1, **given})
    assert effect_in_words(effect) == said


@pytest.mark.parametrize(
    ("metric", "given", "said"),
    [
        ("auc", {"upper": 0.05}, "leads above 0.05 AUC are excluded"),
        ("psnr", {"upper": 0.42}, "leads above 0.4 dB are excluded"),
        ("accuracy", {"upper": 0.05}, "leads above 5 points are excluded"),
        ("top1", {"upper": 0.004}, "leads above 0.4 points are excluded"),
        ("new_metric", {"upper": 0.1}, "leads above 0.1 new metric are excluded"),
        ("psnr", {"planted": 0.94, "relevant": 1.0}, "a leak of 1.0 dB, planted, is found in 94% of repeats"),
        ("psnr", {}, ""),
    ],
)
def test_no_leak_found_says_what_is_excluded(metric: str, given: dict[str, Any], said: str) -> None:
    assert bound_in_words(Effect(metric, "content", 0.5, 0.5, "noise", 0.0, **given)) == said


def test_one_method_is_a_table_of_artifacts_by_secrets() -> None:
    sections = matrix([plain()])
    assert [section.title for section in sections] == [
        *(f"What {who} learns" for who in ("the server", "a third party", "an insider")), ""
    ]  # fmt: skip
    counted, unit, simulated = sections[-1].lines
    assert counted.startswith(f"Counted once each: {Tally.of(plain().questions).in_words}. ")
    assert unit == LeadBar.unit
    assert simulated.startswith("Clients that an answer rests on, at most: 24 (12 clients, 12 simulated). ")
    found = cells(plain())
    assert found["What it reads"] == ("text", "of one client, from 71 images")
    assert found["Which domain?"] == ("leak", "Names the domain of 23 of 24 (12 clients, 12 simulated); guessing: 8")
    assert found["Which labels?"] == ("leak", "Explains 41% of what varies (best control: 2%)\nAbout the client itself")
    assert found["Is this image in it?"] == ("inconclusive", "Attack too weak to tell")
    assert found["Who sent it?"][0] == "no_leak_found"
    assert HOSTILE.partition("\u202e")[0] in found["Who sent it?"][1]


def change(run: Run, secret: str, **verdicts: str) -> Run:
    """The run with other verdicts, by scope, for what the server asks of one secret."""

    def changed(question: Question) -> Question:
        word = verdicts.get(question.scope)
        if (question.adversary, question.secret) != ("server", secret) or word is None:
            return question
        because = "too_coarse" if word == "inconclusive" else None
        calm = quiet(question)
        return calm if word == "no_leak_found" else calm.model_copy(
            update={"verdict": word, "inconclusive_because": because}
        )  # fmt: skip

    return run.model_copy(update={"questions": tuple(changed(question) for question in run.questions)})


@pytest.mark.parametrize(
    ("client", "domain", "kind", "said"),
    [
        ("inconclusive", "", "leak", "About its domain only; about the client itself: inconclusive"),
        ("inconclusive", "inconclusive", "inconclusive", "Test too coarse to tell"),
        ("inconclusive", "no_leak_found", "inconclusive", "About the client itself; about its domain only: no leak found"),
        ("no_leak_found", "no_leak_found", "no_leak_found", "About the client and its domain"),
        ("no_leak_found", "not_applicable", "no_leak_found", "About the client itself"),
        ("not_applicable", "not_applicable", "not_applicable", ""),
    ],
)  # fmt: skip
def test_the_worst_scope_colours_a_cell_and_is_named(client: str, domain: str, kind: str, said: str) -> None:
    verdicts = {scope: word for scope, word in (("client", client), ("domain", domain)) if word}
    word, detail = cells(change(plain(), "labels", **verdicts))["Which labels?"]
    assert word == kind
    assert detail.splitlines()[-1:] == ([said] if said else [])


def test_seeds_are_pooled_and_leaks_are_counted() -> None:
    seeds = [plain().model_copy(update={"seed": seed}) for seed in range(3)]
    seeds[1] = change(seeds[1], "domain", domain="no_leak_found")
    kind, detail = cells(*seeds)["Which domain?"]
    assert (kind, detail) == ("leak", "Names the domain of 96% of clients; guessing: 35%\nIn 2 of 3 seeds")
    (answers,) = _arms.arm_answers(seeds)
    assert (answers.tally.leaks, answers.tally.no_leak_found, answers.tally.inconclusive) == (5, 3, 1)
    assert "3 seeds" in _advice.sentence(report_on(*seeds))
    targets = [seeds[0], seeds[2].model_copy(update={"target": "scan"})]
    assert cells(*targets)["Which domain?"][1].endswith("In 2 of 2 runs")


def test_methods_are_columns_and_unasked_cells_are_dashes() -> None:
    one, two = (plain().model_copy(update={"method": name}) for name in ("first", "second"))
    two = two.model_copy(update={"questions": tuple(q for q in two.questions if q.secret != "identity")})
    table = matrix([one, two])[0].table
    assert table is not None
    assert table.headings == ("What it asks", "first", "second")
    by_row = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert by_row["Which domain?"] == ["Moderate leak", "Moderate leak"]
    assert by_row["Who sent it?"] == ["No leak found", "–"]
    both = _arms.arms([one, two.model_copy(update={"defense": "noise"})])
    assert [arm.name for arm in both] == ["first, no defense", "second, noise"]


def test_the_sentence_counts_and_claims_no_more() -> None:
    run = plain()
    calm = run.model_copy(update={"questions": tuple(quiet(q) for q in run.questions)})
    severe = run.model_copy(update={"questions": tuple(graded(q, "severe") for q in run.questions), "defense": "b"})
    nothing = run.model_copy(update={"questions": (), "attacks": ()})
    reports = {
        "one": [run], "no leak": [calm], "two": [run, calm.model_copy(update={"defense": "noise"})], "none": [],
        "three": [run, severe], "equal": [run, run.model_copy(update={"defense": "b"})], "not attacked": [nothing],
        "calm": [calm, calm.model_copy(update={"defense": "b"})],
    }  # fmt: skip
    said = [f"{name}: {_advice.sentence(report_on(*runs))}" for name, runs in reports.items()]
    assert_golden("sentences.txt", "\n".join(said) + "\n")


def graded(question: Question, grade: Grade) -> Question:
    """The same question, a leak of it with this grade."""
    return question.model_copy(update={"grade": grade}) if question.grade else question


REMEDIES = (
    Remedy(defense="masks:partial=true", hides=("model_state",)),
    Remedy(
        defense="noise:epsilon=8",
        proves=("style_statistics",),
        epsilon=8.0,
        delta=1e-5,
        unit="client",
        not_covered=("model_state",),
    ),
)


def test_what_to_do_is_in_order_of_grade_and_said_once() -> None:
    """Against two leaking artifacts: two defenses that apply, one measured with its cost, one that lowers no grade."""
    run = plain()
    models = [
        q.model_copy(update={"artifact": "model_state", "grade": "severe"})
        for q in run.questions
        if q.secret == "domain"
    ]
    bare = run.model_copy(update={"questions": (*run.questions, *models), "remedies": REMEDIES})
    hidden = run.model_copy(update={"defense": "masks:partial=true", "remedies": REMEDIES})
    useless = bare.model_copy(update={"defense": "clip"})
    named = bare.model_copy(update={"method": "other"})
    calm = run.model_copy(update={"questions": tuple(quiet(q) for q in run.questions)})
    reports = {
        "nothing measured": [bare], "one measured": [bare, hidden, useless], "two methods": [bare, named],
        "nothing applies": [run], "no leak": [calm], "not attacked": [run.model_copy(update={"questions": ()})],
    }  # fmt: skip
    said = []
    for name, runs in reports.items():
        steps = _advice.advice(report_on(*runs))
        lines = [
            line for step in steps for line in (step.title, *step.lines) if not line.startswith(("What it", "Accuracy"))
        ]
        assert len(lines) == len(set(lines))
        grades = [GRADES.index(step.grade) for step in steps if step.grade]
        assert grades == sorted(grades, reverse=True)
        said.append(f"{name}:")
        said += [f"  {line}" for s in steps for line in (f"{s.grade}: {s.title}", *s.lines, s.command) if line]
    assert_golden("advice.txt", "\n".join(said) + "\n")


def cost(method: str, defense: str, without: float, under: float) -> MeasuredCost:
    return MeasuredCost(
        method=method, defense=defense, setting="digits, 30 clients", seeds=3, without=without, under=under, chance=0.1
    )


def test_remedies_that_ended_trainings_come_last_and_without_a_command() -> None:
    kept = cost("stablefdg:quiet=true", "noise:epsilon=8", 0.68, 0.71)
    ended = (cost("stablefdg", "noise:epsilon=8", 0.71, 0.14), cost("other", "masks", 0.9, 0.1))
    shared = {"proves": ("style_statistics",), "epsilon": 8.0, "delta": 1e-5}
    loud = Remedy(defense="noise:epsilon=8", **shared, unit="client", costs=ended[:1])
    quiet = Remedy(defense="noise:epsilon=8", settings=("quiet=true",), **shared, unit="image", costs=(kept,))
    masks = Remedy(defense="masks", hides=("style_statistics",), costs=ended[1:])
    audit = report_on(plain().model_copy(update={"remedies": (loud, masks, quiet)}))
    audit = audit.model_copy(update={"command": "python -m fdgpriv.audit --method stablefdg --set rounds=4"})
    first, *others = [step for step in _advice.advice(audit) if step.verdict == "leak"]
    assert first.title == "--set quiet=true --defense noise:epsilon=8"
    assert first.command.endswith("--set rounds=4 quiet=true --defense none noise:epsilon=8")
    assert "An ε of 8 at δ 1e−5, for one image of a client, would be proved for it." in first.lines[0]
    assert first.lines[-1] == (
        "Not measured here; on digits, 30 clients accuracy on the unseen domain 71%, without it 68% (3 trainings); "
        "this measures it, and what it leaves:"
    )
    assert [step.title for step in others] == ["--defense noise:epsilon=8", "--defense masks"]
    assert [step.command for step in others] == ["", ""]
    assert others[0].lines[-1] == (
        "Not measured here; on digits, 30 clients it ended the training: accuracy on the unseen domain 14%, without it 71% "
        "(3 trainings)."
    )
    assert "with other it ended the training" in others[1].lines[-1]


@pytest.mark.parametrize(
    ("preset", "reason", "title", "option"),
    [
        ("quick", "too_coarse", "Run the default preset", "--preset default"),
        ("quick", "weak_attack", "Run the default preset", "--preset default"),
        ("quick", "not_after_correction", "Run the default preset", "--preset default"),
        ("default", "too_coarse", "Test more clients", "--clients 24"),
        ("default", "weak_attack", "Attack harder", "--preset thorough"),
        ("thorough", "weak_attack", "Give the adversary more public images", ""),
        ("quick", "failed", "Mend the attack", ""),
    ],
)
def test_a_longer_preset_is_advised_before_more_clients(preset: str, reason: str, title: str, option: str) -> None:
    open_question = next(q for q in plain().questions if q.verdict == "inconclusive")
    run = plain().model_copy(update={"questions": (open_question.model_copy(update={"inconclusive_because": reason}),)})
    config = {"preset": preset, "setup": {"stablefdg": {"clients": 12}}}
    audit = report_on(run).model_copy(update={"config": config})
    (step,) = _advice.advice(audit)
    assert step.title.startswith(title)
    assert step.command.endswith(option)
    assert bool(step.command) == bool(option)
    text = str(AuditResults.of(audit, None))
    assert ("clients=" in text) == (option == "--clients 24")
    recorded = audit.model_copy(update={"config": {**config, "recording": "ab"}})
    (step,) = _advice.advice(recorded)
    assert "--clients" not in step.command
    text = str(AuditResults.of(recorded, None))
    assert "clients=" not in text
    assert "units_per_domain" not in text
    assert "run_audit" not in text


def test_a_command_keeps_all_options_but_one() -> None:
    command = "python -m fdgpriv.audit --seed 0 1 --defense a 'b c' --set lr=0.1 --defense=d --method x"
    audit = results().model_copy(update={"command": command})
    found = AuditCommand.of(audit).with_values("--defense", ["none", "e f"])
    assert found == "python -m fdgpriv.audit --seed 0 1 --set lr=0.1 --method x --defense none 'e f'"
    for other in (None, "rm -rf x", "'"):
        assert AuditCommand.of(audit.model_copy(update={"command": other})).with_values("--seed", ["1"]) == ""


@pytest.mark.parametrize(
    ("lead", "number", "words"),
    [
        (measured(0.66, 0.12), "3.3×", "lead 3.3 [2.7, 3.9] times the least that matters"),
        (measured(-0.0000000000001, 0.001), "0.0×", "lead 0.00 [−0.01, 0.01] times the least that matters"),
        (measured(2.4, 0.1), "12×", "lead 12.0 [11.5, 12.5] times the least that matters"),
    ],
)
def test_a_bar_is_the_lead_in_effects_that_matter(lead: Measured, number: str, words: str) -> None:
    bar = LeadBar.of(in_effects(lead, 0.2))
    assert bar is not None
    assert (bar.number, bar.words) == (number, words)
    assert [bar.at(value) for value in (-9, -0.5, 0, 1, 4, 99)] == ["0.0", "0.0", "10.0", "30.0", "90.0", "90.0"]
    assert LeadBar.of(None) is None


def test_artifacts_that_a_defense_hides_are_not_seen() -> None:
    open_run = plain()
    shared = {name for row in open_run.artifacts for name in attacked_names(row)}
    hidden = next(artifact_of(q) for q in open_run.questions if q.adversary == "server" and artifact_of(q) in shared)
    questions = tuple(q for q in open_run.questions if artifact_of(q) != hidden)
    rows = tuple(row for row in open_run.artifacts if hidden not in attacked_names(row))
    change = {"defense": "secure_aggregation", "questions": questions, "artifacts": rows}
    index = [cell.artifact for cell in matrix_questions((open_run,)) if cell.adversary == "server"].index(hidden)

    def said(**more: object) -> str:
        found = matrix((open_run, open_run.model_copy(update={**change, **more})))
        (table,) = [section.table for section in found if section.title == "What the server learns"]
        assert table is not None
        return table.rows[index][2].text

    assert said() == "Not seen"
    assert said(artifacts=open_run.artifacts) == "–"  # seen, and nothing asked
    assert said(method="fedavg") == "–"


def test_an_attack_that_a_defense_foils_is_named() -> None:
    run = plain()
    weak = change(run, "domain", client="inconclusive", domain="inconclusive")
    asked = tuple(
        q.model_copy(update={"inconclusive_because": "weak_attack"}) if q.verdict == "inconclusive" else q
        for q in weak.questions
    )
    weak = weak.model_copy(update={"questions": asked})

    def said(*runs: Run) -> str:
        table = matrix(runs)[0].table
        assert table is not None
        (row,) = [row for row in table.rows if row[0].text == "Which domain?"]
        return row[-1].detail.splitlines()[0]

    noised = weak.model_copy(update={"defense": "noise"})
    assert said(run, noised) == "Attack too weak to tell; it leaks without this defense"
    assert said(weak, noised) == "Attack too weak to tell"
    assert said(run.model_copy(update={"defense": "clip"}), noised) == "Attack too weak to tell"
    assert said(run, noised.model_copy(update={"method": "another"})) == "Attack too weak to tell"


def test_shadow_clients_are_counted_by_method_if_they_differ() -> None:
    """Fifteen of thirty, none of sixty, and an attack that does not ask about shadows beside one that does."""

    def with_units(method: str, *units: Units) -> Run:
        one = plain()
        few = [attack.model_copy(update={"units": own}) for attack, own in zip(one.attacks, units, strict=False)]
        return one.model_copy(update={"method": method, "attacks": (*few, *one.attacks[len(few) :])})

    def line(*runs: Run) -> str:
        (section,) = [section for section in matrix(runs) if not section.title]
        return section.lines[-1]

    count = len(plain().attacks)
    half = [Units(kind="client", n=30, federated=15, shadows=15)] * (count - 1) + [
        Units(kind="client", n=15, federated=15)
    ]
    none = [Units(kind="client", n=60, federated=60, shadows=0)] * count
    assert line(with_units("pardon", *half)).startswith(
        "Clients that an answer rests on, at most: 30 (15 clients, 15 simulated). "
    )
    both = line(with_units("pardon", *half), with_units("ccst", *none))
    assert both.startswith(
        "Clients that an answer rests on, at most: pardon: 30 (15 clients, 15 simulated); ccst: none. "
    )
    assert line(with_units("ccst", *none)) == LeadBar.unit


def test_a_shared_measurement_names_the_other_adversaries() -> None:
    run = plain()
    server = next(q for q in run.questions if q.adversary == "server" and q.secret == "domain")
    shared = server.model_copy(update={"also": ("client", "third_party")})
    run = run.model_copy(update={"questions": (shared,)})
    for adversary, others in (
        ("the server", "another client and a third party"),
        ("another client", "the server and a third party"),
    ):
        assert f"Same measurement for {others}" in cells(run, adversary=adversary)["Which domain?"][1]
    (answers,) = _arms.arm_answers([run])
    assert answers.tally.asked == 1
