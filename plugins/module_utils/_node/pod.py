# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of a pod: ``python3 -I -S -u DIR/muster_node/pod.py SPEC.json [MODE]``.

The specification's fields are those of ``_model/pod_spec.py``. Mode ``run`` brings up one node of a gang, mode
``probe`` tests that the pods of a gang reach each other, mode ``prepare`` only places the code for a container that
another program starts, mode ``kept`` prints the logs that earlier attempts kept.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import importlib
import os
import pathlib
import signal
import sys

# What asks a pod's first process to end is dropped by Linux until that has a handler. Nothing is to be saved yet; the
# mode sets one of its own.
signal.signal(signal.SIGTERM, lambda *_unused: os._exit(143))
_MODES = {"run": "pod_runner", "probe": "pod_network_test", "prepare": "pod_init", "kept": "pod_log_reader"}


def main(argv: list[str]) -> int:
    """Run the mode of the specification; return the container's exit code."""
    # The image's Python may have any version.
    if sys.version_info < (3, 10):  # noqa: UP036
        print("muster: Python {}.{} is too old, a pod needs 3.10 or newer".format(*sys.version_info[:2]))
        return 78
    # The other files of this folder must not hide packages of the same name. The path is not resolved: a ConfigMap's
    # files are links into a folder of another name.
    here = pathlib.Path(os.path.abspath(__file__)).parent
    sys.path[:] = [str(here.parent), *(place for place in sys.path if place != str(here))]
    files = importlib.import_module(f"{here.name}.files")
    spec = files.read_json(pathlib.Path(argv[1]))
    mode = argv[2] if len(argv) > 2 else spec.get("mode") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or mode not in _MODES:
        print(f"muster: {argv[1]} is not a specification of a pod", flush=True)
        return 78
    return int(importlib.import_module(f"{here.name}.{_MODES[mode]}").main(spec, here))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
