"""Pages that take in what tools printed: look first, answer, look again, then store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import FormData

from app.db.engine import transaction
from app.imports.report import answer_of
from app.imports.sources import MOST_MEMBERS, SentFile
from app.resources import Service, service_of
from app.services.clusters import clusters, imports
from app.services.clusters.imports import ImportRefused, ImportRequest, Looked
from app.services.errors import ImportChanged
from app.services.pagination import MAX_LIMIT
from app.web.clusters.formats import known_formats
from app.web.clusters.import_form import numbered, sent_answers, sent_files, without
from app.web.clusters.imports import import_page
from app.web.clusters.packed_files import check_size, pack, unpack
from app.web.error_pages import PageRoute
from app.web.forms import FormProblem
from app.web.kept_pages import answer_page
from app.web.rendering import page
from cluster_models.errors import InvalidInput
from cluster_models.units import MIB
from cluster_models.wording import named

_MOST_FIELDS: Final = 4_000
"""A report has some hundred fields; answers given before come on top."""
_ROOM_FOR_FIELDS: Final = MIB
_LONGEST_NAME: Final = 200
_NAMED: Final = 8

_CHANGED: Final = (
    "Nothing was stored yet: answers, files or the cluster changed since the last look. "
    "This is the report as it is now; store it if it is right."
)

router = APIRouter(route_class=PageRoute, include_in_schema=False)


async def sent_upload(request: Request) -> FormData:
    """Data of the form, with as many files as an upload may hold."""
    most = service_of(request).settings.max_body_bytes
    return await request.form(max_files=MOST_MEMBERS, max_fields=_MOST_FIELDS, max_part_size=most)


@router.get("/clusters/import")
def empty(request: Request, cluster: str = "") -> Response:
    """The empty form; ``cluster`` is the one that the files are for."""
    return _form(request, {"cluster": cluster, "pasted": ""}, ())


@router.post("/clusters/import")
def look_or_store(request: Request, data: Annotated[FormData, Depends(sent_upload)]) -> Response:
    """The report of the files, or the cluster that came of them."""
    service = service_of(request)
    name, pasted = (str(data.get(field) or "").strip() for field in ("cluster", "pasted"))
    found: list[FormProblem] = []
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        problem = "is missing; name the cluster" if not name else "is not a name; write one line of 200 letters"
        found.append(FormProblem("cluster", "Name", problem))
    try:
        files, carried = _files(data, service.settings.max_body_bytes - _ROOM_FOR_FIELDS)
    except InvalidInput as error:
        found.append(FormProblem("files", "Files", f"{error.problem}; {error.remedy}"))
        files, carried = [], ""
    if not files and not found:
        found.append(FormProblem("files", "Files", "are missing; choose some, or paste output"))
    if found:
        kept = tuple(file.name for file in files)
        return _form(
            request, {"cluster": name, "pasted": "" if kept else pasted}, found, kept=kept, carried=carried
        )
    sent = sent_answers(data)
    upload = ImportRequest(tuple(files), name, sent.answers.to_answers())
    with service.read_sessions() as session:
        known = imports.known_of(session, cluster=name)
    looked = imports.look_at(known, upload)
    if lost := [one for one in looked.report.unused_answers if one.of_key]:  # the page has no field for them
        sent = without(sent, lost)
        upload = ImportRequest(upload.files, name, sent.answers.to_answers())
        looked = imports.look_at(known, upload)
    notice, status = "", 200
    if data.get("do") == "store" and not sent.wrong:
        try:
            return _stored(service, upload, looked, str(data.get("digest") or ""))
        except (ImportChanged, ImportRefused) as error:
            notice, status = _why(error)
            with service.read_sessions() as session:
                looked = imports.look_at(imports.known_of(session, cluster=name), upload)
    names = [file.name for file in files]
    return answer_page(
        request,
        "import_report.html",
        status=422 if sent.wrong else status,
        report=import_page(answer_of(looked.report), sent, cluster=name, names=names),
        cluster=name,
        carried=carried,
        notice=notice,
    )


def _files(data: FormData, most_bytes: int) -> tuple[list[SentFile], str]:
    """All files of the form, carried and new, less those that are to be left out, and what carries them on."""
    carried = data.get("carried")
    before = unpack(carried) if isinstance(carried, str) and carried else ()
    left_out = {str(number) for number in data.getlist("leave")}
    kept = [file for number, file in enumerate(before) if str(number) not in left_out]
    files = numbered([*kept, *sent_files(data)])
    check_size(files, "", most_bytes)
    packed = pack(files)
    check_size(files, packed, most_bytes)
    return files, packed


def _stored(service: Service, upload: ImportRequest, looked: Looked, digest: str) -> Response:
    with transaction(service.sessions) as session:
        outcome = imports.store(session, upload, digest=digest, looked=looked)
    return RedirectResponse(f"/clusters/{quote(outcome.cluster.name, safe='')}?added={outcome.added}", 303)


def _why(error: ImportChanged | ImportRefused) -> tuple[str, int]:
    if isinstance(error, ImportRefused):
        return "Nothing was stored: something is missing or wrong, as said below.", 422
    return _CHANGED, 409


def _form(
    request: Request,
    values: dict[str, str],
    found: Sequence[FormProblem],
    *,
    kept: Sequence[str] = (),
    carried: str = "",
) -> Response:
    """The form with what is wrong; the files called ``kept`` come with it as ``carried``."""
    service = service_of(request)
    with service.read_sessions() as session:
        known = [record.name for record in clusters.list_clusters(session, limit=MAX_LIMIT).items]
    return page(
        request,
        "import.html",
        status=422 if found else 200,
        values=values,
        found=tuple(found),
        kept=named(kept, _NAMED),
        kept_count=len(kept),
        carried=carried,
        known=known,
        most=f"{service.settings.max_body_bytes // MIB} MiB",
        formats=known_formats(),
    )
