"""An export of a serving plan: files made from its servers, and a second reader that finds them there again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from app.exports.contract import ZIP, Family, Files, unreadable
from app.exports.options import DEFAULTS, Options
from app.exports.serving.claims import ServerClaims, server_claims
from app.exports.serving.deployment import Deployment, Server, deployment_of
from cluster_models.errors import InvalidConfiguration
from cluster_models.serving.plan import ServingPlan


@dataclass(frozen=True, slots=True)
class ServingExport:
    """One format of a serving plan.  ``media_type`` is ``ZIP`` where it makes several files.

    ``servers`` are those that the format starts; ``render`` raises ``InvalidConfiguration`` where the target cannot
    do what was planned.  ``read_back`` finds their figures in the files, ``None`` for a format that starts nothing;
    ``numbered_gpus``: it says which GPUs.  ``takes`` are the options it uses.
    """

    name: str
    file_name: str
    media_type: str
    description: str
    family: Family
    servers: Callable[[Deployment], tuple[Server, ...]]
    render: Callable[[Deployment, tuple[Server, ...], Options], Files]
    read_back: Callable[[Files, Sequence[Server]], tuple[ServerClaims, ...]] | None
    numbered_gpus: bool = True
    takes: tuple[str, ...] = ()

    @property
    def is_folder(self) -> bool:
        """Whether it makes several files."""
        return self.media_type == ZIP

    def files(self, plan: ServingPlan, options: Options = DEFAULTS) -> Files:
        """The files of a plan, read back; raises ``InvalidConfiguration``."""
        deployment = deployment_of(plan, options)
        servers = self.servers(deployment)
        files = self.render(deployment, servers, options)
        self.check(files, servers)
        return files

    def check(self, files: Files, servers: Sequence[Server]) -> None:
        """Raise ``InvalidConfiguration`` where files do not start exactly these servers."""
        if self.read_back is None:
            return
        try:
            found = self.read_back(files, servers)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise unreadable(
                f"exports.{self.name}", [file.name for file in files], f"not read back: {error}"
            ) from error
        expected = tuple(server_claims(server, numbered_gpus=self.numbered_gpus) for server in servers)
        if [claims.number for claims in found] != [claims.number for claims in expected]:
            numbers = [claims.number for claims in found]
            raise unreadable(f"exports.{self.name}", numbers, "are not the replicas of the plan")
        for said, meant in zip(found, expected, strict=True):
            for field in fields(ServerClaims):
                if getattr(said, field.name) != getattr(meant, field.name):
                    what = f"exports.{self.name}.replicas[{meant.number}].{field.name}"
                    problem = f"the files do not say what the plan does, {getattr(meant, field.name)!r}"
                    raise unreadable(what, getattr(said, field.name), problem)


def serving_refusal(export: ServingExport, plan: ServingPlan) -> InvalidConfiguration | None:
    """The error that exporting the plan so would raise; ``None`` where it can be exported."""
    try:
        export.files(plan)
    except InvalidConfiguration as error:
        return error
    return None
