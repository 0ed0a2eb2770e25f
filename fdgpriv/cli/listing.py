"""Lists the parts, datasets and threat models, and the settings of each part, without importing torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from dataclasses import fields as dataclass_fields
from functools import partial
from shutil import get_terminal_size
from textwrap import shorten
from typing import Any, NamedTuple

from fdgpriv.cli.catalogue import UNKNOWN, Field, class_value, fields, imported_class, is_installed, summary
from fdgpriv.cli.command_line import BadUsage
from fdgpriv.data.names import ABOUT, DEFAULT_TARGETS, DOMAINS, FOUND_DOMAINS, LAYOUT, LAYOUTS
from fdgpriv.registry import names_in, written
from fdgpriv.threat import THREATS
from fdgpriv.utils.fields import kinds, words
from fdgpriv.utils.suggestions import did_you_mean, same_name

_ROLES = {"methods": "method", "attacks": "attack", "defenses": "defense", "reports": "report"}  # by folder
_NAME_WIDTH = 18
_MISSING_TEXT = "(no description)"
_SUMMARY_ROOM = 120  # characters
_MIN_ROOM = 40  # characters, for the meaning of a setting
_UNKNOWN_TERMINAL = (160, 24)  # columns and lines if there is no terminal


class ListedGroup(NamedTuple):
    """A section of the listing: all parts of a role, all datasets, or all threat models.

    Attributes:
        singular: The noun for one entry.
        summaries: By name, one line each.
        details: Gives the lines about one entry, after its name and summary.
    """

    singular: str
    summaries: Mapping[str, str]
    details: Callable[[str], Sequence[str]]


def listing(names: Sequence[str] = ()) -> str:
    """Every part, dataset and threat model in one line each; or the details of those with these names.

    Raises:
        ValueError: A name is unknown.
    """
    sections = _sections()
    if not names:
        return "\n".join(
            [line for heading, section in sections.items() for line in _section_lines(heading, section)]
            + ["settings of one: --list NAME"]
        )
    return "\n\n".join("\n".join(lines) for name in names for lines in _named(name.partition(":")[0], sections))


def _sections() -> dict[str, ListedGroup]:
    """All sections by heading."""
    sections = {
        folder: ListedGroup(
            singular, {name: _summary(folder, name) for name in names_in(folder)}, partial(_settings, folder)
        )
        for folder, singular in _ROLES.items()
    }
    threats = {threat.role: threat.summary for threat in THREATS.values()}
    return {
        **sections,
        "datasets": ListedGroup(
            "dataset", {name: _shortened(ABOUT[name], _SUMMARY_ROOM) for name in DOMAINS}, _dataset
        ),
        "threats": ListedGroup("threat model", threats, _threat),
    }


def _section_lines(heading: str, section: ListedGroup) -> list[str]:
    """The heading, and one line for each entry."""
    width = max(_NAME_WIDTH, *map(len, section.summaries))
    return [f"{heading}:", *(f"  {name:{width}} {text}" for name, text in section.summaries.items())]


def _named(name: str, sections: Mapping[str, ListedGroup]) -> Iterator[list[str]]:
    """The lines of a section, or of everything with this name."""
    headings = {heading: heading for heading in sections} | {s.singular: heading for heading, s in sections.items()}
    if (heading := same_name(name, headings)) is not None:
        yield _section_lines(headings[heading], sections[headings[heading]])
        return
    matches = [(section, match) for section in sections.values() if (match := same_name(name, section.summaries))]
    if not matches:
        known = [*headings, *(entry for section in sections.values() for entry in section.summaries)]
        raise BadUsage(
            f"--list: want a name that --list prints, or one of {', '.join(sections)}; got {name!r}{did_you_mean(name, known)}"
        )
    for section, match in matches:
        yield [f"{section.singular} {match}: {section.summaries[match]}", *section.details(match)]


def _summary(folder: str, name: str) -> str:
    """The part's summary, or why it cannot be used."""
    try:
        return summary(folder, name)
    except ValueError as error:
        return f"cannot be used: {error}"


