"""Answers of aiconfigurator as JSON, made by an interpreter that has it: ``python -I aiconfigurator_worker.py``.

Standard input: ``estimates``, arguments of ``cli_estimate`` each, and ``plans``, those of ``cli_default``.  It
imports nothing of ours, since the two need different versions of the same libraries.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from contextlib import redirect_stdout
from importlib import import_module
from importlib.metadata import version
from typing import Any


def estimate(api: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds to the first token and per token; ``refused`` with the reason where it answers nothing."""
    try:
        found = api.cli_estimate(**arguments)
    except Exception as error:  # noqa: BLE001 - it raises a dozen kinds
        return {"refused": f"{type(error).__name__}: {error}"}
    return {"ttft_ms": float(found.ttft), "tpot_ms": float(found.tpot)}


def plan(api: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The best row of the best way of serving, plain values only; ``processor_s`` is what the search took."""
    started = time.process_time()
    found = api.cli_default(**arguments)
    best = found.best_configs[found.chosen_exp].iloc[0].to_dict()
    plain = {name: value for name, value in best.items() if isinstance(value, (int, float, str))}
    return {**plain, "processor_s": time.process_time() - started}


def main() -> None:
    """Read the questions, print the answers and nothing else."""
    asked = json.load(sys.stdin)
    with redirect_stdout(sys.stderr):
        api = import_module("aiconfigurator.cli.api")
        logging.disable(logging.CRITICAL)
        answers = {
            "version": version("aiconfigurator"),
            "estimates": [estimate(api, each) for each in asked["estimates"]],
            "plans": [plan(api, each) for each in asked["plans"]],
        }
    json.dump(answers, sys.stdout, default=float)


if __name__ == "__main__":
    main()
