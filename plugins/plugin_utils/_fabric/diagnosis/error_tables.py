# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Families of error messages as data: CUDA's and NCCL's result codes, errno, signals. Xids are in ``gpu_faults``.

Sources: CUDA runtime API, cudaError (docs.nvidia.com/cuda/cuda-runtime-api, group CUDART TYPES), names and the texts of
cudaGetErrorString; NCCL's src/init.cc, ncclGetErrorString; Linux errno(3) and signal(7).
"""

from __future__ import annotations

import typing as t


class CudaError(t.NamedTuple):
    """An error of CUDA: its number, its name, its text, and the code of the cause."""

    number: int
    name: str
    text: str
    code: str


# Those of cudaError that end trainings; one that is not here is cuda_error as well. Out of memory is a rule of its own.
CUDA_ERRORS = (
    CudaError(35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient", "driver_too_old"),
    CudaError(46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable", "gpu_busy"),
    CudaError(100, "cudaErrorNoDevice", "no CUDA-capable device", "gpu_missing"),
    CudaError(101, "cudaErrorInvalidDevice", "invalid device ordinal", "gpu_missing"),
    CudaError(209, "cudaErrorNoKernelImageForDevice", "no kernel image is available", "gpu_arch_mismatch"),
    CudaError(214, "cudaErrorECCUncorrectable", "uncorrectable ECC error", "gpu_error"),
    CudaError(220, "cudaErrorNvlinkUncorrectable", "uncorrectable NVLink error", "gpu_error"),
    CudaError(222, "cudaErrorUnsupportedPtxVersion", "compiled with an unsupported toolchain", "driver_too_old"),
    CudaError(700, "cudaErrorIllegalAddress", "an illegal memory access was encountered", "gpu_memory_access"),
    CudaError(710, "cudaErrorAssert", "device-side assert triggered", "device_assert"),
    CudaError(714, "cudaErrorHardwareStackError", "hardware stack error", "gpu_error"),
    CudaError(715, "cudaErrorIllegalInstruction", "an illegal instruction was encountered", "gpu_memory_access"),
    CudaError(716, "cudaErrorMisalignedAddress", "misaligned address", "gpu_memory_access"),
    CudaError(718, "cudaErrorInvalidPc", "invalid program counter", "gpu_memory_access"),
    CudaError(719, "cudaErrorLaunchFailure", "unspecified launch failure", "cuda_error"),
    CudaError(
        803, "cudaErrorSystemDriverMismatch", "unsupported display driver / cuda driver combination", "driver_too_old"
    ),
    CudaError(
        804,
        "cudaErrorCompatNotSupportedOnDevice",
        "forward compatibility was attempted on non supported",
        "driver_too_old",
    ),
)
# NCCL's result -> what to do.
NCCL_RESULTS: t.Mapping[str, str] = {
    "ncclUnhandledCudaError": "CUDA failed below NCCL: read the rank's log above it, dmesg for Xids, free GPU memory",
    "ncclSystemError": "A call of the system failed (socket, file, memory): set NCCL_DEBUG=INFO, which names the call",
    "ncclInternalError": "NCCL failed inside: use the newest NCCL of this torch, and set NCCL_DEBUG=INFO to see where",
    "ncclInvalidArgument": "Correct the call: its buffer, count, type, or rank is not one that this communicator takes",
    "ncclInvalidUsage": "Correct the use: one GPU a rank (LOCAL_RANK), equal calls on all ranks, one NCCL on all nodes",
    "ncclRemoteError": "Another rank failed first: read the first error in its log",
}
# Number of errno -> code of the cause. Those that only their program gives a meaning are not here.
ERRNO_CODES: t.Mapping[int, str] = {
    1: "permission_denied",
    5: "disk_error",
    11: "too_many_processes",
    12: "oom_host",
    13: "permission_denied",
    23: "too_many_open_files",
    24: "too_many_open_files",
    28: "disk_full",
    30: "disk_error",
    112: "storage_unreachable",
    116: "storage_unreachable",
    121: "storage_unreachable",
    122: "disk_full",
}
_MEMORY = "usually the kernel ended it for lack of memory, and dmesg of its node names it then"
_CRASH = "its own code or a library crashed: python -X faulthandler shows where, dmesg the library"
# Number -> name, and what it usually means. A rank that is stopped by SIGTERM follows another one or an order.
SIGNALS: t.Mapping[int, tuple[str, str]] = {
    4: ("SIGILL", "a library was built for another processor"),
    6: ("SIGABRT", "a library gave up: its reason is in the lines above"),
    7: ("SIGBUS", "usually /dev/shm is full, or a mapped file was cut"),
    8: ("SIGFPE", _CRASH),
    9: ("SIGKILL", _MEMORY),
    11: ("SIGSEGV", _CRASH),
}
# What shells, schedulers and Open MPI say of them.
SIGNAL_WORDS: t.Mapping[str, int] = {
    "Killed": 9,
    "Segmentation fault": 11,
    "Aborted": 6,
    "Bus error": 7,
    "Illegal instruction": 4,
    "Floating point exception": 8,
}


def describe_signal(number: int) -> str:
    """Return the name of a signal and what it usually means."""
    name, meaning = SIGNALS.get(number, (f"signal {number}", ""))
    return f"{name}: {meaning}" if meaning else name
