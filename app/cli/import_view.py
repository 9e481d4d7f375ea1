"""The report of an import on a terminal: what was understood, what was not, what to answer, what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from app.cli.import_next import Asked
from app.cli.import_questions import MOST_LINES, problems_view, questions_view
from app.cli.terminal import bullets, command_line, more_line, section, shown_places
from app.imports.report import DoubtAnswer, FileAnswer, ImportAnswer, ProposedNodeAnswer
from app.presentation.figures import count, plural
from cluster_models.readers.host_lists import compress
from cluster_models.readers.reading import Format, Trust

MOST_FILES: Final = 12
"""More files than this are told by their kinds."""
_OF_A_KIND: Final = 3
_LONGEST_NAMES: Final = 160


def import_view(answer: ImportAnswer, asked: Asked) -> RenderableType:
    """Everything that the files say, what is wrong with it, and what it would change."""
    read = [file for file in answer.files if file.sections]
    parts: list[tuple[str, RenderableType | None]] = [
        ("What was understood", _understood(read)),
        ("What was not taken", _refused(answer.files)),
        ("What looks wrong", _doubts(answer)),
        ("Read, and not used", _aside(answer)),
        ("What files say of broken hardware: shown only", _health(answer)),
        ("Where files differ", _conflicts(answer)),
        ("The cluster as it would be", _nodes(answer.nodes)),
        ("What looks wrong about all measurements together", _some(answer.suspicions)),
        ("What would change", _changes(answer)),
        ("What only you know", questions_view(answer)),
        ("What keeps it from being stored", problems_view(answer)),
    ]
    return Group(_headline(answer, asked), *(section(title, body) for title, body in parts if body is not None))


def _headline(answer: ImportAnswer, asked: Asked) -> RenderableType:
    name = asked.cluster or asked.into or (asked.output.stem if asked.output else "")
    said = [plural(len(answer.files), "file")]
    if answer.nodes:
        new = sum(node.is_new for node in answer.nodes)
        said.append(plural(len(answer.nodes), "node") + (f" ({new} new)" if 0 < new < len(answer.nodes) else ""))
    said.append(plural(answer.sample_count, "measurement"))
    return Text.assemble((f"{name}  " if name else "", "bold"), "  ".join(said))


def _understood(files: Sequence[FileAnswer]) -> RenderableType | None:
    if not files:
        return None
    if len(files) <= MOST_FILES:
        return Group(*(_of_file(file) for file in files))
    kinds: dict[str, list[FileAnswer]] = {}
    for file in files:
        kinds.setdefault(" and ".join(dict.fromkeys(each.known_as for each in file.sections)), []).append(file)
    lines: list[RenderableType] = []
    for kind, members in sorted(kinds.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        lines.append(Text(f"{kind}: {plural(len(members), 'file')}", style="bold"))
        lines.extend(Padding(_of_file(file), (0, 0, 0, 2)) for file in members[:_OF_A_KIND])
        if len(members) > _OF_A_KIND:
            lines.append(Padding(more_line(len(members) - _OF_A_KIND), (0, 0, 0, 2)))
    return Group(*lines)


def _of_file(file: FileAnswer) -> RenderableType:
    lines: list[RenderableType] = [Text(file.name, style="cyan", overflow="fold")]
    for part in file.sections:
        where = "" if len(file.sections) == 1 else f"lines {part.first_line}-{part.last_line}: "
        lines.append(Padding(Text(f"{where}{part.known_as}: {part.summary}"), (0, 0, 0, 2)))
    return Group(*lines)


def _refused(files: Sequence[FileAnswer]) -> RenderableType | None:
    """Each reason once, with the places; the first ten reasons."""
    places: dict[tuple[str, str], list[str]] = {}
    for file in files:
        for refusal in (*file.refusals, *(one for part in file.sections for one in part.refusals)):
            last = f"-{refusal.last_line}" if refusal.last_line > refusal.first_line else ""
            where = f"{file.name}:{refusal.first_line}{last}" if file.line_count else file.name
            places.setdefault((refusal.reason, refusal.remedy), []).append(where)
    if not places:
        return None
    lines = []
    for (reason, remedy), found in list(places.items())[:MOST_LINES]:
        lines.append(f"{shown_places(found)}: {reason}{'; ' if remedy else ''}{remedy}")
    return _list(lines, len(places))


def _doubts(answer: ImportAnswer) -> RenderableType | None:
    """By kind of doubt, those that hold figures back first."""
    found = [doubt for file in answer.files for part in file.sections for doubt in part.doubts] + answer.doubts
    kinds: dict[str, list[DoubtAnswer]] = {}
    order = [Trust.REJECT, Trust.DOUBT, Trust.NOTE]
    for doubt in sorted(found, key=lambda each: order.index(each.trust)):
        kinds.setdefault(doubt.code, []).append(doubt)
    if not kinds:
        return None
    lines = []
    for members in list(kinds.values())[:MOST_LINES]:
        first = members[0]
        same = {(one.sentence, one.remedy) for one in members}
        shown = members[:1] if len(same) == 1 else members[:_OF_A_KIND]
        for doubt in shown:
            places = [f"{one.file}:{one.first_line}" for one in members] if len(same) == 1 else []
            where = shown_places(places) if places else f"{doubt.file}:{doubt.first_line}"
            lines.append(f"{where}: {doubt.sentence}{'; ' if doubt.remedy else ''}{doubt.remedy}")
        if len(same) > 1 and len(members) > len(shown):
            lines.append(f"and {count(len(members) - len(shown))} more of this kind, {first.code}; --json for all")
        if first.trust is Trust.REJECT:
            lines.append(_how_to_accept(members))
    return _list(lines, len(lines) + len(kinds) - min(len(kinds), MOST_LINES), most=len(lines))


def _how_to_accept(members: Sequence[DoubtAnswer]) -> str:
    if all(doubt.accepted for doubt in members):
        return "  accepted: the figures are used"
    key = members[0].key if len(members) == 1 else members[0].code
    return f"  these figures are not used unless you add --accept {shlex.quote(key)}"


def _aside(answer: ImportAnswer) -> RenderableType | None:
    lines = [
        f"{one.origin}{f' and {one.count - 1} more' if one.count > 1 else ''}: {one.what}: {one.reason}"
        for one in answer.kept_aside[:MOST_LINES]
    ]
    return _list(lines, len(answer.kept_aside)) if lines else None


def _health(answer: ImportAnswer) -> RenderableType | None:
    lines = [
        f"{one.origin}: {one.node or 'a host without a name'}, {one.entity} {one.state}: {one.text}"
        for one in answer.health[:MOST_LINES]
    ]
    return _list(lines, len(answer.health)) if lines else None


def _conflicts(answer: ImportAnswer) -> RenderableType | None:
    lines = []
    for conflict in answer.conflicts[:MOST_LINES]:
        others = [said for said in conflict.said if said.value != conflict.taken.value]
        said = " or ".join(f"{one.value} ({shown_places(one.origins)})" for one in others)
        choice = shlex.quote(f"{conflict.where}={others[0].value}") if others else ""
        taken = f"{conflict.taken.value} is taken ({shown_places(conflict.taken.origins)})"
        lines.append(f"{conflict.where}: {taken}, not {said}; to choose: --set {choice}")
    return _list(lines, len(answer.conflicts)) if lines else None


def _nodes(nodes: Sequence[ProposedNodeAnswer]) -> RenderableType | None:
    """Equal nodes together: what is known of them, and their names as Slurm writes them."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(_node_words(node), []).append(node.name)
    if not groups:
        return None
    lines: list[RenderableType] = []
    for what, names in list(groups.items())[:MOST_LINES]:
        lines.append(Text(f"{count(len(names))} x {what}" if len(names) > 1 else what))
        lines.append(Padding(Text(_names(names), style="dim"), (0, 0, 0, 4)))
    if len(groups) > MOST_LINES:
        lines.append(more_line(len(groups) - MOST_LINES, "kind of node", "kinds of node"))
    return Group(*lines)


