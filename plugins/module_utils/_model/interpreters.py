# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which interpreter a host's jobs have: one rule for bootstrap, preflight, the fabric test and jobs."""

from __future__ import annotations

import typing as t

# Where the bootstrap playbook makes an interpreter; the roles preflight and training_env name it too.
DEFAULT_ENV = "~/.local/share/muster/env"


def default_interpreter(variables: t.Mapping[str, t.Any]) -> str:
    """Return the interpreter of a host: ``muster_training_python``, else the one that bootstrap makes, or python3.

    Of the two, separated by a colon, the host takes the first that exists.
    """
    folder = variables.get("muster_training_env") or DEFAULT_ENV
    return str(variables.get("muster_training_python") or f"{folder}/bin/python:python3")
