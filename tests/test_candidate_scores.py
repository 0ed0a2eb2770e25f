"""The stored scores of single candidates: they give the areas again, and are checked as all that is stored."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Fitted
from factories_scores import RUN_KEY
from sklearn.metrics import roc_auc_score

from fdgpriv.attack import Attack
from fdgpriv.evaluation.attack_evaluation import AttackEvaluation
from fdgpriv.evaluation.attack_trials import AttackTrials
from fdgpriv.results.score_tables import ScoreTables
from fdgpriv.threat import threat
from fdgpriv.utils.files import DamagedFile
from fdgpriv.verdicts.attack_scores import AttackScores

ARCHIVE = "style_membership@third_party-style_statistics.zip"


def evaluated(fitted: Fitted, out: Path) -> AttackScores:
    attack = Attack.named("style_membership").configured({"simulations": 4})
    evaluator = replace(fitted.evaluator(), per_client={}, alternatives=1)
    trials = AttackTrials(evaluator, attack, threat("third_party"), curve=False)
    (scores,) = (
        AttackEvaluation(trials, "style_membership", "style_statistics", True, out, "cell", RUN_KEY).run().values()
    )
    return scores


@pytest.fixture(scope="module")
def stored(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> tuple[AttackScores, Path]:
    """The scores on it, and the run's folder."""
    out = tmp_path_factory.mktemp("run")
    return evaluated(fitted, out), out


def test_stored_scores_give_the_areas_again(fitted: Fitted, stored: tuple[AttackScores, Path]) -> None:
    """By scikit-learn, for the attack and for its only artifact of another client; images are named as they lie."""
    scores, out = stored
    whole = scores.by_size[None]
    rows = ScoreTables.load_archive(out / "scores/cell" / ARCHIVE).candidates.to_pylist()
    assert {row["evaluation"] for row in rows} == {"cell/style_membership@third_party on style_statistics"}
    for role in ("attack", "other_client"):
        for client, expected in zip(whole.clients, whole.headline[role], strict=True):
            some = [row for row in rows if (row["role"], row["client"]) == (role, client)]
            area = roc_auc_score([int(row["is_member"]) for row in some], [float(row["score"]) for row in some])
            assert area == pytest.approx(expected, abs=1e-9)
            names = {row["image"]: row["is_member"] for row in some}
            assert len(names) == len(some)
            assert {name for name, member in names.items() if member} == {
                name for name in names if name.startswith(f"{client}/train/")
            }
            data = fitted.population.data(client)
            held_out = [int(name.split("/")[2]) for name in names if name.startswith(f"{client}/held_out/")]
            assert sorted(held_out) == list(range(len(data.held_out_labels)))
    assert np.mean(whole.details["auc_other_clients"]["attack"]) != np.mean(whole.details["auc_held_out"]["attack"])


@pytest.mark.slow
def test_a_damaged_archive_is_one_line(fitted: Fitted, stored: tuple[AttackScores, Path], tmp_path: Path) -> None:
    first, out = stored
    shutil.copytree(out, tmp_path, dirs_exist_ok=True)
    archive = tmp_path / "scores/cell" / ARCHIVE
    content = archive.read_bytes()
    assert evaluated(fitted, tmp_path) == first  # read from disk
    archive.write_bytes(content[:-9])
    with pytest.raises(DamagedFile, match=f"want .*{ARCHIVE} as it was written, .* remove .*{ARCHIVE}, and --resume"):
        evaluated(fitted, tmp_path)
    archive.unlink()
    assert evaluated(fitted, tmp_path).by_size == first.by_size
    again, before = (ScoreTables.load_archive(folder / "scores/cell" / ARCHIVE) for folder in (tmp_path, out))
    assert again.candidates.equals(before.candidates)
    assert again.scores.equals(before.scores)
