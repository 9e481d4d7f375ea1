"""Packages of a newcomer: pins, wheel contents, make targets, image and compose file."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PACKAGES = ("app", "solver", "readers", "cluster_models", "migrations")
OWN_GROUND = {"pydantic-core", "starlette", "typing-extensions"}
"""Libraries that pydantic and fastapi pin and pass on as part of their own interface."""
PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+]+)( ; [^\\]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def _normal(name: str) -> str:
    """The name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins(file: str) -> dict[str, tuple[int, ...]]:
    text = (ROOT / file).read_text("utf-8")
    assert PIN.sub("", re.sub(r"(?m)^(#|-r ).*\n", "", text)) == "", (
        f"{file} has lines that are not an exact pin with hashes"
    )
    return {_normal(match[1]): _version(match[2]) for match in PIN.finditer(text)}


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _requirements(lines: list[str]) -> dict[str, str]:
    matches = [re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?(.*)", line) for line in lines]
    return {_normal(match[1]): match[2] for match in matches if match}


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("requirements.lock", PROJECT["project"]["dependencies"]),
        ("requirements-dev.lock", PROJECT["dependency-groups"]["dev"]),
    ],
)
def test_locks_pin_what_the_project_asks_for(file: str, wanted: list[str]) -> None:
    """Every declared dependency has one exact pin, no older than its lower limit."""
    pins = _pins(file)
    for name, limits in _requirements(wanted).items():
        assert name in pins, f"{name} is not in {file}: run make lock"
        least = re.search(r">=([\d.]+)", limits)
        assert least, f"{name} has no lower limit"
        assert pins[name] >= _version(least[1]), f"{name} is pinned below {least[1]}: run make lock"


def test_locks_do_not_contradict_each_other() -> None:
    """No distribution is pinned in both files."""
    assert not set(_pins("requirements.lock")) & set(_pins("requirements-dev.lock"))


def test_locks_have_the_hashes_of_every_machine() -> None:
    """One file for each Python and processor, so numpy and numba have many: a lock of one machine has one."""
    text = (ROOT / "requirements.lock").read_text("utf-8")
    for match in PIN.finditer(text):
        if match[1] in ("numpy", "numba", "scipy", "highspy"):
            assert match[4].count("--hash") >= 12, f"{match[1]} lacks files: run make lock"


def test_the_installer_comes_from_the_lock() -> None:
    """With all its hashes, as the recipe takes it: without it everything installs six times as slowly."""
    recipe = re.search(r"sed -n '(.*uv==.*)' (requirements-dev.lock) ", (ROOT / "Makefile").read_text("utf-8"))
    assert recipe
    found = subprocess.check_output(["sed", "-n", recipe[1].replace("$$", "$"), recipe[2]], cwd=ROOT, text=True)
    assert [match[1] for match in PIN.finditer(found)] == ["uv"]
    assert PIN.sub("", found) == ""


def test_the_bill_of_materials_lists_the_lock(tmp_path: Path) -> None:
    """Every pin with its hashes, and nothing else."""
    made = tmp_path / "sbom.json"
    command = ["-m", "cyclonedx_py", "requirements", "requirements.lock", "--no-validate", "-o", str(made)]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, capture_output=True)
    components = json.loads(made.read_text("utf-8"))["components"]
    assert {_normal(each["name"]) for each in components} == set(_pins("requirements.lock"))
    assert all(each["externalReferences"][0]["hashes"] for each in components)


def test_every_imported_library_is_declared() -> None:
    """Every package of ours imports only libraries that stand among the dependencies, nothing by luck."""
    declared = set(_requirements(PROJECT["project"]["dependencies"]))
    distributions = packages_distributions()
    undeclared = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for root in _imported_roots(path) - set(sys.stdlib_module_names) - set(PACKAGES):
            names = {_normal(name) for name in distributions.get(root, [root])}
            if not names & (declared | OWN_GROUND):
                undeclared.add(f"{path.relative_to(ROOT)} imports {root}")
    assert undeclared == set()


def _imported_roots(path: Path) -> set[str]:
    roots = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            roots.add(node.module.partition(".")[0])
    return roots


def test_every_library_has_its_reason() -> None:
    """The folder of decisions names each requirement of the project and of its checks."""
    pages = [page.read_text("utf-8") for page in (ROOT / "docs" / "decisions").glob("0*.md")]
    reasons = _normal("\n".join(pages)).replace(" ", "-")
    wanted = _requirements([*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]])
    roots = {re.sub(r"^opentelemetry-.*", "opentelemetry", name) for name in wanted}
    assert sorted(name for name in roots if name not in reasons) == []


