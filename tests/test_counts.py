"""One count of questions in headline, terminal, printed results, matrices and data frames; what is sent in clear is apart."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from _results import results as made_up_results
from conftest import audits_of, shortened
from fdgpriv.reports._content import report_content
from fdgpriv.reports._effects import clients_in_words
from fdgpriv.reports.html import Html
from fdgpriv.reports.markdown import Markdown
from fdgpriv.reports.tex import Tex

import fdgpriv
from fdgpriv.artifacts.statistics import SampleCount
from fdgpriv.audit_results import AuditResults
from fdgpriv.data.dataset import Dataset
from fdgpriv.results.attack_finding import Units
from fdgpriv.results.finding import Results
from fdgpriv.results.leak_gate import leak_sentence
from fdgpriv.results.score_tables import ScoreTables
from fdgpriv.results.summary import verdicts
from fdgpriv.results.tally import Tally
from fdgpriv.verdicts.attack_scores import from_tables

NOWHERE = Path("nowhere")


@pytest.fixture(scope="module")
def counted(digits: Dataset) -> AuditResults:
    """A quick audit of a method whose clients send their number of images; clients' sizes differ."""
    with audits_of(shortened(digits, 64)):
        return fdgpriv.run_audit(
            "fedavg",
            preset="quick",
            clients=6,
            partition="dirichlet:0.7",
            settings={"rounds": "1"},
            attacks=["client_size", "domain_inference"],
            threats=["server"],
        )


def counts_everywhere(audit: AuditResults) -> list[int]:
    """The number of questions as every place shows it."""
    headline = re.search(r"of ([\d,]+) questions?", report_content(audit).sentence)
    assert headline is not None
    shown = (verdicts(audit), str(audit), audit._repr_html_(), *_matrix_lines(audit))
    numbers = [re.search(r"(\d+) questions?: ", text) for text in shown]
    assert all(numbers)
    rows = audit.matrix()
    in_matrix = int((rows["verdict"] != "sent_in_clear").sum())
    return [int(headline[1]), *(int(number[1]) for number in numbers if number), in_matrix]


def _matrix_lines(audit: Results) -> list[str]:
    return [line for entry in report_content(audit).matrix for line in entry.lines if line.startswith("Counted once")]


def test_every_place_counts_the_same_questions(counted: AuditResults) -> None:
    for audit in (counted, AuditResults.of(made_up_results(defenses=("none",)), None)):
        (run,) = audit.runs
        by_hand = [q for q in run.questions if q.verdict in ("leak", "no_leak_found", "inconclusive")]
        counts = counts_everywhere(audit)
        assert len(counts) == 6
        assert set(counts) == {len(by_hand)}
        assert int((audit.matrix()["verdict"] == "leak").sum()) == sum(q.verdict == "leak" for q in by_hand)


def test_a_gate_counts_them_too() -> None:
    audit = made_up_results(defenses=("none",))
    sentence = leak_sentence("leak", audit, "runs/x")
    assert sentence is not None
    assert f"of {Tally.of(audit.runs[0].questions).asked} questions leak" in sentence


def test_a_count_sent_in_clear_is_a_fact_and_no_test(counted: AuditResults) -> None:
    (run,) = counted.runs
    (fact,) = [question for question in run.questions if question.verdict == "sent_in_clear"]
    assert (fact.artifact, fact.secret) == (SampleCount.kind, "size")
    assert (fact.p, fact.q, fact.p_holm, fact.grade, fact.lead, fact.strongest) == (None,) * 6
    family = [question for question in run.questions if question.p is not None]
    assert fact not in family
    by_p = sorted(question.p for question in family if question.p is not None)
    smallest = min(family, key=lambda question: question.p or 0.0)
    assert smallest.p_holm == pytest.approx(min(1.0, len(family) * by_p[0]))  # Holm over the family without the fact
    assert Tally.of(run.questions).sent_in_clear == 1
    assert "sent in clear, so not tested: its number of images" in report_content(counted).sentence
    assert "; 1 sent in clear" in verdicts(counted)
    for report in (Html, Markdown):
        assert "Sent in clear" in report().render(counted, NOWHERE)
    assert "in clear" in Tex().render(counted, NOWHERE)
    alone = counted.model_copy(update={"runs": (run.model_copy(update={"questions": (fact,)}),)})
    assert leak_sentence("leak", alone, "x") is None
    content = report_content(alone)
    assert content.verdict == "sent_in_clear"
    assert content.sentence.endswith(
        ": nothing else was put to the test; sent in clear, so not tested: its number of images."
    )
    assert content.advice == ()


def test_what_a_defense_changes_is_tested_like_any_other(counted: AuditResults) -> None:
    """Readings that are not exact in every unit are no fact, whatever the kind says of itself."""
    assert counted.folder is not None
    scores = from_tables(ScoreTables.load(counted.folder))
    (read,) = [attack for attack in scores.values() if attack.kind == SampleCount.kind]
    assert read.sent_in_clear
    inexact = {**read.by_size[None].headline, "attack": [0.01, *read.by_size[None].headline["attack"][1:]]}
    changed = {
        condition: replace(values, headline=inexact) if values is read.by_size[None] else values
        for condition, values in read.conditions.items()
    }
    nearly = {
        condition: replace(values, headline={**inexact, "attack": [2e-5] * len(inexact["attack"])})
        for condition, values in read.conditions.items()
    }
    assert read.model_copy(update={"conditions": nearly}).sent_in_clear  # an attack that has learned to read
    for other in ({"conditions": changed}, {"shared": False}):
        assert not read.model_copy(update=other).sent_in_clear


def test_simulated_clients_stand_apart(counted: AuditResults) -> None:
    assert clients_in_words(Units(kind="client", n=30, federated=12, shadows=18)) == "30 (12 clients, 18 simulated)"
    assert clients_in_words(Units(kind="client", n=31, federated=30, shadows=1)) == "31 (30 clients, 1 simulated)"
    assert clients_in_words(Units(kind="client", n=30, federated=30, shadows=0)) == "30 clients"
    for attack in counted.runs[0].attacks:  # a simulated client beside all others makes no seventh
        assert attack.view is None or attack.view.clients <= 6
