"""The notebook of the examples: a document that Jupyter reads, cells that compile, names that exist; slow: it runs."""

import ast
import base64
import inspect
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fdgpriv
from fdgpriv.attack import Attack
from fdgpriv.defense import Defense

NOTEBOOK = json.loads((Path(__file__).parents[1] / "examples" / "stablefdg.ipynb").read_text(encoding="utf-8"))
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def nodes() -> Iterator[ast.AST]:
    for cell in CELLS:
        yield from ast.walk(ast.parse(cell))


def test_it_is_a_notebook() -> None:
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])
    keys = {"markdown": {"cell_type", "id", "metadata", "source"}}
    keys["code"] = keys["markdown"] | {"execution_count", "outputs"}
    assert all(set(cell) == keys[cell["cell_type"]] for cell in NOTEBOOK["cells"])
    for output in (output for cell in NOTEBOOK["cells"] for output in cell.get("outputs", ())):
        assert output["output_type"] in ("stream", "execute_result")
        if picture := output.get("data", {}).get("image/png"):
            assert base64.b64decode(picture).startswith(b"\x89PNG")


def test_every_name_in_it_exists() -> None:
    arguments = set(inspect.signature(fdgpriv.run_audit).parameters)
    imported = {alias.name: node.module for node in nodes() if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert all(hasattr(import_module(module or ""), name) for name, module in imported.items())
    used = [node for node in nodes() if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    of_results = [node.attr for node in used if getattr(node.value, "id", "") in ("results", "protected")]
    assert {"questions", "to_pandas", "frontier", "figure"} <= set(of_results)
    assert all(hasattr(fdgpriv.Results, name) for name in of_results)
    assert all(hasattr(fdgpriv, node.attr) for node in used if getattr(node.value, "id", "") == "fdgpriv")
    audits = [node for node in nodes() if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "run_audit"]
    assert len(audits) == 2
    assert all({keyword.arg for keyword in call.keywords} <= arguments for call in audits)
    words = [node.value for node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert len(set(words) & set(Attack.names())) >= 2
    assert Defense.parse("gaussian:epsilon=8")
    assert "gaussian:epsilon=8" in words


@pytest.mark.slow
def test_it_runs() -> None:
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in CELLS:
        tree = ast.parse(cell)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None
        assert last is None or getattr(last.value, "func", None) is not None or repr(shown)
    assert [run.defense for run in names["protected"].runs] == ["none", "rounding:step=0.25", "gaussian:epsilon=8"]
    assert len(names["protected"].frontier()) == 3
    assert shown._repr_png_().startswith(b"\x89PNG")