def test_the_wheel_carries_every_data_file() -> None:
    """Whatever lies beside the code is matched by a package-data pattern, or an installed copy would lack it."""
    patterns: dict[str, list[str]] = PROJECT["tool"]["setuptools"]["package-data"]
    missing = []
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            inside = path.relative_to(ROOT / package).as_posix()
            if not path.is_file() or "__pycache__" in path.parts or path.suffix in (".py", ".pyc", ".mako"):
                continue
            if not any(fnmatch(inside, pattern.replace("**/", "*")) for pattern in patterns.get(package, [])):
                missing.append(f"{package}/{inside}")
    assert missing == []


def test_the_wheel_carries_every_example() -> None:
    """Every file of the examples lies in a folder that the wheel takes along."""
    taken = {pattern for patterns in PROJECT["tool"]["setuptools"]["data-files"].values() for pattern in patterns}
    files = [path for path in (ROOT / "examples").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    left = {str(path.relative_to(ROOT)) for path in files if not any(path.match(pattern) for pattern in taken)}
    assert files
    assert left == set()


@pytest.mark.slow
def test_the_archives_install_and_run_outside_of_the_checkout(tmp_path: Path) -> None:
    """A wheel made from the source archive migrates a database, serves pages and carries the examples."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    home = tmp_path / "home"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    site = next((home / "lib").glob("python*/site-packages"))
    (site / "shared.pth").write_text("\n".join(path for path in sys.path if "site-packages" in path))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    install = [
        "-m",
        "pip",
        "--python",
        str(home),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",
        str(wheel),
    ]
    subprocess.run([sys.executable, *install], check=True, capture_output=True)

    def meshwright(*arguments: str) -> str:
        command = [str(home / "bin" / "meshwright"), *arguments]
        environment = _outside_of_make() | {"MESHWRIGHT_DATA_DIR": str(tmp_path / "data")}
        environment.pop("PYTHONPATH", None)
        return subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert meshwright("--version").split()[-1] == PROJECT["project"]["version"]
    assert "A first plan" in meshwright("examples", "mine")
    assert "stored as version 1" in meshwright("cluster", "import", "mine/clusters/two-nodes.yaml")
    listed = {path.relative_to(tmp_path / "mine") for path in (tmp_path / "mine").rglob("*") if path.is_file()}
    assert Path("workloads/llama-3-8b-small.yaml") in listed
    code = "import app, cluster_models; from app.example_files import stories; print(app.__file__, len(stories()))"
    where, count = subprocess.run(
        [str(home / "bin" / "python"), "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.split()
    assert where.startswith(str(home))
    assert int(count) >= 10


def test_every_folder_with_code_is_a_package() -> None:
    """Each folder of modules has an ``__init__.py``, so that tools and wheels see the same packages."""
    folders = {path.parent for package in PACKAGES[:3] for path in (ROOT / package).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def _outside_of_make() -> dict[str, str]:
    """The environment without what a running ``make test`` would pass to a make below it."""
    return {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    "target", ["help", "demo", "test", "serve", "lint", "lock", "sbom", "audit", "benchmarks", "clean"]
)
def test_make_knows_its_targets(target: str) -> None:
    """Every target of the manual can be planned without an error."""
    subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True, env=_outside_of_make())


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("settings", "fails", "installers"),
    [
        ("global.index_url='http://a'\n:env:.index_url='http://b'".replace("_", "-"), 0, ["uv http://b"]),
        ("", 0, ["uv"]),
        ("", 1, ["uv", "pip"]),
        (":env:.no-index='1'", 0, ["pip"]),
    ],
)
def test_pip_installs_where_uv_does_not(tmp_path: Path, settings: str, fails: int, installers: list[str]) -> None:
    """From the index that pip is set to; from none where pip is to use none."""
    (tmp_path / "settings").write_text(settings)
    (tmp_path / "bin").mkdir()
    pip = 'case "$*" in *config*) cat settings ;; *) echo pip ;; esac'
    uv = 'echo uv "$@" | sed -E "s/^uv .*--python [^ ]*( --default-index|)(.*) wanted/uv\\2/"; exit ' + str(fails)
    for name, script in (("python", pip), ("uv", uv)):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    command = ["make", "-s", "-f", str(ROOT / "Makefile"), "VENV=.", "--eval=it: ; @$(call install,wanted)", "it"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == installers, done.stderr


def test_an_old_python_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """The set-up says which Python it needs instead of failing later in some library."""
    old = tmp_path / "python3"
    old.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.version_info = (3, 9, 2); exec(sys.argv[1])" "$2"\n'
    )
    old.chmod(0o755)
    command = ["make", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}", "demo"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, env=_outside_of_make())
    assert done.returncode != 0
    assert "Meshwright needs Python 3.11 or newer" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_ci_is_make_test() -> None:
    """The check of a commit is what a developer runs, and nothing else."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = [line for line in script.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    assert lines == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make --jobs 3 test"]


