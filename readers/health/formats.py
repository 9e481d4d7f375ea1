"""Signs of trouble that readers know: node health checks, kernel logs, the fabric manager's log."""

from __future__ import annotations

import re
from typing import Final

from readers.frame.reading import Format
from readers.health.logs import read_fabric_manager, read_kernel_log
from readers.health.nhc import read_nhc

FORMATS: Final = (
    Format(
        "nhc",
        "node health check (NHC)",
        "health",
        read_nhc,
        (
            re.compile(r"^(?:SUCCESS|ERROR|WARNING|FAILURE):\s+nhc:"),
            re.compile(r"^.{0,80}\bnhc:\s+Health check \w+:"),
        ),
    ),
    Format(
        "fabric-manager",
        "log of NVIDIA fabric manager",
        "health",
        read_fabric_manager,
        (
            re.compile(r"^\[\w{3} \d\d \d{4} \d\d:\d\d:\d\d\] \[\w+\] (?:\[tid \d+\]|[Ff]abric)"),
            re.compile(r"^.{0,80}\bnv(?:idia)?-fabricmanager(?:\[\d+\])?: "),
        ),
    ),
    Format(
        "kernel-log",
        "kernel or system log (dmesg, syslog)",
        "health",
        read_kernel_log,
        (
            re.compile(r"^\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] "),
            re.compile(r"^\[ {0,6}\d{1,9}\.\d{6}\] "),
            re.compile(r"^\d{1,3},\d+,\d+,[\-\w,=]+;"),
            re.compile(r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.\-]+ [\w.\-/]+(?:\[\d+\])?: "),
            re.compile(
                r"^(?:(?:kern|user|daemon|auth|syslog)\s*:\w+\s*: )?\[?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}"
            ),
            re.compile(
                r"^(?:kern|user|daemon|auth|syslog)\s*:(?:emerg|alert|crit|err|warn|notice|info|debug)\s*: "
            ),
            re.compile(r"^[\w.\-]+ kernel: "),
            re.compile(r"^.{0,120}NVRM: (?:GPU\d+ )?Xid \("),
            re.compile(r"^.{0,120}\bsegfault at [0-9a-f]{1,16} ip [0-9a-f]{1,16} sp "),
        ),
    ),
)
