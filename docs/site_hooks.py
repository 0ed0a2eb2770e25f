"""Hooks of the documentation site (mkdocs.yml): API pages from folders, help texts of commands, links to source files."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with `<!-- modules: FOLDER -->` and `<!-- help: MODULE -->` replaced, and only links that the site has."""
    text = re.sub(r"<!-- modules: (\S+) -->", lambda match: _modules(match[1]), markdown)
    text = re.sub(r"<!-- help: (\S+) -->", lambda match: _help(match[1]), text)
    folder = (ROOT / "docs" / page.file.src_path).parent
    return re.sub(r"\[([^\]]*)\]\(((?:\.\./)+[\w/.-]+)\)", lambda match: _link(match, folder), text)


def _modules(folder: str) -> str:
    """A reference entry for each public module of a folder."""
    names = [path.stem for path in sorted((ROOT / folder).glob("[!_]*.py"))]
    prefix = folder.replace("/", ".")
    return "\n\n".join(f"::: {prefix}.{name}\n    options: {{heading_level: 3}}" for name in names)


def _help(module: str) -> str:
    """What `python -m MODULE --help` prints, as a code block."""
    command = [sys.executable, "-m", module, "--help"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return f"```text\n{text.strip()}\n```"


def _link(match: re.Match[str], folder: Path) -> str:
    """A link to a page unchanged; to a module its reference entry; to another file outside docs/ its name."""
    path = (folder / match[2]).resolve()
    if path.is_relative_to(ROOT / "docs"):
        return match[0]
    name = path.relative_to(ROOT)
    if name.suffix == ".py" and name.parts[0] != "examples":
        return f"[{match[1]}][{'.'.join(name.with_suffix('').parts)}]"
    return f"{match[1]} (`{name}`)"
