# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each error of the tables is read as its cause, in the forms in which programs print it."""

from __future__ import annotations

import errno
import signal

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis import error_tables
from ansible_collections.muster.training.tests.support.nccl_text import codes, judged


@pytest.mark.parametrize("error", error_tables.CUDA_ERRORS, ids=lambda error: error.name)
def test_an_error_of_cuda_has_its_cause_by_text_name_and_number(error: error_tables.CudaError) -> None:
    for text in (
        f"CUDA error: {error.text}",
        f"cuda call failed: {error.name}",
        f"CUDA error: {error.number} (driver)",
    ):
        assert codes(judged(f"RuntimeError: {text}")) == [error.code], text


@pytest.mark.parametrize(("number", "code"), error_tables.ERRNO_CODES.items())
def test_an_error_of_the_system_has_its_cause(number: int, code: str) -> None:
    assert codes(judged(f"OSError: [Errno {number}] {errno.errorcode[number]}: '/data/x'")) == [code]


def test_each_result_of_nccl_says_what_to_do() -> None:
    for name, fix in error_tables.NCCL_RESULTS.items():
        found = judged(f"torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, {name}: failed")
        follows = name == "ncclRemoteError"
        assert [cause.fix for cause in found.causes] == ([] if follows else [fix])


def test_signals_have_their_names() -> None:
    for number, (name, _meaning) in error_tables.SIGNALS.items():
        assert signal.Signals(number).name == name and error_tables.describe_signal(number).startswith(name)
    assert error_tables.describe_signal(35) == "signal 35"
