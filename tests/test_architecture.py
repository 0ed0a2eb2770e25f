"""The house: who may import whom, who may name whom, and who uses a helper."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("fdgpriv", "attacks", "defenses", "methods", "reports")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
MAY_NAME_PARTS = ("fdgpriv/claims/", "fdgpriv/utils/defaults.py")
PARTS = (  # of this project, but for those whose names are words or kinds of tasks as well (none, membership, linkage, ...)
    *("ccst", "fedavg", "hfedf", "lsi", "pardon", "pfedhn", "stablefdg"),
    *(
        "class_probe",
        "client_size",
        "deep_inversion",
        "domain_inference",
        "exact_recovery",
        "gan",
        "gradient_inversion",
    ),
    *("importance_membership", "label_histogram", "latent_inversion", "layout_probe", "mean_image_regression"),
    *("evaluation_membership", "statistics_membership", "style_inversion", "style_membership"),
    *("bn_frozen", "bn_local", "client_dp", "clip", "dpsgd", "gaussian", "interpolate", "laplace", "min_clients"),
    *("quantize", "secure_aggregation", "send_once", "shuffle", "sparsify"),
)


def module(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "fdgpriv" else ["fdgpriv", *parts])


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def imports(path: Path, known: set[str]) -> set[str]:
    """The project's modules that this file imports, in functions and for types only included."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            base = module(path).split(".")
            base = base[: len(base) - node.level + (path.name == "__init__.py")] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{source}.{name.name}" if f"{source}.{name.name}" in known else source for name in node.names}
    return (found & known) - {module(path)}


def test_no_files_import_each_other_in_a_circle() -> None:
    known = {module(path) for path in FILES} - {"fdgpriv"}  # the package imports its door, run_audit, when asked for it
    graph = {module(path): imports(path, known) for path in FILES if module(path) in known}
    done: set[str] = set()
    while free := {name for name, wanted in graph.items() if name not in done and wanted <= done}:
        done |= free
    assert not known - done


def test_no_core_file_names_a_part() -> None:
    assert all(any((ROOT / folder / f"{part}.py").is_file() for folder in FOLDERS) for part in PARTS)
    classes = {"".join(word.title() for word in name.split("_")) for name in PARTS}
    named = defaultdict(list)
    for path in FILES:
        where = path.relative_to(ROOT).as_posix()
        if not where.startswith("fdgpriv/") or where.startswith(MAY_NAME_PARTS):
            continue
        scopes = [n for n in nodes(path) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef) and n.body]
        prose = {id(n.body[0].value) for n in scopes if isinstance(n.body[0], ast.Expr)}
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                named[where] += [part for part in PARTS if re.search(rf"(?<![\w-]){part}(?!\w)", node.value)]
            elif isinstance(node, ast.Name) and node.id in classes:
                named[where].append(node.id)
    assert not {where: names for where, names in named.items() if names}
