"""Files to deploy with: metrics that exist, manifests that Kubernetes takes, and containers that may do little."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from app.metrics import make_metrics
from app.settings import Settings

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8"))
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "meshwright.json").read_text("utf-8"))
MANIFESTS = [
    manifest
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    if path.name != "kustomization.yaml"
    for manifest in yaml.safe_load_all(path.read_text("utf-8"))
]
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
LABELS_OF_TARGETS = {"job", "instance", "le"}


def _exposed() -> dict[str, set[str]]:
    """Series at ``/metrics``, and the labels that each may have."""
    made = make_metrics()
    labels = {
        family.name: set(metric._labelnames)
        for name in made.__slots__
        if hasattr(metric := getattr(made, name), "_labelnames")
        for family in metric.describe()
    }
    text = (generate_latest(made.registry) + generate_latest(made.asked)).decode()
    return {
        (f"{family.name}_total" if family.type == "counter" else family.name) + suffix: labels.get(
            family.name, set()
        )
        for family in text_string_to_metric_families(text)
        for suffix in SUFFIXES.get(family.type, ("",))
        if not family.name.endswith("_created")
    } | {"up": set()}


def _selectors(expression: Any) -> Iterator[Any]:
    """The series that a parsed expression of PromQL asks for."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for name in ("lhs", "rhs", "expr", "vector_selector", "args", "param"):
        below = getattr(expression, name, None)
        for each in below if isinstance(below, list) else [below]:
            if each is not None:
                yield from _selectors(each)


def _expressions() -> Iterator[tuple[str, str]]:
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m")


@pytest.mark.parametrize(("where", "expression"), list(_expressions()))
def test_alerts_and_panels_ask_for_metrics_that_exist(where: str, expression: str) -> None:
    """Each expression is PromQL, its series are at ``/metrics``, and so are the labels that it compares."""
    exposed, found = _exposed(), list(_selectors(promql_parser.parse(expression)))
    assert found, where
    for selector in found:
        assert selector.name in exposed, f"{where}: nothing exposes {selector.name}"
        compared = {matcher.name for matcher in selector.matchers.matchers}
        assert compared <= exposed[selector.name] | LABELS_OF_TARGETS, f"{where}: {compared}"


def test_every_metric_of_ours_is_on_the_dashboard() -> None:
    """Whoever adds one says what it is watched for."""
    text = json.dumps(DASHBOARD)
    families = {
        re.sub(r"_(bucket|sum|count|info)$", "", name) for name in _exposed() if name.startswith("meshwright_")
    }
    assert [name for name in sorted(families) if name not in text] == ["meshwright_build"]


def test_alerts_say_how_bad_it_is_and_what_to_do() -> None:
    """The fields that Prometheus knows and no others; a severity, a summary, a description."""
    rules = [rule for group in ALERTS["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert (
            {"alert", "expr", "labels", "annotations"}
            <= set(rule)
            <= {"alert", "expr", "for", "labels", "annotations"}
        )
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert re.fullmatch(r"\d+[smhd]", rule.get("for", "0s"))


def test_panels_lie_beside_each_other() -> None:
    """No two panels overlap, and none leaves the 24 columns."""
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for cell in (
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ):
            assert taken.setdefault(cell, panel["title"]) == panel["title"]


def test_prometheus_asks_where_containers_answer() -> None:
    """Its jobs are those that alerts name; web is asked with a key, workers at the port that they are told."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert set(jobs) == {"meshwright-web", "meshwright-worker"}
    assert jobs["meshwright-web"]["authorization"] == {"credentials_file": "/run/secrets/metrics_key"}
    assert compose["prometheus"]["secrets"] == ["metrics_key"]
    asked = {name: job["dns_sd_configs"][0] for name, job in jobs.items()}
    assert asked["meshwright-web"]["names"] == ["web"]
    assert compose["web"]["ports"][0].endswith(f":{asked['meshwright-web']['port']}")
    assert asked["meshwright-worker"]["names"] == ["worker"]
    told = compose["worker"]["environment"]["MESHWRIGHT_METRICS_PORT"]
    assert told == str(asked["meshwright-worker"]["port"])
    assert compose["worker"]["deploy"]["replicas"] == 2
    assert all((DEPLOY / "prometheus" / name).is_file() for name in config["rule_files"])


def test_the_compose_file_is_what_its_schema_says() -> None:
    """No misspelt field; ``docker compose`` itself is asked where it is installed."""
    command = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "docker-compose.yml"]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_kubernetes_takes_the_manifests() -> None:
    """Every one is what its schema says, without a field that Kubernetes does not know; the list is complete."""
    # it makes parsers for two seconds, which no other worker needs
    import kubernetes_validate  # noqa: PLC0415

    for manifest in MANIFESTS:
        kubernetes_validate.validate(manifest, "1.33", strict=True)
    listed = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text("utf-8"))["resources"]
    assert {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")} == {*listed, "kustomization.yaml"}
    kinds = sorted(f"{manifest['kind']} {manifest['metadata']['name']}" for manifest in MANIFESTS)
    assert kinds == [
        "ConfigMap meshwright",
        "Deployment meshwright-web",
        "Deployment meshwright-worker",
        "Job meshwright-migrate",
        "PodDisruptionBudget meshwright-web",
        "PodDisruptionBudget meshwright-worker",
        "Service meshwright",
    ]


def _pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest in MANIFESTS:
        if "template" in manifest.get("spec", {}):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]


@pytest.mark.parametrize(("name", "pod"), list(_pods()))
def test_pods_may_do_little(name: str, pod: dict[str, Any]) -> None:
    """Nobody's root, a file system that cannot be written, no token, limits; the password comes from a Secret."""
    spec = pod["spec"]
    assert not spec["automountServiceAccountToken"]
    assert not spec["enableServiceLinks"], "MESHWRIGHT_PORT of the Service would be taken for the setting"
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    (container,) = spec["containers"]
    (password,) = (each for each in container["env"] if each["name"] == "PGPASSWORD")
    assert password["valueFrom"] == {"secretKeyRef": {"name": "meshwright-database", "key": "password"}}


def test_pods_are_found_by_what_refers_to_them() -> None:
    """Selectors match the labels of one kind of pod each, probes name ports, and settings are ones of ours."""
    pods = dict(_pods())
    labels = {name: pod["metadata"]["labels"] for name, pod in pods.items()}
    settings = next(manifest for manifest in MANIFESTS if manifest["kind"] == "ConfigMap")["data"]
    for manifest in MANIFESTS:
        selector = manifest.get("spec", {}).get("selector")
        if selector is not None:
            wanted = selector.get("matchLabels", selector)
            assert [name for name, given in labels.items() if wanted.items() <= given.items()] in (
                ["meshwright-web"],
                ["meshwright-worker"],
            )
    for name in ("meshwright-web", "meshwright-worker"):
        (container,) = pods[name]["spec"]["containers"]
        ports = {port["name"] for port in container["ports"]}
        probes = [container[probe] for probe in container if probe.endswith("Probe")]
        assert {probe["httpGet"]["port"] for probe in probes} <= ports
        named = {each["name"] for each in container["env"]} | set(settings)
        assert {each.removeprefix("MESHWRIGHT_").lower() for each in named - {"PGPASSWORD"}} <= set(
            Settings.model_fields
        )
