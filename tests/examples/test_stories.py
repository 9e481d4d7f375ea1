"""The shipped stories, planned on the command line as a newcomer would."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from app.cli.commands import app
from app.example_files import Story, examples_folder, stories

SECONDS, SERVING_SECONDS = 2, 20
"""Enough for a first plan on a busy machine; some end before, 5 % from the bound.  That of a serving plan is there
once its relaxation is solved, after a second on an idle core."""


def test_every_shipped_cluster_and_workload_has_a_story() -> None:
    """No file of either folder is left over, and names are unique."""
    folder = examples_folder()
    assert folder is not None
    told = {story.cluster for story in stories()} | {story.workload for story in stories()}
    formless = set((folder / "workloads").glob("reinforcement-*.yaml"))  # the form of both parts shows it instead
    assert told == {*(folder / "clusters").glob("*.yaml"), *(folder / "workloads").glob("*.yaml")} - formless
    assert len({story.name for story in stories()}) == len(stories())


@pytest.mark.parametrize("story", stories(), ids=lambda story: story.name)
def test_a_story_ends_with_a_plan(story: Story) -> None:
    """A few seconds of search are enough for a plan that fits and has a bound."""
    files = ["--cluster", str(story.cluster), "--model", story.model, "--workload", str(story.workload)]
    limit = SERVING_SECONDS if story.is_serving else SECONDS
    done = CliRunner().invoke(app, ["plan", *files, "--time-limit", str(limit), "--gap", "0.05", "--json"])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    certificate = plan["certificate"]
    assert 0 <= certificate["gap"] < 1
