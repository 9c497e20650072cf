# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A checkpoint reaches every rank whole, and as a block: byte by byte it takes seconds of every resume."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "char_lm"
MIB, WITHIN_S = 32, 2.0
BROADCAST = f"""
import os, sys, time
sys.path.insert(0, {str(EXAMPLE)!r})
import state, world
group = world.World("cpu", 60)
payload = os.urandom({MIB} << 20)
began = time.process_time()
assert state._broadcast(payload, 0, group) == payload
print(time.process_time() - began)
"""


@pytest.mark.torch
def test_a_checkpoint_is_received_into_a_buffer() -> None:
    python = os.environ.get("MUSTER_TORCH_PYTHON", "") or pytest.skip("MUSTER_TORCH_PYTHON names no interpreter")
    done = subprocess.run([python, "-c", BROADCAST], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < WITHIN_S
