"""The stored scores of single candidates: they give the areas again, and are checked as all that is stored."""

import csv
import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Fitted
from sklearn.metrics import roc_auc_score

from fdgpriv.attack import Attack
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.evaluation.attack_scores import AttackScores
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.threat import threat
from fdgpriv.utils.checksum import DamagedFile

TABLE = "style_membership@third_party-style_statistics.csv.gz"


def evaluated(fitted: Fitted, out: Path) -> AttackScores:
    attack = Attack.named("style_membership").configured({"simulations": 4})
    evaluator = replace(fitted.evaluator(), per_client={}, alternatives=1)
    trials = AttackTrials(evaluator, attack, threat("third_party"), curve=False)
    (scores,) = AttackEvaluation(trials, "style_membership", "style_statistics", True, out, "cell").run().values()
    return scores


@pytest.fixture(scope="module")
def stored(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> tuple[AttackScores, Path]:
    """The scores on it, and the run's folder."""
    out = tmp_path_factory.mktemp("run")
    return evaluated(fitted, out), out


def test_the_stored_scores_of_candidates_give_the_areas_again(
    fitted: Fitted, stored: tuple[AttackScores, Path]
) -> None:
    """By scikit-learn, for the attack and for its only artifact of another client; images are named as they lie."""
    scores, out = stored
    whole = scores.by_size[None]
    with gzip.open(out / "scores/cell" / TABLE, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert set(rows[0]) == {"role", "client", "image", "is_member", "score"}
    for role in ("attack", "other_client"):
        for client, expected in zip(whole.clients, whole.headline[role], strict=True):
            some = [row for row in rows if (row["role"], row["client"]) == (role, client)]
            area = roc_auc_score([int(row["is_member"]) for row in some], [float(row["score"]) for row in some])
            assert area == pytest.approx(expected, abs=2e-3)  # scores are rounded
            names = {row["image"]: row["is_member"] for row in some}
            assert len(names) == len(some)
            assert {name for name, member in names.items() if member == "1"} == {
                name for name in names if name.startswith(f"{client}/train/")
            }
            data = fitted.population.data(client)
            held_out = [int(name.split("/")[2]) for name in names if name.startswith(f"{client}/held_out/")]
            assert sorted(held_out) == list(range(len(data.held_out_labels)))
    assert np.mean(whole.details["auc_other_clients"]["attack"]) != np.mean(whole.details["auc_held_out"]["attack"])


def test_a_damaged_or_missing_table_is_one_line_that_says_what_to_remove(
    fitted: Fitted, stored: tuple[AttackScores, Path], tmp_path: Path
) -> None:
    first, out = stored
    shutil.copytree(out, tmp_path, dirs_exist_ok=True)
    table, scores = tmp_path / "scores/cell" / TABLE, tmp_path / "scores/cell" / TABLE.replace("csv.gz", "json")
    bytes_of_table = table.read_bytes()
    assert first.tables.keys() == {TABLE}
    assert evaluated(fitted, tmp_path) == first  # read from disk
    table.write_bytes(bytes_of_table[:-9])
    with pytest.raises(DamagedFile, match=f"want .*{TABLE} as it was written, .* remove .*{scores.name}, and --resume"):
        evaluated(fitted, tmp_path)
    table.unlink()
    with pytest.raises(DamagedFile, match=f"want .*{TABLE}, got: No such file.* remove .*{scores.name}, and --resume"):
        evaluated(fitted, tmp_path)
    scores.unlink()
    assert evaluated(fitted, tmp_path).by_size == first.by_size
    assert table.read_bytes() == bytes_of_table
