# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs of AWX: a real ansible-runner transmits a job, works on it in a folder of its own and reads what comes back.

What AWX itself adds is built here as its source has it (24.6): the inventory as a program, extra variables that are not
templates, survey answers and their defaults, and credentials rendered into the environment, empty where a field is.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import textwrap
import typing as t

import jinja2.sandbox
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.job_catalogue import build_train_questions
from ansible_collections.muster.training.tests.e2e.playbook_world import ROOT, everything
from ansible_collections.muster.training.tests.e2e.service_world import ServiceWorld, services_python
from ansible_collections.muster.training.tests.support import canary

FOLDER = ROOT / "examples" / "awx"
KEY = "provider-key-canary-81f0"
# The sides of a job: what AWX sends to the container, what the container does, what AWX makes of its answer.
TRANSMIT = """
import json, sys
from ansible_runner import interface
values = json.load(open(sys.argv[1]))
interface.run(streamer="transmit", _output=sys.stdout.buffer, **values)
"""
PROCESS = """
import sys
from ansible_runner import interface
done = interface.run(streamer="process", quiet=True, _input=sys.stdin.buffer, private_data_dir=sys.argv[1], ident="7")
print(done.status)
"""


class SetupLoader(yaml.SafeLoader):
    """Reads a playbook with values that are not templates."""


class UnsafeDumper(yaml.SafeDumper):
    """Writes text as what must not be a template, as AWX does with answers of surveys."""


SetupLoader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))
UnsafeDumper.add_representer(str, lambda dumper, text: dumper.represent_scalar("!unsafe", text))


class Awx:
    """A project, an inventory and a volume that outlives jobs; each job has a container of its own."""

    def __init__(self, world: ServiceWorld) -> None:
        self.world, self.jobs = world, 0
        (play,) = yaml.load((FOLDER / "setup.yml").read_text(), SetupLoader)
        self.setup: dict[str, t.Any] = play["vars"]
        page = (ROOT / "docs" / "docsite" / "rst" / "guide_awx.rst").read_text()
        (block,) = re.findall(r"^    # train\.yml\n((?:    .*\n|\n)+)", page, re.MULTILINE)
        self.project = world.root / "project"
        (self.project / "src").mkdir(parents=True)
        (self.project / "train.yml").write_text(textwrap.dedent(block))

    def inventory(self, job: t.Mapping[str, t.Any]) -> str:
        """Return the program that AWX makes of an inventory."""
        hosts = {f"gpu-{n}": {"ansible_connection": "local", "muster_address": f"127.0.0.{n}"} for n in (1, 2)}
        marks = {"remote_tower_enabled": "true", "remote_tower_id": 3}
        place = {"muster_node_state": f"{self.world.nodes}/{{{{ inventory_hostname }}}}"}
        values = {
            "muster_job": job,
            "muster_state": {"path": str(self.world.state)},
            "muster_cluster": "local",
            **place,
        }
        group = {"hosts": sorted(hosts), "vars": values, "children": []}
        found = {"all": {"vars": {}}, "muster_nodes": group}
        found["_meta"] = {"hostvars": {name: {**own, **marks} for name, own in hosts.items()}}
        return f"#! /usr/bin/env python3\nprint({json.dumps(found)!r})\n"

    def environment(self, **fields: str) -> dict[str, str]:
        """Return the variables of all credential types: a field that is left empty is undefined in the templates."""
        sandbox = jinja2.sandbox.ImmutableSandboxedEnvironment()
        types = [item["env"] for item in self.setup["awx_credential_types"]]
        return {name: sandbox.from_string(text).render(**fields) for env in types for name, text in env.items()}

    def launch(self, job: t.Mapping[str, t.Any], *, fields: t.Mapping[str, str], **answers: str) -> tuple[str, str]:
        """Run a job of the job template; return its status and what its page shows."""
        self.jobs += 1
        sent, container, back = (self.world.root / f"{name}-{self.jobs}" for name in ("sent", "container", "back"))
        for place in (sent, container, back):
            place.mkdir()
        (sent / "project").symlink_to(self.project)
        given = {item["variable"]: item["default"] for item in build_train_questions()} | answers
        marks = {f"{name}_job_id": 7 for name in ("awx", "tower")} | {"awx_job_template_name": "muster train"}
        for place, text in {
            "inventory/hosts": self.inventory(job),
            "env/extravars": "".join(
                yaml.dump({key: item}, Dumper=UnsafeDumper) for key, item in (given | marks).items()
            ),
            "env/cmdline": "-u root",
            "env/settings": json.dumps({"suppress_ansible_output": True, "suppress_output_file": True}),
        }.items():
            (sent / place).parent.mkdir(exist_ok=True)
            (sent / place).write_text(text)
        (sent / "inventory" / "hosts").chmod(0o700)
        settings = {"ANSIBLE_FORCE_COLOR": "True", "ANSIBLE_HOST_KEY_CHECKING": "False", "JOB_ID": "7"}
        settings |= {"ANSIBLE_INVENTORY_UNPARSED_FAILED": "True", "AWX_PRIVATE_DATA_DIR": str(sent)}
        values: dict[str, t.Any] = {"private_data_dir": str(sent), "ident": "7", "playbook": "train.yml"}
        values |= {"envvars": {**settings, **self.environment(**fields)}, "suppress_env_files": True}
        (sent / "kwargs.json").write_text(json.dumps(values))
        programs = pathlib.Path(services_python()).parent
        plain = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(container), "LC_ALL": "C.UTF-8"}

        def run(argv: list[str], data: bytes = b"") -> bytes:
            done = subprocess.run(argv, input=data, env=plain, capture_output=True, timeout=120, check=False)
            # A worker ends with the exit code of the playbook.
            assert done.returncode == 0 or "worker" in argv, (done.stdout[-3000:], done.stderr[-3000:])
            return done.stdout

        payload = run([services_python(), "-c", TRANSMIT, str(sent / "kwargs.json")])
        stream = run([str(programs / "ansible-runner"), "worker", "--private-data-dir", str(container)], payload)
        status = run([services_python(), "-c", PROCESS, str(back)], stream).decode().strip()
        events = [json.loads(place.read_text()) for place in (back / "artifacts" / "7" / "job_events").glob("*.json")]
        shown = "\n".join(event["stdout"] for event in sorted(events, key=lambda event: event["counter"]))
        return status, re.sub(r"\x1b\[[0-9;]*m", "", shown)


