"""Files of tools: what they say, and storing it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from app.answers.clusters import ClusterSummary
from app.api.v1.answers import address
from app.api.v1.import_uploads import Received, described, received, upload_of
from app.api.v1.parameters import ExpectedVersion, IdempotencyKey, ServiceDep, etag
from app.db.engine import transaction
from app.documents.reading import InvalidDocument
from app.documents.values import Holds, ValueAnswer
from app.imports.report import answer_of
from app.imports.report_answers import ImportAnswer
from app.services import idempotency
from app.services.clusters import imports
from app.services.clusters.imports import ImportOutcome
from readers.frame.reading import Format
from readers.registry import FORMATS

router = APIRouter(tags=["imports"])


class StoredImport(BaseModel):
    """Outcome of storing files."""

    cluster: ClusterSummary = Field(description="The cluster now.")
    added: int = Field(description="Measurements that are new; 0 where the same files came again.", examples=[29])


class ImportReply(ImportAnswer):
    """The report of an upload, and what was stored."""

    stored: StoredImport | None = Field(None, description="Null of a report only.")


class FormatAnswer(ValueAnswer[Format]):
    """A kind of file that is recognised."""

    name: str = Field(description="Its name in reports.", examples=["nccl-tests"])
    known_as: str = Field(description="The kind for people.", examples=["nccl-tests or rccl-tests log"])
    family: str = Field(description="Family of tools.", examples=["nccl"])
    refused_because: Annotated[str | None, Holds("refused_because", empty_is_null=True)] = Field(
        description="Why nothing of it can be used; null where something can.", examples=[None]
    )


@router.post(
    "/imports",
    openapi_extra=described(),
    responses={201: {"model": ImportReply, "description": "Stored; Location names the cluster."}},
)
def import_files(
    found: Annotated[Received, Depends(received)],
    service: ServiceDep,
    response: Response,
    expected: ExpectedVersion,
    idempotency_key: IdempotencyKey = None,
    documents: Annotated[
        bool, Query(description="Whether to answer with the cluster and the measurements in full, too.")
    ] = False,
) -> ImportReply:
    """Report, file by file and line by line, what tools' outputs say of a cluster; with ``store``, store it.

    409 where the report that ``digest`` names is not that of these files and the cluster as it is now; 422 where a
    needed question is open or something is wrong: ``errors`` names file and line.  Nothing is stored then.  422
    without ``store``, too, where an answer is to no question: ``errors`` names its key and the nearest.
    """
    upload = upload_of(found)
    with service.read_sessions() as session:
        known = imports.known_of(session, cluster=upload.request.cluster)
    looked = imports.look_at(known, upload.request)
    if looked.report.unused_answers:
        raise InvalidDocument([one.problem for one in looked.report.unused_answers])
    if not upload.store:
        return _reply(answer_of(looked.report, with_documents=documents))
    keyed = idempotency.keyed("import", idempotency_key, *imports.asked_by(upload.request))
    with transaction(service.sessions) as session:
        # Done again, it changes nothing; only the report is another then.
        digest = upload.digest if idempotency.claim(session, keyed) else None
        outcome = imports.store(session, upload.request, digest=digest, looked=looked, expected_version=expected)
    response.status_code = 201
    response.headers["Location"] = address("clusters", outcome.cluster.name)
    response.headers["ETag"] = etag(outcome.cluster.version)
    return _reply(answer_of(outcome.report, with_documents=documents), outcome)


@router.get("/import-formats")
def list_import_formats() -> list[FormatAnswer]:
    """The kinds of file that an import recognises, those included that it recognises to say why they are no use."""
    return [FormatAnswer.from_value(form) for form in FORMATS]


def _reply(answer: ImportAnswer, outcome: ImportOutcome | None = None) -> ImportReply:
    stored = None
    if outcome is not None:
        stored = StoredImport(cluster=ClusterSummary.from_value(outcome.cluster), added=outcome.added)
    return ImportReply.model_construct(**dict(answer), stored=stored)
