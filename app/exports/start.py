"""Beginning of every launch script, before it starts ranks: remarks, the environment, the command."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Final

from app.exports.claims import Claims, claims_of
from app.exports.launch_value import Launch
from app.exports.megatron import array_lines, environment_lines, megatron_arguments, remarks
from app.exports.megatron_flags import Arguments
from app.exports.megatron_releases import Connections, connections, starts_megatron
from app.exports.options import DEFAULTS, Options
from app.exports.power import cap_remarks

SAVE_INTERVAL: Final = 500
"""Steps between checkpoints unless the environment says otherwise; Megatron-LM refuses a path without a number."""
_RANKS: Final = ("world", "hosts", "first_host", "gpus_per_host", "gpus")
NO_CHECKPOINT: Final = "CHECKPOINT_PATH is empty: set it to the folder that training loads from and saves to"
NO_COMMAND: Final = "TRAIN_COMMAND is empty: name the training script in this file"


def training_arguments(launch: Launch) -> Arguments:
    """Megatron-LM's arguments where the plan is for it; none for other frameworks, whose commands hold theirs."""
    return megatron_arguments(launch) if starts_megatron(launch.plan) else Arguments(())


def training_command(launch: Launch, options: Options) -> tuple[str, ...]:
    """The script and its arguments; empty where the default is another framework's script."""
    default = options.command == DEFAULTS.command and not starts_megatron(launch.plan)
    return () if default and launch.plan.workload is not None else options.command


def preparation(launch: Launch, options: Options) -> list[str]:
    """Lines of bash: remarks, environment, ``TRAIN_COMMAND``, and where the plan is for Megatron its arguments.

    The script ends with exit code 2 where the command or the path of checkpoints is empty.
    """
    command = training_command(launch, options)
    lines = [f"# {remark}" for remark in start_remarks(launch)]
    lines += [*environment_lines(launch), f"TRAIN_COMMAND=({shlex.join(command)})"]
    lines += _refused('"${TRAIN_COMMAND[*]}"', NO_COMMAND)
    if starts_megatron(launch.plan):
        lines.append(f'CHECKPOINT_PATH="${{CHECKPOINT_PATH:-{options.checkpoint}}}"')
        lines += _refused('"$CHECKPOINT_PATH"', NO_CHECKPOINT)
        lines += array_lines(training_arguments(launch))
        lines.append(
            'CHECKPOINT_ARGS=(--load "$CHECKPOINT_PATH" --save "$CHECKPOINT_PATH" '
            f'--save-interval "${{SAVE_INTERVAL:-{SAVE_INTERVAL}}}")'
        )
    return lines


def command_words(launch: Launch) -> str:
    """The command of a rank in bash, after ``preparation``; what the caller of the script adds comes last."""
    arrays = ["TRAIN_COMMAND"] + ["MEGATRON_ARGS", "CHECKPOINT_ARGS"] * starts_megatron(launch.plan)
    return " ".join([*(f'"${{{name}[@]}}"' for name in arrays), '"$@"'])


def one_line(launch: Launch, options: Options, checkpoint: str = "") -> str:
    """The command of a rank in one line of bash.

    Without a ``checkpoint`` of its own it takes ``CHECKPOINT_PATH`` of its environment, and refuses an empty one.
    """
    command = training_command(launch, options) or ("TRAINING_SCRIPT",)
    if not starts_megatron(launch.plan):
        return shlex.join(command)
    arguments = [word for flag in training_arguments(launch).flags for word in shlex.split(flag)]
    place = checkpoint or f'"${{CHECKPOINT_PATH:?{NO_CHECKPOINT.removeprefix("CHECKPOINT_PATH ")}}}"'
    interval = f'"${{SAVE_INTERVAL:-{SAVE_INTERVAL}}}"'
    return f"{shlex.join((*command, *arguments))} --load {place} --save {place} --save-interval {interval}"


def environment(launch: Launch) -> dict[str, str]:
    """Variables of a container or a command line."""
    match connections(launch):
        case Connections(int(count)):
            return {"CUDA_DEVICE_MAX_CONNECTIONS": str(count)}
        case _:
            return {}


def start_remarks(launch: Launch) -> list[str]:
    """Remarks that the owner must read before a start, a sentence each."""
    plan = launch.plan
    if plan.workload is None:
        return []
    caps = cap_remarks(launch)
    if starts_megatron(plan):
        return [*caps, *remarks(launch, training_arguments(launch))]
    name = plan.workload.framework.generation
    return [*caps, f"Priced as {name}, whose own arguments must be part of the command."]


def started(launch: Launch) -> Claims:
    """Claims that launch scripts must make: all of the plan where they hold its arguments, else where ranks are."""
    claims = claims_of(launch)
    if starts_megatron(launch.plan):
        return claims
    return replace(Claims(), **{name: getattr(claims, name) for name in _RANKS})


def _refused(value: str, problem: str) -> list[str]:
    return [f'if [[ -z {value} ]]; then echo "{problem}" >&2; exit 2; fi']
