"""The report of an import on a terminal: what was understood, what was not, and what it would change."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from app.cli.clusters.import_next import Asked
from app.cli.clusters.import_questions import MOST_LINES, problems_view, questions_view
from app.cli.terminal import bullets, command_line, more_line, report_section
from app.imports.report_answers import DoubtAnswer, FileAnswer, ImportAnswer, ProposedNodeAnswer
from app.imports.summaries import measurements_shown
from app.presentation.figures import count, plural
from app.presentation.imports import all_refusals, new_nodes, other_changes, used_sections, with_remedy
from cluster_models.wording import named
from readers.frame.findings import Severity
from readers.frame.host_lists import compress
from readers.frame.reading import Format

MOST_FILES: Final = 12
"""More files than this are told by their kinds."""
_OF_A_KIND: Final = 3
_MOST_PLACES: Final = 2
_LONGEST_NAMES: Final = 200
_PARTICULAR: Final = re.compile(r"\S*\d\S*(?:,? \S*\d\S*)*")
"""Words with digits: names, numbers, addresses."""
_BETWEEN_NAMES: Final = re.compile(r",(?![^\[]*\])")


def import_view(answer: ImportAnswer, asked: Asked) -> RenderableType:
    """Report of an import: what the files say, what is wrong with it, and what it would change."""
    wrong, known = _doubts(answer)
    parts: list[tuple[str, list[RenderableType]]] = [
        ("What was understood", _understood(answer.files)),
        ("What was not taken", _refused(answer.files)),
        ("To know", known),
        ("Read, and not used", _aside(answer)),
        ("What files say of broken hardware: shown only", _health(answer)),
        ("Where files differ", _conflicts(answer)),
        ("What looks wrong", wrong),
        ("The cluster as it would be", _nodes(answer.nodes)),
        ("What looks wrong about all measurements together", _some([doubt.text for doubt in answer.suspicions])),
        ("What would change", _changes(answer)),
        ("What only you know", questions_view(answer)),
        ("What keeps it from being stored", problems_view(answer)),
    ]
    return Group(_headline(answer, asked), *(report_section(title, body) for title, body in parts if body))


def _headline(answer: ImportAnswer, asked: Asked) -> RenderableType:
    name = asked.cluster or asked.into or (asked.output.stem if asked.output else "")
    said = [plural(len(answer.files), "file")]
    if answer.nodes:
        new = sum(node.is_new for node in answer.nodes)
        said.append(plural(len(answer.nodes), "node") + (f" ({new} new)" if 0 < new < len(answer.nodes) else ""))
    said.append(measurements_shown(answer.sample_count, answer.failed_count))
    return Text.assemble((f"{name}  " if name else "", "bold"), "  ".join(said))


def _understood(files: Sequence[FileAnswer]) -> list[RenderableType]:
    read = [file for file in files if used_sections(file)]
    if len(read) <= MOST_FILES:
        return [_of_file(file) for file in read]
    kinds: dict[str, list[FileAnswer]] = {}
    for file in read:
        kinds.setdefault(" and ".join(dict.fromkeys(each.known_as for each in used_sections(file))), []).append(
            file
        )
    parts: list[RenderableType] = []
    for kind, members in sorted(kinds.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        parts.append(Text(f"{kind}: {plural(len(members), 'file')}", style="bold"))
        parts.extend(Padding(_of_file(file, kind), (0, 0, 0, 2)) for file in members[:_OF_A_KIND])
        if len(members) > _OF_A_KIND:
            parts.append(Padding(more_line(len(members) - _OF_A_KIND), (0, 0, 0, 2)))
    return parts


def _of_file(file: FileAnswer, kind: str = "") -> RenderableType:
    """A file and a sentence for each of its parts; the kind is not said again."""
    lines: list[RenderableType] = [Text(file.name, style="cyan", overflow="fold")]
    for part in used_sections(file):
        where = "" if len(file.sections) == 1 else f"lines {part.first_line}-{part.last_line}: "
        known_as = "" if part.known_as == kind else f"{part.known_as}: "
        lines.append(Padding(Text(f"{where}{known_as}{part.summary}", overflow="fold"), (0, 0, 0, 2)))
    return Group(*lines)


def _refused(files: Sequence[FileAnswer]) -> list[RenderableType]:
    """Reasons that differ in names and numbers only stand once."""
    found: list[tuple[str, str]] = []
    for file in files:
        refusals = all_refusals(file)
        for refusal in refusals:
            last = f"-{refusal.last_line}" if refusal.last_line > refusal.first_line else ""
            where = f"{file.name}:{refusal.first_line}{last}" if file.line_count else file.name
            found.append((where, with_remedy(refusal.reason, refusal.remedy)))
        told = any(part.doubts for part in file.sections)
        if not (refusals or told or used_sections(file)):
            kinds = " and ".join(dict.fromkeys(part.known_as for part in file.sections))
            found.append((file.name, f"{kinds}: nothing in it is used"))
    return _alike(found)


def _alike(found: Iterable[tuple[str, str]]) -> list[RenderableType]:
    """A line for each sentence with its places, those that differ in names and numbers only as one."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for place, sentence in found:
        groups.setdefault(_PARTICULAR.sub("#", sentence), []).append((place, sentence))
    lines = []
    for members in groups.values():
        same = all(sentence == members[0][1] for _, sentence in members)
        places = named([place for place, _ in members], _MOST_PLACES) if same else members[0][0]
        more = "" if same else f" (and {count(len(members) - 1)} more like this)"
        lines.append(f"{places}: {members[0][1]}{more}")
    return _some(lines)


