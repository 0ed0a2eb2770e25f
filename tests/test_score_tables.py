"""The score tables: what is written is read again, columns are checked, equal tables give equal bytes, views agree."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from factories_scores import RUN_KEY, conditions

from fdgpriv.results import score_tables
from fdgpriv.results.attack_finding import EXPOSED, Threat
from fdgpriv.results.score_rows import read_rows, rows_file
from fdgpriv.results.score_tables import SCHEMAS, ScoreTables
from fdgpriv.statistics.measured import Measured
from fdgpriv.tasks.membership import tpr_name
from fdgpriv.verdicts.attack_scores import AttackScores, from_tables, to_tables
from fdgpriv.verdicts.trial_scores import Condition, TrialScores, averaged_scores

CLIENTS = ["a", "b", "c"]
NAME = "cell/guess@server on style_statistics"


def trial_scores(seed: int, clients: list[str] = CLIENTS) -> TrialScores:
    rng = np.random.default_rng(seed)

    def draw() -> list[float]:
        return rng.random(len(clients)).tolist()

    return TrialScores(
        units=[f"{client}/{i}" for i, client in enumerate(clients)],
        clients=list(clients),
        headline={"attack": draw(), "noise": draw(), "other_client": draw()},
        details={"auc_held_out": {"attack": draw()}},
        crossed={client: draw() for client in clients},
        aggregates={"attack": {EXPOSED: Measured(value=0.2, ci95=(0.1, 0.3), n=9, direction="higher_leaks")}},
        shared_variance={"noise": 0.25},
        shared_variance_of_mean={"attack": 0.5, "noise": 0.125},
        artifact_used=seed % 2 == 0,
        artifact_weight=0.75,
    )


def attack(**more: object) -> AttackScores:
    by_size = {1: trial_scores(0, [c for c in CLIENTS for _ in range(2)]), None: trial_scores(1)}
    given = {
        "attack": "guess", "task": "members", "secret": "membership", "metric": "auc", "higher_leaks": True,
        "bounds": (0.0, 1.0), "scopes": ("client",), "relevant": 0.1, "exact": False, "budget": "steps=3",
        "single_images": True, "threat": Threat(role="server", auxiliary="A3", capabilities=("has_bn",)),
        "kind": "style_statistics", "shared": True, "chance": 0.5, "planted": {"client": 0.85}, "shadows": ("c",),
        "domains": {"a": "scan", "b": "type", "c": "scan"},
        "conditions": conditions(
            by_size, by_layer={"layer1": trial_scores(2), "layer4": trial_scores(3)},
            by_rounds=[(1, None, trial_scores(4)), (5, None, trial_scores(5))],
            undefended=trial_scores(6), unaware=trial_scores(7),
        ),
    }  # fmt: skip
    return AttackScores.model_validate(given | more)


def test_tables_are_read_as_written_with_equal_bytes(tmp_path: Path) -> None:
    failed = attack(conditions={}, planted={}, not_applicable="failed: it raised", failed=True, shadows=(), domains={})
    scores = {NAME: attack(), "cell/other@server on style_statistics": failed}
    tables = to_tables(RUN_KEY, scores)
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        tables.save(folder)
    assert from_tables(ScoreTables.load(tmp_path / "one")) == scores
    for name in SCHEMAS:
        assert (tmp_path / "one" / f"{name}.parquet").read_bytes() == (
            tmp_path / "other" / f"{name}.parquet"
        ).read_bytes()
    tables.save_archive(tmp_path / "part.zip")
    first = (tmp_path / "part.zip").read_bytes()
    ScoreTables.load_archive(tmp_path / "part.zip").save_archive(tmp_path / "part.zip")
    assert (tmp_path / "part.zip").read_bytes() == first
    assert from_tables(ScoreTables.load_archive(tmp_path / "part.zip")) == scores


def test_conditions_keep_meaning_and_order() -> None:
    (read,) = from_tables(to_tables(RUN_KEY, {NAME: attack()})).values()
    assert list(read.by_size) == [1, None]
    assert list(read.ablations) == ["layer1", "layer4"]
    assert [(rounds, size) for rounds, size, _ in read.by_rounds] == [(1, None), (5, None)]
    assert read.positive() == read.undefended == trial_scores(6)
    assert read.unaware == trial_scores(7)
    without = {c: s for c, s in read.conditions.items() if c.variant != "undefended"}
    assert read.model_copy(update={"conditions": without}).positive() == read.ablations["layer4"]


def test_any_order_of_the_rows_gives_the_same_scores() -> None:
    tables = to_tables(RUN_KEY, {NAME: attack()})
    order = np.random.default_rng(0).permutation(tables.scores.num_rows)
    shuffled = ScoreTables(tables.evaluations, tables.scores.take(order), tables.candidates, tables.aggregates)
    (read,) = from_tables(shuffled).values()
    assert dict(read.conditions) == dict(attack().conditions)


def test_repeats_are_rows_and_their_mean_counts() -> None:
    repeats = [trial_scores(10), trial_scores(11)]
    mean = averaged_scores(repeats)
    tables = to_tables(RUN_KEY, {NAME: attack(conditions={Condition(): mean})})
    frame = tables.to_pandas().scores
    headline = frame[(frame.role == "attack") & (frame.metric == "auc")]
    assert headline.groupby("repeat")["value"].apply(list).tolist() == [r.headline["attack"] for r in repeats]
    (read,) = from_tables(tables).values()
    assert read.by_size[None] == mean
    assert read.by_size[None].headline["attack"] == pytest.approx(
        [(one + other) / 2 for one, other in zip(*(r.headline["attack"] for r in repeats), strict=True)]
    )


def test_means_in_pandas_are_those_of_the_scores(tmp_path: Path) -> None:
    to_tables(RUN_KEY, {NAME: attack()}).save(tmp_path)
    frame = pd.read_parquet(tmp_path / "scores.parquet")
    rows = frame.query("role == 'attack' and variant == '' and rounds == 0 and n_images == 0 and metric == 'auc'")
    assert rows["value"].mean() == pytest.approx(np.mean(trial_scores(1).headline["attack"]))
    assert rows["is_shadow"].tolist() == [False, False, True]
    assert rows["domain"].tolist() == ["scan", "type", "scan"]
    assert set(frame[["method", "dataset", "target", "defense"]].drop_duplicates().iloc[0]) == {
        "stablefdg", "digits", "blend", "none",
    }  # fmt: skip
    crossed = frame[frame.role == "crossed"]
    assert len(crossed[(crossed.n_images == 0) & (crossed.variant == "") & (crossed["rounds"] == 0)]) == 9
    evaluations = pd.read_parquet(tmp_path / "evaluations.parquet")
    assert evaluations.loc[0, ["adversary", "lowest", "highest"]].tolist() == ["server", 0.0, 1.0]
    power = pd.read_parquet(tmp_path / "aggregates.parquet").query("variant == 'planted'")
    assert power[["role", "metric", "value"]].to_numpy().tolist() == [["client", "power", 0.85]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["unit"]), "want the column unit of string in scores, got none"),
        (lambda table: table.append_column("colour", [["red"] * len(table)]), "got also colour"),
        (
            lambda table: table.set_column(
                table.schema.get_field_index("trial"), "trial", [[str(i) for i in table["trial"].to_pylist()]]
            ),
            "want the column trial of int64 in scores, got string",
        ),
        (
            lambda table: table.set_column(
                table.schema.get_field_index("value"), "value", pa.array([float("inf")] * len(table))
            ),
            "want finite numbers in value of scores",
        ),
    ],
)
def test_other_columns_are_refused_in_one_line(change: object, message: str) -> None:
    tables = to_tables(RUN_KEY, {NAME: attack()})
    with pytest.raises(ValueError, match=message):
        ScoreTables(tables.evaluations, change(tables.scores), tables.candidates, tables.aggregates)  # type: ignore[operator]


def test_the_metric_of_exposed_members_has_one_name() -> None:
    assert tpr_name(0.01) == EXPOSED


def test_rows_of_a_table_that_cannot_be_written_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, written = to_tables(RUN_KEY, {NAME: attack()}), score_tables._parquet

    def broken(table: pa.Table) -> bytes:
        if "crossed_with" in table.column_names:
            raise pa.ArrowInvalid("no such codec")
        return written(table)

    with monkeypatch.context() as patch:
        patch.setattr(score_tables, "_parquet", broken)
        (line,) = tables.save(tmp_path)
    assert line.startswith("scores.parquet: ArrowInvalid: no such codec")
    assert line.endswith(f"; its rows are in {rows_file(tmp_path / 'scores.parquet')}")
    rows = read_rows(rows_file(tmp_path / "scores.parquet"))
    assert ScoreTables.of_rows(rows).scores.equals(tables.scores)
    assert tables.save(tmp_path) == []
    assert not rows_file(tmp_path / "scores.parquet").exists()
