"""A trace of arrivals as text: CSV with a head or JSON lines, in our columns or those of public traces."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from cluster_models.errors import InvalidWorkload
from cluster_models.serving.traces import MOST_ARRIVALS, Trace
from cluster_models.units import MIB, MILLISECOND

MOST_TRACE_CHARACTERS: Final = 16 * MIB
MOST_TOKENS: Final = 10**8
_FIELD: Final = "workload.trace"


@dataclass(frozen=True, slots=True)
class _Columns:
    """Names of arrival, prompt and answer, and the seconds of one unit of the arrival."""

    arrival: str
    prompt: str
    answer: str
    unit_s: float = 1.0


FORMATS: Final = (
    _Columns("arrival_s", "input_tokens", "output_tokens"),
    _Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    _Columns("timestamp", "input_length", "output_length", MILLISECOND),
    _Columns("Timestamp", "Request tokens", "Response tokens"),
)
"""Our own; Azure's LLM inference traces (times of day); Mooncake's; BurstGPT's."""
CACHED, CLASS, BLOCKS = "cached_tokens", "class", "hash_ids"
"""Columns that may stand beside them: tokens of the prompt that are cached, the class, Mooncake's blocks."""
BLOCK_TOKENS: Final = 512
MOST_NAME: Final = 200


def read_trace(text: str) -> Trace:
    """The trace, counted from its first arrival; raises ``InvalidWorkload`` that names the row."""
    if not text.strip():
        raise InvalidWorkload(_FIELD, "", "is empty", f"the first line names the columns: {_names(FORMATS[0])}")
    arrivals: list[float] = []
    prompts: list[int] = []
    answers: list[int] = []
    cached: list[int | None] = []
    classes: list[str | None] = []
    known: set[int] = set()
    columns: _Columns | None = None
    for row, cells in enumerate(_rows(text), start=1):
        if row > MOST_ARRIVALS:
            problem = f"row {row}: a trace has at most {MOST_ARRIVALS} requests"
            raise InvalidWorkload(_FIELD, None, problem, "give a part of it, such as its busiest hour")
        columns = columns or _columns_of(cells)
        arrivals.append(_arrival(cells.get(columns.arrival), columns, row))
        prompts.append(_tokens(cells.get(columns.prompt), columns.prompt, row))
        answers.append(_tokens(cells.get(columns.answer), columns.answer, row))
        cached.append(_cached(cells, prompts[-1], known, row))
        classes.append(_class(cells[CLASS], row) if CLASS in cells else None)
    if columns is None:
        raise InvalidWorkload(_FIELD, "", "has no requests", "give one on each line below the head")
    if columns.arrival == "TIMESTAMP":
        arrivals = [each - arrivals[0] for each in arrivals]
    beside = _whole(cached, f"{CACHED} or {BLOCKS}"), _whole(classes, CLASS)
    return Trace(tuple(arrivals), tuple(prompts), tuple(answers), *beside)


def trace_text(trace: Trace) -> str:
    """The trace in our own columns."""
    columns: dict[str, Sequence[object]] = {
        FORMATS[0].arrival: trace.arrivals_s,
        FORMATS[0].prompt: trace.input_tokens,
        FORMATS[0].answer: trace.output_tokens,
        CACHED: trace.cached_tokens,
        CLASS: trace.classes,
    }
    named = {name: values for name, values in columns.items() if values}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(named)
    writer.writerows(zip(*named.values(), strict=True))
    return text.getvalue()


def _whole(values: Sequence[Any], name: str) -> tuple[Any, ...]:
    """The column, empty where no row has it."""
    rows = [row for row, value in enumerate(values, start=1) if value is None]
    if len(rows) == len(values):
        return ()
    if rows:
        raise InvalidWorkload(_FIELD, None, f"row {rows[0]}: lacks {name}", "give it in every row, or in none")
    return tuple(values)


def _cached(cells: Mapping[str, Any], prompt: int, known: set[int], row: int) -> int | None:
    """Tokens of a prompt that are cached already, ``None`` where nothing is said of it."""
    if CACHED in cells:
        return _tokens(cells[CACHED], CACHED, row, least=0)
    return min(_reused(cells[BLOCKS], known, row), prompt - 1) if BLOCKS in cells else None


