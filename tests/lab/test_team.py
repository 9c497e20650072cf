# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A team on a real cluster: with its kubeconfig alone a member submits, follows and cancels, and can do no more."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import typing as t
import uuid

import pytest

from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, kube_lab

__all__ = ["kube_lab"]

LIMIT_S = 240
QUOTA = {"cpu": 2, "memory": "4Gi"}
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


Play = subprocess.Popen[str]


class Office:
    """Plays of the administrator and of a member; each has a state home of its own."""

    def __init__(self, lab: KubeLab, folder: pathlib.Path) -> None:
        self.lab, self.folder, self.name = lab, folder, f"team-{uuid.uuid4().hex[:6]}"
        self.kubeconfig = folder / "member.kubeconfig"

    def admin(self, **extra: t.Any) -> Play:
        values = {"muster_team": self.name, "team_quota": QUOTA, "team_kubeconfig_path": str(self.kubeconfig)}
        return self.play("team", "admin", self.lab.kubeconfig, {**values, **extra})

    def member(self, playbook: str, **extra: t.Any) -> Play:
        return self.play(playbook, "member", self.kubeconfig, {"muster_train_hosts": "localhost", **extra})

    def run_ids(self) -> list[str]:
        return [place.parent.name for place in self.folder.glob("member/default/runs/*/run.json")]

    def pods(self, name: str) -> list[str]:
        """Return the phases of the pods of a job's run."""
        found = [pod for pod in self.lab.pods(self.name) if pod["metadata"]["name"].startswith(name)]
        return [pod["status"]["phase"] for pod in found]

    def play(self, playbook: str, who: str, kubeconfig: pathlib.Path, extra: dict[str, t.Any]) -> Play:
        values = {"muster_kubeconfig": str(kubeconfig), "muster_state": {"path": str(self.folder / who)}, **extra}
        program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
        argv = [program, "-i", "localhost,", "-c", "local", f"muster.training.{playbook}", "-e", json.dumps(values)]
        # No other credential of this machine may help the member.
        env = {**os.environ, "HOME": str(self.folder), "ANSIBLE_NOCOLOR": "1", "KUBECONFIG": ""}
        return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(play: Play, code: int = 0) -> str:
    output, _ = play.communicate(timeout=LIMIT_S)
    assert play.returncode == code and "Traceback" not in output, output
    return output


@pytest.fixture
def office(kube_lab: KubeLab, tmp_path: pathlib.Path) -> t.Iterator[Office]:
    found = Office(kube_lab, tmp_path)
    ended(found.admin())
    try:
        yield found
    finally:
        ended(found.admin(team_state="absent", team_discard=True))
        assert until(lambda: kube_lab.api.get(f"/api/v1/namespaces/{found.name}") is None, 90)
        kube_lab.api.ask("DELETE", f"{KUEUE}/resourceflavors/muster")


def job(office: Office, *command: str, **more: t.Any) -> dict[str, t.Any]:
    small = {"cpu": 0.2, "memory": "128Mi"}
    own = {"name": "work", "nodes": 2, "launcher": "command", "command": list(command), "image": office.lab.image}
    return {**own, "resources": small, "placement": {"backend": "kubernetes"}, **more}


def test_a_member_submits_follows_and_cancels(office: Office) -> None:
    """The queue takes the jobs, the quota holds, and what is cancelled leaves nothing."""
    output = ended(office.member("train", muster_job=job(office, "sh", "-c", "echo rank $NODE_RANK speaks")))
    assert "queue main" in output
    (done,) = office.run_ids()
    logs = ended(office.member("logs", muster_run_id=done))
    assert "rank 0 speaks" in logs and "rank 1 speaks" in logs
    play = office.member("train", muster_job=job(office, "sleep", "600", name="long"))
    assert until(lambda: any(name.startswith("long") for name in office.run_ids()), 120)
    (run_id,) = (name for name in office.run_ids() if name.startswith("long"))
    assert until(lambda: office.pods("long") == ["Running", "Running"], 90)
    status = ended(office.member("status", muster_run_id=run_id))
    assert run_id in status and "ended" not in status, status
    ended(office.member("cancel", muster_run_id=run_id))
    play.communicate(timeout=LIMIT_S)
    assert until(lambda: not office.pods("long"), 60)
    left = office.lab.kubectl("get", "jobset,job,networkpolicy", "-n", office.name, "-o", "name").split()
    assert [name for name in left if "long" in name] == []


def test_a_member_waits_for_the_quota_and_cannot_change_it(office: Office) -> None:
    """A gang that is larger than the quota stays whole outside; no way around it is open."""
    play = office.member(
        "train", muster_job=job(office, "true", name="large", resources={"cpu": 1.5, "memory": "64Mi"})
    )
    assert until(lambda: any(name.startswith("large") for name in office.run_ids()), 120)
    time.sleep(5)
    assert [pod for pod in office.lab.pods(office.name) if "probe" not in pod["metadata"]["name"]] == []
    (run_id,) = office.run_ids()
    ended(office.member("cancel", muster_run_id=run_id))
    output, _ = play.communicate(timeout=LIMIT_S)
    assert "insufficient quota" in output or "insufficient unused quota" in output, output
    for words in (
        ("patch", "clusterqueue", office.name, "--type=merge", "-p", '{"spec":{"stopPolicy":"None"}}'),
        ("get", "secrets", "-n", "kube-system"),
        ("get", "pods", "-n", "kube-system"),
        ("run", "past", "--image=x", "-n", office.name),
        ("delete", "resourcequota", "muster-team", "-n", office.name),
    ):
        with pytest.raises(Exception, match="(?i)forbidden"):
            office.lab.kubectl("--kubeconfig", str(office.kubeconfig), *words)
