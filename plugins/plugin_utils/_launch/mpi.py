# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MPI: mpirun on the first node; the others run an sshd of the run's own, with a key that is deleted with the run.

Open MPI 4 reads ``OMPI_MCA_*`` and Open MPI 5 reads ``PRTE_MCA_*``; an unknown family is ignored, which has made
jobs "succeed" on one node only (kubeflow/trainer#4028). So both are set, and the number of ranks is checked afterwards.
"""

from __future__ import annotations

import shlex
import typing as t

from ...module_utils._model import pod_spec
from ...module_utils._model.job import Job
from ...module_utils._model.object_names import unit_marker
from ...module_utils._model.pod_spec import PodSpec
from . import environment
from . import pod_spec as launch_pod_spec
from .base import Launch, NodeLaunch, NodeSlot, RunContext

KEY_FILE = "mpi_key"
HOST_KEY_FILE = "mpi_host_key"
AUTHORIZED_FILE = "mpi_authorized_keys"
KNOWN_HOSTS_FILE = "mpi_known_hosts"
_HOSTS = "mpi_hosts"
_RANK = "mpi_rank.sh"
_SSHD = "mpi_sshd.conf"
_RUN_VARIABLE = "MUSTER_LOCAL_RUN"
# In pods. The operator mounts one key pair for all: it is the users' key and the host key, so hosts are verified by it.
_POD_SSH_PORT = 2222
_OPERATOR_HOSTS = "/etc/mpi/hostfile"
# mpirun of Open MPI 4 and of 5 refuses root unless two variables allow it.
_ROOT_VARIABLES = tuple(
    f"{family}_ALLOW_RUN_AS_ROOT{twice}" for family in ("OMPI", "PRTE") for twice in ("", "_CONFIRM")
)


def launch(job: Job, nodes: tuple[NodeSlot, ...], run: RunContext) -> Launch:
    """Return mpirun for the first node and an sshd for each other one."""
    others = tuple(_sshd_node(job, slot, nodes, run) for slot in nodes[1:])
    return Launch(
        nodes=(_mpirun_node(job, nodes, run), *others),
        policy="whole",
        restarts="mpirun's unit is started again as a whole",
        keypair=len(nodes) > 1,
    )


def tools(node_rank: int) -> tuple[str, ...]:
    """Return the programs that the node with this rank needs."""
    return ("mpirun",) if node_rank == 0 else ("mpirun", "sshd")


def ssh_port(run: RunContext) -> int:
    """Return the port of the run's own sshd: the one after the rendezvous port."""
    return run.port + 1


def known_hosts(nodes: tuple[NodeSlot, ...], run: RunContext, host_key: str) -> str:
    """Return the known_hosts text that pins the run's host key for every node (``host_key``: type and base64)."""
    return "".join(f"[{slot.address}]:{ssh_port(run)} {host_key}\n" for slot in nodes)


def _mpirun_node(job: Job, nodes: tuple[NodeSlot, ...], run: RunContext) -> NodeLaunch:
    first = nodes[0]
    root = ("--allow-run-as-root",) if first.user == "uid 0" else ()
    argv = (
        first.tools.get("mpirun") or "mpirun",
        *root,
        "-np",
        str(job.world_size),
        "--hostfile",
        f"{first.run_dir}/{_HOSTS}",
        "--bind-to",
        "none",
        "--tag-output",
        "/bin/sh",
        "-c",
        # The run's folder differs between nodes: each node's sshd (or this unit) sets the variable.
        f'exec /bin/sh "${_RUN_VARIABLE}/{_RANK}"',
    )
    hosts = "".join(f"{slot.address} slots={job.nproc}\n" for slot in nodes)
    env = {
        **environment.node_variables(job, first, nodes, run),
        **_ssh_settings(first, run),
        _RUN_VARIABLE: first.run_dir,
    }
    files = {_HOSTS: hosts, _RANK: _rank_script(job, first, nodes, run)}
    return NodeLaunch(argv=argv, env=env, files=files, wait_for_peer=False)


def _ssh_settings(first: NodeSlot, run: RunContext) -> dict[str, str]:
    secrets = f"{first.run_dir}/secrets"
    arguments = _ssh_arguments(ssh_port(run), f"{secrets}/{KEY_FILE}", f"{secrets}/{KNOWN_HOSTS_FILE}")
    return {"OMPI_MCA_plm_rsh_args": arguments, "PRTE_MCA_plm_ssh_args": arguments, **_tcp_interface_settings(first)}


def _ssh_arguments(port: int, key_file: str, known_hosts_file: str) -> str:
    options = {
        "UserKnownHostsFile": known_hosts_file,
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": "10",
        "ConnectionAttempts": "10",
    }
    return " ".join([f"-p {port} -i {key_file}", *(f"-o {key}={value}" for key, value in options.items())])


def _tcp_interface_settings(slot: NodeSlot) -> dict[str, str]:
    """Keep Open MPI's own TCP (control and data) on the interface of the gang's addresses."""
    if not slot.interface or slot.interface == "lo":
        return {}
    names = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include")
    return dict.fromkeys(names, slot.interface)


def _rank_script(job: Job, slot: NodeSlot, nodes: tuple[NodeSlot, ...], run: RunContext) -> str:
    values: dict[str, str] = {
        **environment.node_variables(job, slot, nodes, run),
        "MASTER_ADDR": nodes[0].address,
        "MASTER_PORT": str(run.port),
        "MUSTER_UNIT": unit_marker(slot.run_dir, "agent"),
        "MUSTER_SECRETS_FILE": f"{slot.run_dir}/secrets/env.json",
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(values.items())]
    folder = shlex.quote(environment.workdir(job, slot))
    command = shlex.join(environment.rank_command(job, slot))
    return "\n".join(["#!/bin/sh", *lines, f"cd {folder} || exit 70", f"exec {command}", ""])


def _sshd_node(job: Job, slot: NodeSlot, nodes: tuple[NodeSlot, ...], run: RunContext) -> NodeLaunch:
    secrets = f"{slot.run_dir}/secrets"
    settings: tuple[tuple[str, t.Any], ...] = (
        ("Port", ssh_port(run)),
        ("ListenAddress", slot.address),
        ("HostKey", f"{secrets}/{HOST_KEY_FILE}"),
        ("AuthorizedKeysFile", f"{secrets}/{AUTHORIZED_FILE}"),
        ("PidFile", "none"),
        ("UsePAM", "no"),
        ("StrictModes", "no"),
        ("PasswordAuthentication", "no"),
        ("KbdInteractiveAuthentication", "no"),
        ("PermitRootLogin", "prohibit-password"),
        ("AllowTcpForwarding", "no"),
        ("X11Forwarding", "no"),
        ("SetEnv", f"{_RUN_VARIABLE}={slot.run_dir} MUSTER_UNIT={unit_marker(slot.run_dir, 'agent')}"),
    )
    config = "".join(f"{key} {value}\n" for key, value in settings)
    files = {_SSHD: config, _RANK: _rank_script(job, slot, nodes, run)}
    argv = (slot.tools.get("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", f"{slot.run_dir}/{_SSHD}")
    return NodeLaunch(argv=argv, env={}, files=files, wait_for_peer=False)


def pods(job: Job, run: RunContext) -> dict[str, PodSpec]:
    """Return mpirun for the launcher's pod and an sshd for each worker's; ranks run on workers only."""
    argv = (
        "mpirun",
        "-np",
        str(job.world_size),
        "--hostfile",
        _OPERATOR_HOSTS,
        "--bind-to",
        "none",
        "--tag-output",
        "/bin/sh",
        launch_pod_spec.path_in_run(_RANK),
    )
    ssh = {"port": _POD_SSH_PORT, "keys": pod_spec.SSH_DIR, "rank_script": _RANK}
    # Ranks run in other pods than mpirun, which may end with 0 although it lost some: each rank reports its end.
    done = f"muster-done-{run.run_id}"
    arguments = _ssh_arguments(
        _POD_SSH_PORT, launch_pod_spec.path_in_run(KEY_FILE), launch_pod_spec.path_in_run(KNOWN_HOSTS_FILE)
    )
    values = {
        "OMPI_MCA_plm_rsh_args": arguments,
        "PRTE_MCA_plm_ssh_args": arguments,
        "OMPI_MCA_orte_default_hostfile": _OPERATOR_HOSTS,
        "PRTE_MCA_prte_default_hostfile": _OPERATOR_HOSTS,
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        # With true, Open MPI 5's launcher takes itself for another host and connects to itself.
        "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
        "OMPI_MCA_orte_set_default_slots": str(job.nproc),
        "PRTE_MCA_prte_set_default_slots": str(job.nproc),
        **dict.fromkeys(_ROOT_VARIABLES, "1"),
    }
    launcher = launch_pod_spec.build_pod_spec(
        job,
        run,
        argv,
        values,
        role="launcher",
        ssh={**ssh, "role": "client", "hosts": _OPERATOR_HOSTS, "done": done, "ranks": job.world_size},
        gpus=0,
        workdir=pod_spec.RUN_DIR,
    )
    sshd = ("/usr/sbin/sshd", "-D", "-e", "-f", launch_pod_spec.path_in_run(_SSHD))
    server = {
        **ssh,
        "role": "server",
        "argv": list(environment.rank_command(job, launch_pod_spec.any_pod(job))),
        "config": _SSHD,
    }
    worker = launch_pod_spec.build_pod_spec(job, run, sshd, {"MUSTER_DONE": done}, rank_from_name=True, ssh=server)
    return {"launcher": launcher, "worker": worker}