def _reused(cell: object, known: set[int], row: int) -> int:
    """Tokens of the blocks at the start of a prompt that earlier ones have had, with a cache that forgets none.

    A block's number stands for all tokens up to its end (Mooncake, arXiv 2407.00079, and its traces).
    """
    if not isinstance(cell, list) or not all(type(each) is int for each in cell):
        raise InvalidWorkload(_FIELD, None, f"row {row}: {BLOCKS} must be a list of whole numbers", "leave it out")
    start = next((place for place, block in enumerate(cell) if block not in known), len(cell))
    known.update(cell)
    return start * BLOCK_TOKENS


def _class(cell: object, row: int) -> str:
    name = cell.strip() if isinstance(cell, str) else ""
    if not 1 <= len(name) <= MOST_NAME:
        problem = f"row {row}: {CLASS} must be a name of 1 to {MOST_NAME} characters"
        raise InvalidWorkload(_FIELD, _shown(cell), problem, "name the class of every request, or of none")
    return name


def _names(columns: _Columns) -> str:
    return f"{columns.arrival},{columns.prompt},{columns.answer}"


def _rows(text: str) -> Iterator[Mapping[str, Any]]:
    """Cells of each row by column; empty lines are skipped."""
    text = text.removeprefix("\ufeff").lstrip()
    if not text.startswith("{"):
        try:
            reader = csv.DictReader(io.StringIO(text), strict=True, skipinitialspace=True)
            for row, cells in enumerate(reader, start=1):
                more = cells.get(None, [])  # where DictReader keeps what has no column
                if any(more):
                    problem, remedy = f"row {row}: has more cells than the head", "give every cell a column"
                    raise InvalidWorkload(_FIELD, ", ".join(more)[:60], problem, remedy)
                yield cells
        except csv.Error as error:
            raise InvalidWorkload(_FIELD, None, f"is not CSV: {error}", "check its quotes") from error
        return
    for row, line in enumerate((each for each in text.splitlines() if each.strip()), start=1):
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidWorkload(
                _FIELD, line[:60], f"row {row}: is not valid JSON", "one object a line"
            ) from error
        if not isinstance(cells, dict):
            raise InvalidWorkload(_FIELD, line[:60], f"row {row}: is no JSON object", "one object a line")
        yield cells


def _columns_of(cells: Mapping[str, Any]) -> _Columns:
    for each in FORMATS:
        if {each.arrival, each.prompt, each.answer} <= set(cells):
            return each
    given = ", ".join(str(name)[:40] for name in list(cells)[:8])
    known = "; or ".join(map(_names, FORMATS))
    raise InvalidWorkload(_FIELD, given, "lacks columns", f"name them {known}")


def _arrival(cell: object, columns: _Columns, row: int) -> float:
    if columns.arrival == "TIMESTAMP" and isinstance(cell, str):
        try:
            time = datetime.fromisoformat(cell.strip())
        except ValueError as error:
            problem = f"row {row}: {columns.arrival} is not a time"
            raise InvalidWorkload(_FIELD, cell[:60], problem, "write it like 2023-11-16 18:17:03.97") from error
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    found = _number(cell)
    if not math.isfinite(found) or found < 0:
        problem = f"row {row}: {columns.arrival} must be a finite number, not negative"
        raise InvalidWorkload(_FIELD, _shown(cell), problem, "count from the start of the trace")
    return found * columns.unit_s


def _tokens(cell: object, column: str, row: int, *, least: int = 1) -> int:
    found = _number(cell)
    if not (least <= found <= MOST_TOKENS and found == int(found)):
        problem = f"row {row}: {column} must be a whole number from {least} to {MOST_TOKENS}"
        raise InvalidWorkload(_FIELD, _shown(cell), problem, "leave out requests that failed")
    return int(found)


def _number(cell: object) -> float:
    """The cell as a number, NaN where it is none."""
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        return math.nan
    try:
        return float(cell)
    except (ValueError, OverflowError):
        return math.nan


def _shown(cell: object) -> object:
    return cell[:60] if isinstance(cell, str) else None if cell is None else str(cell)[:60]