def test_jobs_of_a_template_train_and_report_and_find_what_the_last_one_left(services: ServiceWorld) -> None:
    awx = Awx(services)
    (awx.project / "src" / "go.sh").write_text('[ -n "$KEY" ] && sleep 1 && echo "trained as $MUSTER_RUN_ID"\n')
    ref = {"name": "KEY", "from": "env", "key": "RUNPOD_API_KEY"}
    job = services.job(name="awx", code={"ref": "./src"}, command=["sh", "go.sh"], secret_refs=[ref])
    status, shown = awx.launch(job, fields={"runpod_key": KEY}, muster_run_id="night-1")
    assert status == "successful" and "run night-1 succeeded: all ranks exited with code 0" in shown, shown
    assert "/night-1/report/report.html" in shown and (services.state / "local" / "runs" / "night-1").is_dir(), shown
    status, shown = awx.launch(job, fields={"runpod_key": KEY}, muster_run_id="night-1")
    assert status == "successful" and "run night-1 has already succeeded" in shown, shown
    # Not in events, nor in the volume or on nodes once the job has ended. What a container was started with, AWX masks.
    back = [place for number in (1, 2) for place in (services.root / f"back-{number}").rglob("*") if place.is_file()]
    kept = tuple(place for place in back if place.name != "command")
    assert len(kept) > 20
    places = canary.Places(services.state, services.nodes, kept)
    sinks = [sink for sink in canary.SINKS if not sink.startswith("environment")]
    assert canary.find_leaks(KEY, places, sinks) == []
    # A field that was left empty is no key, and an answer that was left empty is the job's own run id.
    status, shown = awx.launch(job, fields={})
    assert status == "failed" and "RUNPOD_API_KEY" in shown and "run awx-" not in shown, shown
    assert [place.name for place in (services.state / "local" / "runs").iterdir()] == ["night-1"]
    assert not [command for _pid, command, _env in everything() if os.fsencode(services.nodes) in command]


def test_the_image_can_be_built_as_far_as_without_a_network(services: ServiceWorld) -> None:
    """The context is made, git is there before it fetches the collection, and what the collection asks for is found."""
    builder = pathlib.Path(services_python()).parent / "ansible-builder"
    context = services.root / "context"
    argv = [builder, "create", "-f", FOLDER / "execution-environment.yml", "-c", context]
    subprocess.run(argv, check=True, capture_output=True, cwd=services.root, timeout=60)
    stage = (context / "Containerfile").read_text().partition(" AS galaxy\n")[2].partition("\nFROM ")[0]
    before, fetches, _rest = stage.partition(
        "RUN ANSIBLE_GALAXY_DISABLE_GPG_VERIFY=1 ansible-galaxy collection install"
    )
    assert fetches and "RUN $PKGMGR install -y git" in before, stage
    installed = [place for place in ROOT.glob(".venv-services/lib/*/site-packages") if place.is_dir()]
    libraries = (
        installed[0] if installed else next(pathlib.Path(services_python()).parents[1].glob("lib/*/site-packages"))
    )
    done = subprocess.run([builder, "introspect", libraries], check=True, capture_output=True, text=True, timeout=60)
    asked = yaml.safe_load(done.stdout)
    names = {re.split("[^a-z0-9-]", line)[0] for line in asked["python"]}
    wanted = (ROOT / "pyproject.toml").read_text()
    groups = ("kube", "vault", "object-store", "query")
    assert names == {
        "matplotlib",
        *(re.findall(rf'^{name} = \["([a-z0-9-]+)', wanted, re.MULTILINE)[0] for name in groups),
    }
    assert {line.split()[0] for line in asked["system"]} >= {"git", "rsync", "openssh-clients"}