def _node_words(node: ProposedNodeAnswer) -> str:
    fields = {field: said.value for field, said in node.fields.items()}
    kind = fields.pop("node_kind", "")
    gpus = " x ".join(value for field in ("gpu_count", "gpu_kind") if (value := fields.pop(field, "")))
    nics, domain = fields.pop("nics", ""), fields.pop("nvlink_domain", "")
    state = fields.pop("state", "ready")
    labels = [f"{field.removeprefix('labels.')}={value}" for field, value in sorted(fields.items())]
    words = [
        kind,
        gpus or ("" if kind else "GPUs not known"),
        nics or ("" if kind else "network cards not known"),
        f"NVLink domain {domain}" if domain and domain != node.name else "",
        state if state != "ready" else "",
        " ".join(labels),
    ]
    return ", ".join(word for word in words if word)


def _names(names: Sequence[str]) -> str:
    text = compress(names)
    return text if len(text) <= _LONGEST_NAMES else f"{text[:_LONGEST_NAMES]}... ({count(len(names))} names)"


def _changes(answer: ImportAnswer) -> RenderableType | None:
    new = [node.name for node in answer.nodes if node.is_new]
    sentences = [change for change in answer.changes if not change.endswith(" is new.")]
    if new:
        verb = "nodes are" if len(new) > 1 else "node is"
        sentences = [f"{count(len(new))} {verb} new: {_names(new)}", *sentences]
    return _some(sentences)


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


def _some(lines: Sequence[str]) -> RenderableType | None:
    return _list(lines[:MOST_LINES], len(lines)) if lines else None


def _list(lines: Iterable[str], total: int, *, most: int = MOST_LINES) -> RenderableType:
    """Bullets, and how many more there are."""
    shown = list(_bulleted(lines))
    return Group(*shown, *([more_line(total - most)] if total > most else []))


def _bulleted(lines: Iterable[str]) -> Iterator[RenderableType]:
    for line in lines:
        yield command_line(f"  {line}") if line.startswith("  ") else bullets([line])