def _settings(folder: str, name: str) -> list[str]:
    """The settings of a part in lines: default, values and meaning of each, presets, and an example."""
    imported = imported_class(folder, name) if is_installed(folder, name) else None

    def value_of(attribute: str) -> Any:
        return class_value(folder, name, attribute) if imported is None else getattr(imported, attribute, UNKNOWN)

    known_fields = _imported_fields(imported) if imported is not None else fields(folder, name)
    lines = []
    if isinstance(threats := value_of("threats"), tuple):
        lines.append(f"  adversaries: {', '.join(threats)}")
    if isinstance(reads := value_of("reads"), tuple):
        lines.append(f"  reads: {', '.join(kind if isinstance(kind, str) else kind.kind for kind in reads)}")
    if not known_fields:
        return [*lines, "  it has no settings"]
    lines += [*_field_lines(known_fields), *_preset_lines(value_of("presets"))]
    if folder in ("methods", "attacks", "defenses"):
        first, field = next(iter(known_fields.items()))
        lines.append(f"  for example: --{_ROLES[folder]} {name}:{first}={_default(field)}")
    return lines


def _field_lines(known_fields: Mapping[str, Field]) -> list[str]:
    """A line for each field, in three columns: name with default, permitted values, meaning."""
    rows = [
        (f"{name}={_default(field)}", _values(field), field.about or _MISSING_TEXT)
        for name, field in known_fields.items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    room = max(_MIN_ROOM, get_terminal_size(_UNKNOWN_TERMINAL).columns - sum(widths) - 6)
    return [
        f"  {setting:{widths[0]}}  {values:{widths[1]}}  {_shortened(about, room)}" for setting, values, about in rows
    ]


def _preset_lines(presets: Any) -> list[str]:
    """A line for each preset that sets fields; none if the part has no presets."""
    lines = []
    for preset, values in presets.items() if isinstance(presets, Mapping) else ():
        if values:
            lines.append(f"  with --preset {preset}: {' '.join(f'{name}={_text(v)}' for name, v in values.items())}")
    return lines


def _shortened(text: str, room: int) -> str:
    """The text without code markup, in at most `room` characters."""
    return shorten(text.replace("`", ""), room, placeholder=" ...")


def _imported_fields(part: Any) -> dict[str, Field]:
    """The fields of an imported part."""
    types, known_fields = kinds(part), dict[str, Field]()
    for field in dataclass_fields(part) if is_dataclass(part) else ():
        if field.name in types:
            value = UNKNOWN if field.default is MISSING else field.default
            known_fields[field.name] = Field("", "", types[field.name].annotation, "", value)
    return known_fields


def _default(field: Field) -> str:
    """The default as on the command line; its source text if the value is unknown."""
    return field.default if field.value is UNKNOWN else _text(field.value)


def _text(value: Any) -> str:
    """A value as on the command line."""
    return str(value).lower() if value is None or isinstance(value, bool) else written(value)


def _values(field: Field) -> str:
    """The values that a field accepts, in words."""
    return field.type if field.kind is Any else words(field.kind)


def _dataset(name: str) -> list[str]:
    """The lines about a dataset."""
    target = DEFAULT_TARGETS.get(name, "the last domain by name")
    lines = [f"  {ABOUT[name]}"] * (len(ABOUT[name]) > _SUMMARY_ROOM)
    lines += [f"  domains: {', '.join(DOMAINS[name]) or FOUND_DOMAINS[name]}", f"  default --target: {target}"]
    if name == "digits":
        return [*lines, "  built in: needs no --data-root"]
    return [*lines, f"  layout: {LAYOUTS.get(name, LAYOUT)}", f"  for example: --dataset {name} --data-root ROOT"]


def _threat(role: str) -> list[str]:
    """The lines about a threat model."""
    threat = THREATS[role]
    return [f"  auxiliary data: {threat.auxiliary}", f"  capabilities: {', '.join(sorted(threat.capabilities))}"]