def _doubts(answer: ImportAnswer) -> tuple[list[RenderableType], list[RenderableType]]:
    """Doubts by kind, those that hold figures back first; and notes."""
    found = [doubt for file in answer.files for part in file.sections for doubt in part.doubts] + answer.doubts
    notes = _alike(
        (_place(one), with_remedy(one.sentence, one.remedy)) for one in found if one.trust is Severity.NOTE
    )
    kinds: dict[str, list[DoubtAnswer]] = {}
    for doubt in sorted(found, key=lambda each: each.trust is not Severity.REJECT):
        if doubt.trust is not Severity.NOTE:
            kinds.setdefault(doubt.code, []).append(doubt)
    parts: list[RenderableType] = []
    for code, members in list(kinds.items())[:MOST_LINES]:
        told = dict.fromkeys(with_remedy(one.sentence, one.remedy) for one in members)
        for sentence in list(told)[:_OF_A_KIND]:
            places = [_place(one) for one in members if with_remedy(one.sentence, one.remedy) == sentence]
            parts.append(bullets([f"{named(places, _MOST_PLACES)}: {sentence}"]))
        if len(told) > _OF_A_KIND:
            parts.append(more_line(len(told) - _OF_A_KIND, f"of this kind ({code})", f"of this kind ({code})"))
        if (held := [one for one in members if one.trust is Severity.REJECT]) and all(one.accepted for one in held):
            parts.append(Text("  accepted: the figures are used"))
        elif held:
            key = held[0].key if len(held) == 1 else code
            parts += [Text("  the figures are not used, unless you add"), _option(f"--accept {shlex.quote(key)}")]
    if len(kinds) > MOST_LINES:
        parts.append(more_line(len(kinds) - MOST_LINES, "kind of doubt", "kinds of doubt"))
    return parts, notes


def _option(text: str) -> Text:
    return command_line(text, indent=6)


def _place(doubt: DoubtAnswer) -> str:
    return f"{doubt.file}:{doubt.first_line}"


def _aside(answer: ImportAnswer) -> list[RenderableType]:
    return _alike(
        (one.origin, f"{one.what}{f' and {count(one.count - 1)} more' if one.count > 1 else ''}: {one.reason}")
        for one in answer.kept_aside
    )


def _health(answer: ImportAnswer) -> list[RenderableType]:
    return _some(
        [
            f"{one.origin}: {one.node or 'a host without a name'}, {one.entity} {one.state}: {one.text}"
            for one in answer.health
        ]
    )


