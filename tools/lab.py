# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make lab``: the tests of tests/lab, on machines of their own: systemd and sshd in containers (root, podman, Linux).

``python -m tools.lab [test] [--sweep] [PYTEST OPTIONS]``. A test that could not run is named with its reason; with
MUSTER_REQUIRE_LAB=1 it counts as failed. ``--sweep`` only removes what killed labs left behind.

``python -m tools.lab up|down|status|…``: a Kubernetes cluster on this machine, by hand; ``--help`` lists the commands.
"""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TESTS = "tests/lab"
LIMIT_S = 1800


def main(arguments: list[str]) -> int:
    """Run a command of the cluster, or the tests: print what ran, what did not and why; return the exit status."""
    if arguments[:1] and (arguments[0] in ("--help", "-h", "--name") or arguments[0] in _commands()):
        return commands(arguments)
    if arguments[:1] == ["test"]:
        arguments = arguments[1:]
    if arguments == ["--sweep"]:
        return sweep()
    began = time.monotonic()
    status, text = run_tests(arguments)
    counts = re.findall(r"^=* ?(\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s", text, flags=re.MULTILINE)
    print(f"lab: {counts[-1] if counts else 'no tests were run'}, {time.monotonic() - began:.0f} s", flush=True)
    return status


def commands(arguments: list[str]) -> int:
    """Run a command of the cluster."""
    from tests.lab.kube import cli

    return cli.main(arguments)


def _commands() -> tuple[str, ...]:
    from tests.lab.kube import cli

    return cli.COMMANDS


def run_tests(arguments: list[str]) -> tuple[int, str]:
    """Run pytest on the lab with its output shown as it comes; return its exit status and that output."""
    options = ["--quiet", "-rsfE", "--tb=short", "--durations=0", "--durations-min=1"]
    places = [] if any(word.startswith(f"{TESTS}/") for word in arguments) else [TESTS]
    print("+ python -m pytest", *places, *arguments, flush=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *places, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    # A lab that receives SIGTERM must get the time to stop its nodes.
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
    lines = []
    try:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
        return process.wait(LIMIT_S), "".join(lines)
    except KeyboardInterrupt:
        return process.wait(LIMIT_S), "".join(lines)


def sweep() -> int:
    """Remove the labs whose process was killed; say which."""
    from tests.lab import host, podman, traces

    reason = host.unmet() or ("podman is not installed" if "podman" in host.missing() else "")
    if reason:
        print(f"lab: nothing to remove: {reason}")
        return 0
    gone = traces.sweep(podman.Podman(podman.cache_home()))
    print(f"lab: removed {', '.join(gone) if gone else 'nothing'}")
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
