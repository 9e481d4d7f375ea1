"""Dry run of an upload: read, combined and checked as storing would check it, and nothing is stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Final

from app.documents.cluster import ClusterDocument
from app.documents.measurements import MeasurementsDocument
from app.documents.reading import FieldProblem, problems_of
from app.documents.sample_checks import checked_samples
from app.imports.documents import (
    check_measurements,
    cluster_document,
    measurements_document,
    node_changes,
)
from app.imports.garbage_collection import seldom_collected
from app.imports.sources import SentFile, open_files
from app.imports.unused_answers import UnusedAnswer, unused_answers
from app.presentation.figures import plural
from app.serialization import jsonable
from cluster_models.cluster.measurements import Sample, SampleStatus
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import MOST_NODES, Cluster
from cluster_models.errors import InvalidInput
from cluster_models.links.classes import classify
from cluster_models.links.suspicions import reject_absurd, suspicions
from cluster_models.remarks import Remark
from readers.frame.reading import Reading
from readers.proposal.aliases import AliasTable
from readers.proposal.combine import combine
from readers.proposal.values import ALIAS, Answers, Proposal
from readers.registry import read

_DIGEST_LENGTH: Final = 32


@dataclass(frozen=True, slots=True)
class Report:
    """Report of an upload: its contents and the effect of storing it.

    ``cluster`` is ``None`` where something is missing or wrong (``problems``, or questions of the proposal), or
    where no file speaks of a node.  ``digest`` names all that went in: storing asks for the one that was seen.
    """

    readings: tuple[Reading, ...]
    proposal: Proposal
    cluster: ClusterDocument | None
    problems: tuple[FieldProblem, ...]
    suspicions: tuple[Remark, ...]
    changes: tuple[str, ...]
    digest: str
    answers: Answers = field(default_factory=Answers)
    """Answers that the report follows from, hosts of files included."""
    unused_answers: tuple[UnusedAnswer, ...] = ()
    """Answers of no effect; their problems are among ``problems``, too."""

    @property
    def measurements(self) -> MeasurementsDocument:
        """All samples, made anew at each call; none where no document can hold them, as ``problems`` say."""
        try:
            return measurements_document(self.proposal)
        except InvalidInput:
            return MeasurementsDocument(samples=[])


@seldom_collected()
def dry_run(
    files: Sequence[SentFile],
    *,
    name: str,
    known: Cluster | None,
    known_samples: Sequence[Sample],
    aliases: AliasTable,
    answers: Answers,
) -> Report:
    """The report of an upload to the cluster ``name``, of which ``known`` and ``known_samples`` are stored."""
    opened = open_files(files)
    readings = (*opened.refused, *(read(source) for source in opened.sources))
    hosts = {source.name: source.host for source in opened.sources if source.host is not None}
    answers = replace(answers, hosts={**hosts, **answers.hosts})
    proposal = combine(readings, aliases=aliases, known=known, answers=answers)
    lost = () if proposal.too_many_nodes else unused_answers(answers, readings, proposal, known)
    problems: list[FieldProblem] = [one.problem for one in lost]
    if proposal.too_many_nodes:
        problem = f"a cluster has at most {MOST_NODES:,} nodes"
        remedy = "plan a part of it: send the files of fewer"
        problems.append(FieldProblem("nodes", proposal.too_many_nodes, problem, remedy))
    try:
        check_measurements(proposal)
    except InvalidInput as error:
        problems.extend(problems_of(error))
    found: tuple[Remark, ...] = ()
    document: ClusterDocument | None = None
    if proposal.nodes:
        try:
            document = cluster_document(proposal, name=name, known=known)
            cluster = document.to_cluster()
            numbered = ((f"samples[{index}]", one.sample) for index, one in enumerate(proposal.samples))
            found = _suspicions(cluster, checked_samples(cluster, numbered, []), known_samples)
        except InvalidInput as error:
            problems.extend(problems_of(error))
    return Report(
        readings=readings,
        proposal=proposal,
        cluster=None if problems else document,
        problems=tuple(problems),
        suspicions=found,
        changes=_changes(proposal, known, known_samples),
        digest=_digest(files, name, known, aliases, answers),
        answers=answers,
        unused_answers=lost,
    )


def answered_aliases(answers: Answers) -> dict[str, str]:
    """Name -> node, of the answers to the questions which node goes by a name."""
    return {
        key.removeprefix(ALIAS): node.strip()
        for key, node in answers.chosen.items()
        if key.startswith(ALIAS) and len(key) > len(ALIAS) and node.strip()
    }


def _suspicions(cluster: Cluster, samples: Sequence[Sample], before: Sequence[Sample]) -> tuple[Remark, ...]:
    """Suspicions about all samples together; raises ``InvalidCluster`` of absurd ones."""
    together = tuple(dict.fromkeys((*before, *samples))) if before else tuple(samples)
    snapshot = ClusterSnapshot("", cluster, together)
    reject_absurd(snapshot, *classify(cluster))
    return suspicions(snapshot)


def _changes(proposal: Proposal, known: Cluster | None, known_samples: Sequence[Sample]) -> tuple[str, ...]:
    stored = set(known_samples)
    samples = [one.sample for one in proposal.samples]
    sentences = list(node_changes(proposal, known))
    for status, noun in ((SampleStatus.OK, "measurement"), (SampleStatus.FAILED, "failed test")):
        of_status = [sample for sample in samples if sample.status is status]
        repeated = sum(sample in stored for sample in of_status) if stored else 0  # hashing takes a tenth of it all
        for number, what in ((len(of_status) - repeated, "new"), (repeated, "stored already")):
            if number:
                sentences.append(f"{plural(number, noun)} {'is' if number == 1 else 'are'} {what}.")
    return tuple(sentences)


def _digest(
    files: Sequence[SentFile], name: str, known: Cluster | None, aliases: AliasTable, answers: Answers
) -> str:
    """A name for the files, in any order, and for all else that the report follows from."""
    contents = sorted((file.name, file.host or "", hashlib.sha256(file.data).hexdigest()) for file in files)
    said: Mapping[str, object] = {
        "files": contents,
        "name": name,
        "cluster": jsonable(known),
        "aliases": [dict(aliases.nodes), {key: list(names) for key, names in aliases.ambiguous.items()}],
        "answers": [_plain(answers)],
        "version": version("meshwright"),
    }
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]


def _plain(answers: Answers) -> dict[str, object]:
    plain: dict[str, object] = jsonable(replace(answers, accepted=frozenset()))
    return {**plain, "accepted": sorted(answers.accepted)}