def _conflicts(answer: ImportAnswer) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for conflict in answer.conflicts[:MOST_LINES]:
        taken = conflict.taken
        others = [said for said in conflict.said if said.value != taken.value]
        said = " or ".join(f"{one.value} ({named(one.origins, _MOST_PLACES)})" for one in others)
        where = f" ({named(taken.origins, _MOST_PLACES)})" if taken.origins else ""
        parts.append(bullets([f"{conflict.where}: {taken.value}{where} is taken, not {said}; to choose:"]))
        parts.extend(_option(f"--set {shlex.quote(f'{conflict.where}={one.value}')}") for one in others[:1])
    more = len(answer.conflicts) - MOST_LINES
    return [*parts, more_line(more)] if more > 0 else parts


def _nodes(nodes: Sequence[ProposedNodeAnswer]) -> list[RenderableType]:
    """Equal nodes together: what is known of them, and their names as Slurm writes them."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(_node_words(node), []).append(node.name)
    parts: list[RenderableType] = []
    for what, names in list(groups.items())[:MOST_LINES]:
        parts.append(Text(f"{plural(len(names), 'node')}: {what}", overflow="fold"))
        parts.append(Padding(Text(_names(names), style="dim", overflow="fold"), (0, 0, 0, 4)))
    if len(groups) > MOST_LINES:
        parts.append(more_line(len(groups) - MOST_LINES, "kind of node", "kinds of node"))
    return parts


def _node_words(node: ProposedNodeAnswer) -> str:
    fields = {field: said.value for field, said in node.fields.items()}
    sold = fields.pop("node_kind", "")
    gpus, kind = fields.pop("gpu_count", ""), fields.pop("gpu_kind", "")
    nics, domain = fields.pop("nics", ""), fields.pop("nvlink_domain", "")
    state = fields.pop("state", "ready")
    labels = [f"{field.removeprefix('labels.')}={value}" for field, value in sorted(fields.items())]
    unknown = [
        what for what, said in (("number of GPUs", gpus), ("GPU kind", kind), ("network cards", nics)) if not said
    ]
    words = [
        sold,
        f"{gpus} x {kind or 'GPU'}" if gpus else kind,
        nics,
        f"NVLink domain {domain}" if domain and domain != node.name else "",
        state if state != "ready" else "",
        " ".join(labels),
        f"not known: {', '.join(unknown)}" if unknown and not sold else "",
    ]
    return ", ".join(word for word in words if word)


def _names(names: Sequence[str]) -> str:
    try:
        text = _BETWEEN_NAMES.sub(", ", compress(names))
    except ValueError:  # a blank, a comma or a bracket in a name: the check of the cluster says what is wrong
        text = ", ".join(names)
    return text if len(text) <= _LONGEST_NAMES else f"{text[:_LONGEST_NAMES].rpartition(',')[0]} and others"


def _changes(answer: ImportAnswer) -> list[RenderableType]:
    sentence, names = new_nodes(answer)
    return _some([*([f"{sentence}: {_names(names)}"] if names else []), *other_changes(answer)])


def _some(lines: Sequence[str]) -> list[RenderableType]:
    """The first lines as a list, and how many more there are."""
    parts: list[RenderableType] = [bullets([line]) for line in lines[:MOST_LINES]]
    return [*parts, more_line(len(lines) - MOST_LINES)] if len(lines) > MOST_LINES else parts


def formats_view(formats: Iterable[Format]) -> RenderableType:
    """The kinds of file that are known, by family; those that are known only to be refused, with the reason."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("about")
    table.add_column("name", style="cyan")
    table.add_column("what it is")
    before = ""
    for form in sorted(formats, key=lambda each: each.family.casefold()):
        what = f"{form.known_as}; refused: {form.refused_because}" if form.refused_because else form.known_as
        table.add_row(form.family if form.family != before else "", form.name, what)
        before = form.family
    return table