def _compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    return loaded


def test_compose_starts_things_in_order() -> None:
    """Web and workers wait for a healthy database and a finished migration; the database keeps its data."""
    services = _compose()["services"]
    assert set(services) == {"db", "migrate", "web", "worker", "prometheus", "grafana"}
    assert services["migrate"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    for name in ("web", "worker"):
        waits = {other: rule["condition"] for other, rule in services[name]["depends_on"].items()}
        assert waits == {"db": "service_healthy", "migrate": "service_completed_successfully"}
    assert "healthcheck" in services["db"]
    kept = (services[name]["volumes"][-1].partition(":")[0] for name in ("db", "prometheus", "grafana"))
    assert list(kept) == list(_compose()["volumes"])
    assert {name for name in services if "profiles" in services[name]} == {"prometheus", "grafana"}
    assert "container_name" not in services["worker"], "a named container cannot be scaled"
    assert [services[name]["command"] for name in ("migrate", "web", "worker")] == [
        ["migrate"],
        ["serve"],
        ["worker"],
    ]


@pytest.mark.parametrize("service", ["migrate", "web", "worker"])
def test_compose_runs_commands_that_exist(service: str) -> None:
    """The command line knows what each container is told to run."""
    command = [
        str(Path(sys.executable).parent / "meshwright"),
        *_compose()["services"][service]["command"],
        "--help",
    ]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr


def test_compose_has_no_default_password() -> None:
    """Without POSTGRES_PASSWORD nothing starts."""
    services = _compose()["services"]
    for name, variable in (("db", "POSTGRES_PASSWORD"), ("web", "PGPASSWORD"), ("worker", "PGPASSWORD")):
        assert services[name]["environment"][variable].startswith("${POSTGRES_PASSWORD:?")


def test_compose_and_image_set_only_known_settings() -> None:
    """Every MESHWRIGHT_ variable is one that the service reads."""
    from app.settings import Settings  # noqa: PLC0415 - keeps the other tests free of the service

    text = (ROOT / "docker-compose.yml").read_text("utf-8") + (ROOT / "Dockerfile").read_text("utf-8")
    used = {name.lower() for name in re.findall(r"MESHWRIGHT_([A-Z_]+)", text)}
    assert used <= set(Settings.model_fields)


def _compose_command() -> list[str] | None:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        if subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0:
            return command
    return None


def test_compose_accepts_the_file(tmp_path: Path) -> None:
    """``docker compose config`` takes it with a password set, and refuses it without."""
    command = _compose_command()
    if command is None:
        pytest.skip("docker compose is not installed")
    environment = {key: value for key, value in os.environ.items() if key != "POSTGRES_PASSWORD"}
    no_settings = tmp_path / "empty.env"
    no_settings.touch()
    config = [*command, "--file", "docker-compose.yml", "--env-file", str(no_settings), "config", "--quiet"]
    refused = subprocess.run(config, cwd=ROOT, check=False, capture_output=True, text=True, env=environment)
    assert refused.returncode != 0
    assert "POSTGRES_PASSWORD" in refused.stderr
    environment["POSTGRES_PASSWORD"] = "for the check only"  # noqa: S105 - no secret
    subprocess.run(config, cwd=ROOT, check=True, capture_output=True, env=environment)


def test_the_image_is_small_and_unprivileged() -> None:
    """Two stages, a numbered user, a health check without curl, and a signal that uvicorn understands."""
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    bases = [line for line in lines if line.startswith("FROM ")]
    assert bases == ["FROM python:3.12-slim AS build", "FROM python:3.12-slim"]
    last_stage = lines[lines.index(bases[-1]) :]
    assert "USER 10001:10001" in last_stage
    assert "STOPSIGNAL SIGTERM" in last_stage
    assert any("/healthz" in line and '"python"' in line for line in last_stage)
    assert not any("pip install" in line or "apt-get" in line for line in last_stage)
    sources = {
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    }
    assert all((ROOT / source).exists() for source in sources)
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")
    }
    assert sources <= allowed, "the build context lacks a file that the image copies"
