# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers shown before a launch: effective batch, learning rate, time per all-reduce, price. Pure arithmetic."""

from __future__ import annotations

import typing as t

from . import job_checkpoints, parallel_sizes
from .job import Job

_UPLINK_GB_S = 0.125


def derive_advice(
    job: Job, *, bandwidth_gb_s: float | None, prices_usd_per_hour: t.Iterable[float | None]
) -> dict[str, t.Any]:
    """Return what follows from the job and its nodes; unknown is null.

    :param bandwidth_gb_s: measured or expected bus bandwidth of the island in GB/s, None when unknown.
    :param prices_usd_per_hour: one entry a node; None for a node whose price is unknown (an owned one has 0).
    """
    prices = list(prices_usd_per_hour)
    known_prices = [price for price in prices if price is not None]
    return {
        "world_size": job.world_size,
        "processes_per_node": job.nproc,
        "parallel": parallel_sizes.describe(job) or None,
        "effective_batch": effective_batch(job),
        "learning_rate_advice": learning_rate(job),
        "predicted_allreduce_s": allreduce_seconds(job, bandwidth_gb_s),
        "price_usd_per_hour": sum(known_prices) if len(known_prices) == len(prices) else None,
        "checkpoints": job_checkpoints.describe_folder(job) or None,
    }


def describe(derived: t.Mapping[str, t.Any]) -> list[str]:
    """Return the figures that are known, as parts of one line before a launch."""
    formats = (
        ("parallel", "{}"),
        ("effective_batch", "effective batch {}"),
        ("learning_rate_advice", "linear scaling suggests learning rate {:g}"),
        ("price_usd_per_hour", "${:.2f} an hour"),
        ("predicted_allreduce_s", "{:.3g} s per all-reduce of all gradients"),
    )
    return [text.format(derived[key]) for key, text in formats if derived.get(key)]


def effective_batch(job: Job) -> int | None:
    """Return samples per optimizer step over all ranks: per-rank batch x accumulation x world size."""
    if job.batch.per_rank is None:
        return None
    return job.batch.per_rank * job.batch.accumulation * job.world_size


def learning_rate(job: Job) -> float | None:
    """Return the linearly scaled learning rate (Goyal et al., arXiv 1706.02677): base rate x batch / base batch."""
    batch = effective_batch(job)
    if batch is None or job.batch.base_learning_rate is None or job.batch.base_batch is None:
        return None
    return job.batch.base_learning_rate * batch / job.batch.base_batch


def describe_slow_step(job: Job, bandwidth_gb_s: float | None = None) -> str:
    """Return how long a step waits for its all-reduce over a slow network.

    :param bandwidth_gb_s: measured bus bandwidth in GB/s; None where only the mesh between sites joins the nodes, for
        which 1 Gb/s is assumed, that of a common uplink.
    """
    rate = bandwidth_gb_s or _UPLINK_GB_S
    seconds = allreduce_seconds(job, rate)
    if seconds is None:
        return "set job.batch.parameters to see how long a step would take"
    return f"about {seconds:.3g} s per step at {'the measured' if bandwidth_gb_s else 'an assumed'} {rate * 8:.3g} Gb/s"


def allreduce_seconds(job: Job, bandwidth_gb_s: float | None) -> float | None:
    """Return seconds of one all-reduce of all gradients: 2(n-1)/n x bytes / bandwidth.

    The formula is that of nccl-tests' doc/PERFORMANCE.md.
    """
    if job.batch.parameters is None or not bandwidth_gb_s or job.world_size < 2:
        return None
    size = job.batch.parameters * job.batch.bytes_per_gradient
    return 2 * (job.world_size - 1) / job.world_size * size / (bandwidth_gb_s * 1e9)
