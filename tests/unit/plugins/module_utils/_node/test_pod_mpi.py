# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker of an MPI job with a real sshd: the launcher's own arguments reach it, and ranks there are recorded."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._node import pod_mpi, pod_preflight
from ansible_collections.muster.training.plugins.plugin_utils._launch import registry
from ansible_collections.muster.training.plugins.plugin_utils._launch.base import RunContext
from ansible_collections.muster.training.tests.fakes import object_store
from ansible_collections.muster.training.tests.support.node_lab import eventually, free_port
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab

SSHD = "/usr/sbin/sshd"
JOB = {
    "name": "x",
    "image": "i",
    "launcher": "mpi",
    "processes_per_node": 2,
    "placement": {"backend": "kubernetes"},
    "command": ["sh", "-c", 'echo "rank $OMPI_COMM_WORLD_RANK $MASTER_ADDR $WORD $TOKEN ${#TOKEN}"; exit 3'],
    "env": {"WORD": 'it\'s "one"'},
}


@pytest.fixture
def keys(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a folder with what the operator mounts: an ECDSA pair, readable by all."""
    folder = tmp_path / "keys"
    folder.mkdir()
    argv = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-f", str(folder / "id_rsa")]
    subprocess.run(argv, check=True)
    (folder / "id_rsa").chmod(0o644)
    return folder


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[PodLab]:
    found = PodLab(tmp_path)
    yield found
    found.close()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(
    not pathlib.Path(SSHD).exists() or not shutil.which("ssh-keygen"), reason="sshd is not installed here"
)
def test_the_launcher_reaches_a_worker_whose_ranks_are_recorded(lab: PodLab, keys: pathlib.Path) -> None:
    port, run_dir = free_port(), str(lab.run_dir(0))
    specs = registry.pods(parse_job(JOB), RunContext("x-1", free_port(), 1, str(lab.root / "c")))
    texts = {role: fill_in(spec.to_json(), run_dir, keys, port) for role, spec in specs.items()}
    (lab.root / "TOKEN").write_text("s3cr3t-value")
    secrets = [{"name": "TOKEN", "file": str(lab.root / "TOKEN"), "deliver": "env"}]
    worker = {**json.loads(texts["worker"]), "run_dir": run_dir, "secrets": secrets}
    process = lab.start(worker, JOB_COMPLETION_INDEX="", MUSTER_POD="x-worker-0")
    eventually(lambda: answers(port), "sshd answers")
    assert "s3cr3t" not in (lab.run_dir(0) / "mpi_rank.sh").read_text()
    # The launcher's pod has its own copies; here both share one folder.
    pod_mpi.write_ssh_files(json.loads(texts["launcher"])["ssh"], lab.run_dir(0), (), "/", {})
    launcher = json.loads(texts["launcher"])
    argv = ["ssh", "-F", "none", *launcher["env"]["PRTE_MCA_plm_ssh_args"].split(), "127.0.0.1"]
    command = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 " + " ".join(
        launcher["argv"][-2:]
    )
    done = subprocess.run([*argv, command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == 'rank 1 127.0.0.1 it\'s "one" s3cr3t-value 12\n' and done.returncode == 3, done.stderr
    process.terminate()
    end = lab.end(process)
    assert end.code == 3 or end.code == 143
    started, ended = end.events("worker_started")[0], end.events("worker_exit")[0]
    assert (started["rank"], started["world_size"], started["local_rank"], ended["exit_code"]) == (1, 2, 1, 3)


SAVES = """
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
print("continues from", sorted(place.name for place in folder.glob("step-*")))
place = folder / f"step-{sys.argv[1]}.pt"
place.write_bytes(b"state" * 200_000)
with open(os.environ["MUSTER_METRICS_FILE"], "a") as report:
    report.write(json.dumps({"checkpoint_step": int(sys.argv[1]), "path": str(place)}) + "\\n")
"""


@pytest.mark.skipif(
    not pathlib.Path(SSHD).exists() or not shutil.which("ssh-keygen"), reason="sshd is not installed here"
)
def test_a_worker_stores_what_its_ranks_saved_and_a_new_one_begins_with_it(
    tmp_path: pathlib.Path, keys: pathlib.Path
) -> None:
    """The operator stops the first right after its ranks have ended: the upload is given the time for saving."""
    job = {**JOB, "command": [sys.executable, "-c", SAVES, "7"], "restart": {"max_crashes": 0},
           "checkpoints": {"binding": "store"}}  # fmt: skip
    said = []
    with object_store.running() as server:
        addresses = gzip.compress(json.dumps(stored_addresses(server)).encode())
        for number in (1, 2):
            lab = PodLab(tmp_path / f"pod{number}")
            place = lab.root / "store"
            place.write_bytes(addresses)
            port, run_dir = free_port(), str(lab.run_dir(0))
            specs = registry.pods(parse_job(job), RunContext("x-1", free_port(), 1, str(lab.root / "c")))
            texts = {role: fill_in(spec.to_json(), run_dir, keys, port) for role, spec in specs.items()}
            worker = {**json.loads(texts["worker"]), "run_dir": run_dir, "store": str(place)}
            process = lab.start(worker, JOB_COMPLETION_INDEX="", MUSTER_POD="x-worker-0")
            eventually(lambda port=port: answers(port), "sshd answers")
            pod_mpi.write_ssh_files(json.loads(texts["launcher"])["ssh"], lab.run_dir(0), (), "/", {})
            launcher = json.loads(texts["launcher"])
            argv = ["ssh", "-F", "none", *launcher["env"]["PRTE_MCA_plm_ssh_args"].split(), "127.0.0.1"]
            command = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 " + " ".join(launcher["argv"][-2:])
            done = subprocess.run([*argv, command], capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            said.append(done.stdout.splitlines()[0])
            process.terminate()
            end = lab.end(process)
            assert number == 2 or end.events("checkpoint_stored"), end.text
    assert said == ["continues from []", "continues from ['step-7.pt']"]


def stored_addresses(server: object_store.ObjectStore) -> dict[str, t.Any]:
    """Return what the Secret of a run has: places for three checkpoints of one node."""

    def slot(number: int) -> dict[str, t.Any]:
        manifest = dict.fromkeys(("get", "put", "delete"), server.address(f"run/node-0/slot-{number}/manifest.json"))
        parts = [server.address(f"run/node-0/slot-{number}/part-{part:04d}") for part in range(4)]
        return {"manifest": manifest, "parts": parts, "fetch": parts}

    rows = {"0": [slot(number) for number in range(3)]}
    return {"checkpoints": {"ca": None, "expires_at": 4e9, "ranks": rows}}


def fill_in(text: str, run_dir: str, keys: pathlib.Path, port: int) -> str:
    """Return a specification with the places of this machine."""
    return text.replace("/muster/run", run_dir).replace("/muster/ssh", str(keys)).replace("2222", str(port))


def test_keys_that_are_not_mounted_are_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(pod_preflight.PodRefusal, match="the MPI operator's keys are not in"):
        pod_mpi.write_ssh_files({"keys": str(tmp_path), "role": "client"}, tmp_path, (), "/", {})


def test_a_variable_that_no_shell_can_export_is_left_out(tmp_path: pathlib.Path) -> None:
    env = {"BASH_FUNC_x%%": "() { :; }", "A": "1 $(touch evil)", "B": "x\ny"}
    script = tmp_path / "rank.sh"
    script.write_text(pod_mpi.rank_script(["sh", "-c", 'echo "$A|$B"'], str(tmp_path), env, tmp_path))
    done = subprocess.run(["sh", str(script)], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout == "1 $(touch evil)|x\ny\n" and not (tmp_path / "evil").exists()


def test_mpirun_waits_until_every_worker_answers(tmp_path: pathlib.Path) -> None:
    """A worker that comes late is waited for; one that never comes is named."""
    hosts, port, said = tmp_path / "hostfile", free_port(), []
    hosts.write_text("127.0.0.1 slots=1\n\nlocalhost slots=1\n")
    late: list[socket.socket] = []

    def pause(_seconds: float) -> bool:
        late.append(socket.create_server(("127.0.0.1", port)))
        return True

    ssh = {"hosts": str(hosts), "port": port}
    pod_mpi.wait_for_hosts(ssh, time.monotonic() + 20, pause, said.append)
    assert len(late) == 1 and said == []
    late[0].close()
    with pytest.raises(TimeoutError, match=r"the worker 127\.0\.0\.1 does not answer"):
        pod_mpi.wait_for_hosts(ssh, time.monotonic() + 20, lambda _seconds: False, said.append)


def test_an_end_with_0_is_borne_out_by_the_ranks() -> None:
    """PRRTE's mpirun ends with 0 when it has lost a daemon, or not; a rank says that it has ended well."""
    done = pod_mpi.RankCompletions("muster-done-r", 2)
    assert done.problem() == "", "nothing is known: the output of ranks may go elsewhere"
    assert done.filter_line(b"[1,0]<stdout>: step=1\n") == b"[1,0]<stdout>: step=1\n"
    assert done.filter_line(b"[1,0]<stdout>: muster-done-r 0\n") == b""
    assert done.problem() == "mpirun exited with 0, but only 1 of 2 ranks succeeded"
    assert done.filter_line(b"[1,1]<stdout>: no newlinemuster-done-r 1\n") == b"[1,1]<stdout>: no newline\n"
    assert done.problem() == ""
    # A piece of what a rank says may end anywhere, and another rank's begin there; it says it twice.
    torn = pod_mpi.RankCompletions("muster-done-r", 1)
    assert torn.filter_line(b"[1,0]<stdout>: muster-dohello from another\n") and torn.filter_line(b"ne-r 0\n")
    assert torn.filter_line(b"[1,0]<stdout>: muster-done-r 0\n") == b"" and torn.problem() == ""
    lost = pod_mpi.RankCompletions("muster-done-r", 2)
    lost.filter_line(b"PRTE has lost communication with a remote daemon.\n")
    assert lost.problem() == "mpirun exited with 0, but only 0 of 2 ranks succeeded"


@pytest.mark.parametrize(("says", "code"), [("01", 0), ("0", 1)])
def test_a_launcher_whose_ranks_were_lost_has_not_succeeded(
    lab: PodLab, keys: pathlib.Path, says: str, code: int
) -> None:
    """Whatever mpirun ends with; the operator starts it again then."""
    spec = registry.pods(parse_job(JOB), RunContext("x-1", free_port(), 1, str(lab.root / "c")))["launcher"]
    launcher = json.loads(spec.to_json().replace("/muster/run", str(lab.run_dir(0))).replace("/muster/ssh", str(keys)))
    lines = "; ".join(f"echo '[1,{rank}]<stdout>: muster-done-x-1 {rank}'" for rank in says)
    script = f"{lines}; echo PRTE has lost communication with a remote daemon."
    launcher |= {"argv": ["/bin/sh", "-c", script], "run_dir": str(lab.run_dir(0)), "workdir": "/"}
    del launcher["ssh"]["hosts"]
    end = lab.end(lab.start(launcher, JOB_COMPLETION_INDEX="", MUSTER_POD="x-launcher-0"))
    assert end.code == code and "muster-done" not in end.text
    assert ("1 of 2 ranks succeeded" in end.text) == bool(code)
    assert [event["node"] for event in end.events("node_lost")] == ([None] if code else [])
