"""Predictions of serving on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from app.documents.reading import InvalidDocument, read_document
from app.documents.serving import ServingConfigurationDocument, ServingWorkloadDocument
from tests.app.command_files import CLUSTER

WORKLOAD = "kind: serving\ninput_tokens: 1024\noutput_tokens: 512\nconcurrency: 16\nweights: fp8\n"
WORKER = "worker: {tensor: 4}\n"


def _predict(
    folder: Path, *, workload: str = WORKLOAD, workers: str = WORKER, model: str = "llama-3.1-8b"
) -> list[str]:
    texts = {"cluster.yaml": CLUSTER, "workload.yaml": workload, "workers.yaml": workers}
    for name, text in texts.items():
        (folder / name).write_text(text)
    words = ["--cluster", "cluster.yaml", "--workload", "workload.yaml", "--configuration", "workers.yaml"]
    files = [str(folder / word) if word.endswith(".yaml") else word for word in words]
    return ["predict", "--model", model, *files]


def test_times_throughput_memory_and_where_the_time_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As text, as JSON and in a file."""
    out = tmp_path / "out.json"
    assert main([*_predict(tmp_path), "--output", str(out)]) == 0
    screen = capsys.readouterr().out
    for words in (
        "time to first token",
        "time per output token",
        "tokens/s",
        "largest batch",
        "collectives",
        "GiB",
    ):
        assert words in screen, words
    assert main([*_predict(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(out.read_text())
    assert found["fits"] is True
    assert (found["gpus"], found["nodes"]) == (4, ["n1"])
    token = found["time_per_output_token_ms"]
    assert token["low"] < token["value"] < token["high"]
    parts = [value for name, value in found["decode_step"].items() if name != "total_ms"]
    assert sum(parts) == pytest.approx(found["decode_step"]["total_ms"])
    assert found["requests_per_s"] * 512 == pytest.approx(found["output_tokens_per_s"]["value"])


CLASSES = """kind: serving
requests_per_s: 2
weights: fp8
classes:
- {name: chat, share: 3, input_tokens: {quantiles: {p50: 500, p99: 4000}}, output_tokens: 200}
- {name: long, input_tokens: 8000, output_tokens: 50, time_to_first_token_ms: 1}
"""


def test_classes_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Percentiles of each, and the class whose limit is missed."""
    assert main(_predict(tmp_path, workload=CLASSES)) == 0
    screen = capsys.readouterr().out
    assert "of chat: to first token" in screen
    assert "the limit long.time_to_first_token_ms is missed" in screen
    assert main([*_predict(tmp_path, workload=CLASSES), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found["classes"]] == ["chat", "long"]
    chat, long = (each["time_to_first_token_percentiles_ms"]["p50"] for each in found["classes"])
    assert chat < long


def test_a_trace_takes_the_place_of_lengths_and_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Priced by its rate and lengths, and simulated; what is wrong with it names the row."""
    trace = tmp_path / "trace.jsonl"
    rows = ({"timestamp": 200 * row, "input_length": 900 + row, "output_length": 90} for row in range(50))
    trace.write_text("\n".join(map(json.dumps, rows)))
    command = [*_predict(tmp_path, workload="kind: serving\nweights: fp8\n"), "--trace", str(trace)]
    assert main(command) == 0
    assert "simulated" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["requests_per_s"] == pytest.approx(5.0)
    assert found["replay"]["requests"] == 50
    trace.write_text(trace.read_text().replace(": 91", ": -91"))
    assert main(command) == 2
    assert "row 11: input_length must be a whole number" in capsys.readouterr().err
    assert main([*_predict(tmp_path), "--trace", str(trace)]) == 2
    assert "input_tokens: conflicts with a trace" in capsys.readouterr().err


def test_experts_are_placed_for_counts_of_the_router(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Uneven counts slow the experts, copies give some of it back; options of training are refused."""
    counts = tmp_path / "decode.json"
    counts.write_text(json.dumps([[20] * 5 + [1] * 123] * 2))
    words = [*_predict(tmp_path, model="qwen3-30b-a3b", workers="worker: {tensor: 4, expert: 4}\n"), "--json"]
    even, uneven, copied = (
        _experts_ms([*words, *more], capsys)
        for more in (
            ["--redundant", "124", "--routing", str(_even(tmp_path))],
            ["--routing", str(counts)],
            ["--routing", str(counts), "--redundant", "124"],
        )
    )
    assert even < copied < uneven
    for option in (["--routing-weight", "decode=2"], ["--keep-expert-order"]):
        assert main([*words, "--routing", str(counts), *option]) == 2
        assert f"{option[0]}: belongs to training" in capsys.readouterr().err


def _even(folder: Path) -> Path:
    (folder / "even.json").write_text(json.dumps([[1] * 128] * 2))
    return folder / "even.json"


def _experts_ms(command: list[str], capsys: pytest.CaptureFixture[str]) -> float:
    assert main(command) == 0
    return float(json.loads(capsys.readouterr().out)["decode_step"]["experts_ms"])


def test_split_pools_take_nodes_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each pool has its memory."""
    workers = "prefill: {tensor: 4}\ndecode: {tensor: 2, replicas: 2}\n"
    assert main([*_predict(tmp_path, workers=workers), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["role"] for each in found["memory"]] == ["prefill", "decode"]
    assert found["nodes"] == ["n1", "n2"]


def test_slower_measured_links_slow_what_crosses_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A worker over two nodes of a network that measures a tenth."""
    times = []
    for rate in ("40", "4"):
        command = _predict(tmp_path, workers="worker: {tensor: 8}\n")
        (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("[n1, n2, 40]", f"[n1, n2, {rate}]"))
        assert main([*command, "--json"]) == 0
        times.append(json.loads(capsys.readouterr().out)["time_per_output_token_ms"]["value"])
    assert times[1] > times[0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workload": WORKLOAD.replace("concurrency: 16", "requests_per_s: 0")}, "requests_per_s: must be greater"),
        (
            {"workload": WORKLOAD.replace("concurrency: 16", "requests_per_s: .inf")},
            "requests_per_s: must be a finite",
        ),
        ({"workload": WORKLOAD.replace("concurrency: 16", "requests_per_s: 1.0e+5")}, "answers at most"),
        ({"workload": WORKLOAD.replace("concurrency: 16", "")}, "concurrency: a load is either"),
        ({"workload": WORKLOAD.replace("1024", "131072")}, "takes 131072"),
        ({"workload": WORKLOAD + "engine: vllm-9\n"}, "engine: no such serving engine"),
        ({"workload": WORKLOAD.replace("fp8", "fp7")}, "weights: must be one of"),
        ({"workload": WORKLOAD + "ttft: 3\n"}, "ttft: unknown field"),
        ({"workload": WORKLOAD.replace("fp8", "nvfp4") + "engine: vllm-0.6\n"}, "does not serve this format"),
        ({"workers": "worker: {tensor: 3}\n"}, "worker.tensor: must divide"),
        ({"workers": "worker: {tensor: 4, expert: 4}\n"}, "has no experts"),
        ({"workers": "worker: {tensor: 4, replicas: 3}\n"}, "8 free GPUs"),
        ({"workers": "prefill: {tensor: 4}\n"}, "either worker, or prefill and decode"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: dict[str, str], said: str
) -> None:
    """Field, value and remedy; exit code 2, nothing printed."""
    assert main(_predict(tmp_path, **given)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.strip().splitlines()) == 1


def test_what_does_not_fit_is_code_three(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is priced all the same."""
    assert main(_predict(tmp_path, workers="worker: {tensor: 1}\n", model="llama-3.1-405b")) == 3
    captured = capsys.readouterr()
    assert "does not fit" in captured.err
    assert "Memory of a GPU" in captured.out


def test_options_of_training_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A description of a framework says nothing of serving."""
    assert main([*_predict(tmp_path), "--framework-file", "own.yaml"]) == 2
    assert "--framework-file: belongs to training" in capsys.readouterr().err


def test_a_configuration_has_one_shape() -> None:
    """A worker beside pools is refused."""
    both = {"worker": {"tensor": 1}, "decode": {"tensor": 1}}
    with pytest.raises(InvalidDocument, match="either worker"):
        read_document(ServingConfigurationDocument, both, what="configuration")


@pytest.mark.parametrize("kind", [ServingWorkloadDocument, ServingConfigurationDocument])
def test_every_field_is_described(kind: type[ServingWorkloadDocument]) -> None:
    """The HTTP reference is made of these texts."""
    definitions = kind.model_json_schema()
    for schema in (definitions, *definitions.get("$defs", {}).values()):
        for name, field in schema.get("properties", {}).items():
            assert field.get("description"), f"{schema['title']}.{name} has no description"
