# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the page of all variables from the playbooks and the roles' argument_specs: ``python -m tools.variables``.

``--check`` only compares. A variable that neither a role's specification nor MEANINGS explains is an error.
"""

from __future__ import annotations

import pathlib
import re
import sys
import typing as t

import yaml

from .tree import ROOT

PAGE = ROOT / "docs" / "docsite" / "rst" / "variables.rst"
NAME = re.compile(r"(?<![A-Za-z0-9_])muster_[a-z0-9_]*[a-z0-9]|(?<![A-Za-z0-9_.])diagnose_[a-z0-9_]*[a-z0-9]")
# Names of groups, and facts that a play sets for the next one.
NOT_SET_BY_USERS = (
    *("muster_nodes", "muster_rented", "muster_healed", "muster_driver_waves", "muster_user_kubeconfig"),
    *("muster_k3s", "muster_k3s_agent", "muster_k3s_lead", "muster_k3s_server", "muster_joining"),
    *("muster_reaper", "muster_reaping", "muster_upgrade_waves", "muster_other_servers"),
    "muster_control_plane",
)
# What is read by playbooks or modules alone, so that no role's specification has it.
MEANINGS = {
    "muster_node_hosts": "The machines: a group or hosts of the inventory. The default is the group muster_nodes.",
    "muster_train_hosts": "Where the plays of a job run: the machines, or localhost for jobs on Kubernetes.",
    "muster_node": "The record of a node (a host variable): what is known of its hardware, addresses and price.",
    "muster_address": "The address at which the other nodes reach this one (a host variable).",
    "muster_node_state": "Folder of the collection's state on the nodes. The default is ~/.local/state/muster/nodes.",
    "muster_cluster_gone": "Whether the cluster of a run that is cancelled no longer exists (false).",
    "muster_cluster_adopt": "Whether another cluster takes the name of one that no longer exists (playbook cluster).",
    "k3s_allow_downgrade": "Whether the playbook upgrade may set K3s back to an older version.",
    "muster_job": "The job, as the guide to the job describes it.",
    "muster_template": "The template of the catalogue that is trained or shown.",
    "muster_template_digest": "The digest that muster_template must have. The default is any.",
    "muster_template_overrides": "Keys of a job that are laid over those of muster_template.",
    "muster_launch": "A launch file, or its link https://HOST/FILE#sha256=DIGEST, whose job is trained.",
    "muster_launch_code": "The folder with the code that the launch file asks for.",
    "muster_launch_datasets": "By the name of a dataset that the launch file asks for, the folder with it.",
    "muster_launch_secrets": "By the name of a secret that the launch file asks for, where it is (from, path, key).",
    "muster_launch_path": "Where the playbook launch writes to, a file or a folder. The default is the current folder.",
    "muster_launch_url": "The address behind HTTPS from which a launch file will be read, for its link.",
    "muster_launch_devcontainer": "The folder of a project that gets a dev container of the job's image.",
    "muster_export": "What the playbook export writes: ``ssh_config`` (the default).",
    "muster_export_path": "Where the playbook export writes to, a file or a folder. The default is the current folder.",
    "muster_serve_path": "The folder with the model that the playbook serve_check checks, on this machine.",
    "muster_serve_url": "The address of a server that has the model (playbook serve_check).",
    "muster_serve_model": "The model as that server calls it.",
    "muster_serve_prompt": "The prompt for that server.",
    "muster_serve_chat": "Whether chat has to work (true); otherwise only completions.",
    "muster_serve_allow_pickle": "Whether weights as pickle are taken (false).",
    "muster_serve_allow_remote_code": "Whether a model with Python files of its own is taken (false).",
    "muster_serve_api_key_file": "A file with the API key of that server.",
    "muster_serve_reference": "A file with what the training side makes of prompts, compared with that server.",
    "muster_serve_tolerance": "How far log-probabilities may differ from those of that file (0.01).",
    "muster_catalogue_sources": "More sources of templates: folders, git at a commit, files behind HTTPS.",
    "muster_service_template": "The template of the catalogue that playbooks services and exporter_stack fill.",
    "muster_service_template_digest": "The digest that muster_service_template must have. The default is any.",
    "muster_service_inputs": "The answers to the inputs of muster_service_template, by name; nothing is evaluated.",
    "muster_inputs": "The answers to the inputs of muster_template, by name; nothing in them is evaluated.",
    "muster_catalogue_paths": "Folders with templates of your own for the catalogue.",
    "muster_run_id": "The run; the newest one where it may be left out.",
    "muster_training_python": "The interpreter of jobs (a host variable).",
    "muster_training_env": "Folder of the environment that bootstrap makes (~/.local/share/muster/env).",
    "muster_compare": "Runs to compare on one page.",
    "muster_report_all": "Whether to write the page of all runs (``runs.html``) instead of the report of one.",
    "muster_report_path": "Folder of the report. The default is report in the run's folder.",
    "muster_status_limit": "How many of the newest runs are shown (20).",
    "muster_status_json": "Whether to show the fields of the runs instead of the table.",
    "muster_status_query": "JMESPath on runs and summary, such as ``runs[].run_id``, to show what it selects.",
    "muster_usage_by": "By what rows differ: month, user, team, job, run, node, provider, gpu (month,user,team,job).",
    "muster_usage_since": "The beginning of the usage, a date. The default is the first entry.",
    "muster_usage_before": "The end of the usage, a date. The default is now.",
    "muster_usage_json": "Whether to show the fields of the usage instead of the table.",
    "muster_log_lines": "Number of last lines (20).",
    "muster_log_ranks": "Whether to fetch the logs of each rank from plain hosts.",
    "muster_log_follow": "Whether to say each new line until the run has ended.",
    "muster_log_rank": "Only the lines of this rank.",
    "muster_log_grep": "Only the lines in which this regular expression is found.",
    "muster_fetch_source": "Where muster_fetch_paths is: checkpoints, the bucket (bucket), or the run's (run).",
    "muster_fetch_paths": "Files to fetch, as shell patterns. The default is the newest complete checkpoint.",
    "muster_fetch_model": "A registered model (``NAME`` or ``NAME@ALIAS``) whose checkpoint is fetched.",
    "muster_fetch_tracker": "The binding of the tracker that has the model. The default is the only one.",
    "muster_fetch_dest": "Folder on the controller. The default is files in the run's folder.",
    "muster_prune_keep": "How many of the newest runs stay (20).",
    "muster_prune_days": "Only runs that ended at least this many days ago.",
    "muster_prune_runs": "Names of the runs to remove instead.",
    "muster_prune_unfetched": "Whether to remove runs with the only copy of their newest checkpoint, too.",
    "muster_prune_controller": "Whether to remove their logs and reports on the controller, too; records stay.",
    "diagnose_logs": "A folder of logs to judge, without hosts and cluster.",
    "diagnose_namespace": "The namespace of the run's pods.",
    "diagnose_out": "A file for the findings as JSON.",
    "diagnose_ras_s": "Seconds to wait for NCCL's RAS service.",
    "diagnose_window_s": "Seconds for which the ranks are watched (1.0).",
    "muster_diagnose_attach": "Whether diagnose looks at jobs on the hosts that others have started (false).",
    "muster_bundle": "Folder of the bundle from which a cluster without access to the internet is installed.",
    "muster_bundle_architectures": "Architectures that a bundle is for (amd64).",
    "muster_bundle_programs": "Programs that a bundle holds only when they are named, such as nvidia-device-plugin.",
    "muster_bundle_images": "Images that a bundle holds. The default is that of muster_job.",
    "muster_bundle_mirror": "A mirror from which a bundle is read.",
    "muster_gpus_max_age_s": "Seconds for which site keeps the proof of a node that is what it was then: a day.",
    "muster_fabric_max_age_s": "Seconds for which a verdict on the same nodes is kept: a day on K3s, else 0.",
    "muster_image": "The name under which an image is pushed. The default is that of muster_job.",
    "muster_image_archive": "An archive from which the nodes import an image, or which is pushed.",
    "muster_image_source": "An image of another registry, which is copied.",
    "muster_join_hosts": "Hosts of the inventory that join the cluster.",
    "muster_report_hosts": "Where the play of the report runs (localhost).",
    "muster_team_quota": "What the team may use. The default is all that the nodes have.",
    "muster_drain": "Whether nodes of a cluster are drained before they go (true).",
    "muster_gang_scheduling": "Whether a cluster gets JobSet and Kueue (true).",
    "muster_heal_gpus": "Whether heal takes out nodes that have lost a GPU (true).",
    "muster_heal_patience_s": "Seconds of silence after which a node counts as lost (120).",
    "muster_watch_s": "Seconds for which watch waits for a notice of preemption before it heals (60).",
    "muster_heal_wait": "Whether heal follows the run that it resumed (true).",
    "muster_hygiene": "Whether credentials are removed from machines before they are terminated (true).",
    "muster_join_role": "A role that joins a replacement to a cluster.",
    "muster_lease": "Whether rented machines get a timer that ends them when nothing renews it (true).",
    "muster_leave_mesh": "Whether owned machines that are removed leave the mesh that they joined here (true).",
    "muster_lost_nodes": "Nodes that are lost, although nothing says so.",
    "muster_container_runtime": "Whether devices installs the container toolkit (where a machine is in a cluster).",
    "muster_devices": "Whether GPUs and RDMA are set up: in a cluster (true), by bootstrap on hosts (false).",
    "muster_upgrade_max_unavailable": "How many agents upgrade may close at once, such as 25% (1).",
    "muster_upgrade_on_jobs": "What upgrade does with runs: checkpoint evicts pods, wait lets them end (checkpoint).",
    "muster_backup_store": "The binding of an object store, in whose bucket for artifacts backups are, too.",
    "muster_backup_keep": "How many backups of the control plane stay (7).",
    "muster_backup_key": "The key that seals backups. The default is that of backup.key in the state home.",
    "muster_backup_key_file": "A file of the controller with that key.",
    "muster_control_plane_host": "The server that is backed up or restored. The default is the first one.",
    "muster_restore_backup": "The id of the backup that is restored. The default is the newest.",
    "muster_restore_overwrite": "Whether data of the cluster on the server may be put aside for a backup (false).",
    "muster_restore_again": "Whether the backup is restored again from which the cluster came (false).",
    "muster_upgrade_backup": "Whether upgrade takes a backup before it changes a server (true).",
    "muster_upgrade_wait_s": "How many seconds upgrade waits until the runs on a machine have ended (86400).",
    "muster_drivers_max_unavailable": "How many machines upgrade_drivers may close at once, such as 25% (1).",
    "muster_devices_absent": "Whether cluster_absent also removes what devices installed (false).",
    "muster_nodes_ready_s": "Seconds to wait until the nodes of a cluster are ready (180).",
    "muster_on_lost_node": "What heal does, instead of the job's restart.on_lost_node.",
    "muster_preempted_nodes": "Nodes with a preemption notice.",
    "muster_reap_orphans": "Whether machines of the account without a lease are only reported, or deleted (delete).",
    "muster_reaper_context": "The context of muster_reaper_kubeconfig.",
    "muster_reaper_metrics_file": "Where the reaper writes figures of leases for node_exporter (NAME.prom).",
    "muster_reaper_kubeconfig": "A kubeconfig on the reaper's host, to see whether runs in pods have ended.",
    "muster_reaper_providers": "The reaper's accounts, with keys on its host that may list and delete machines only.",
    "muster_reaper_ssh_private_key_file": "A key on the reaper's host, to see whether runs on machines have ended.",
    "muster_reaper_state": "Where the reaper keeps the ledger (/var/lib/muster/reaper).",
    "muster_remove_nodes": "The rented nodes to terminate.",
    "muster_rented_hosts": "Where the plays of rented machines run.",
    "muster_services": "The supporting services of the inventory, as the guide to services describes them.",
    "muster_services_pods": "From where services are checked as pods see them: namespace and image.",
    "muster_services_require_all": "Whether a service that one node cannot reach fails the play (true).",
    "muster_stop_runs": "Whether runs are stopped before their machines are terminated (true).",
}


def read_specs() -> dict[str, dict[str, t.Any]]:
    """Return the options of every role by role."""
    found = {}
    for path in sorted((ROOT / "roles").glob("*/meta/argument_specs.yml")):
        specs = yaml.safe_load(path.read_text())["argument_specs"]
        found[path.parents[1].name] = {
            name: option for spec in specs.values() for name, option in spec["options"].items()
        }
    return found


def find_users() -> dict[str, set[str]]:
    """Return by variable the playbooks that read it: in their own text, or in that of a role or playbook they use."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "playbooks").glob("*.yml")):
        for name in set(NAME.findall(_text_of(path, set()))) - set(NOT_SET_BY_USERS):
            found.setdefault(name, set()).add(path.stem)
    return {name: users for name, users in found.items() if not name.endswith("_")}


def _text_of(path: pathlib.Path, seen: set[pathlib.Path]) -> str:
    if path in seen or not path.is_file():
        return ""
    seen.add(path)
    text = re.sub(r"^\s*#.*$", "", path.read_text(), flags=re.MULTILINE)
    roles = set(re.findall(r"(?:role: |name: )muster\.training\.(\w+)", text)) | set(
        re.findall(r"\.\./roles/(\w+)/", text)
    )
    others = set(re.findall(r"import_playbook: (?:muster\.training\.)?(\w+)", text))
    parts = [text]
    for role in sorted(roles):
        files = [item for item in sorted((ROOT / "roles" / role).glob("*/*")) if item.suffix in (".yml", ".j2", "")]
        parts += [_text_of(item, seen) for item in files if item.is_file() and item.parent.name != "files"]
    parts += [_text_of(ROOT / "playbooks" / f"{name}.yml", seen) for name in sorted(others)]
    return "\n".join(parts)


def explain(name: str, specs: t.Mapping[str, t.Mapping[str, t.Any]]) -> str:
    """Return what a variable means, empty where nothing says it."""
    if name in MEANINGS:
        return MEANINGS[name]
    for options in specs.values():
        for option in options.values():
            if re.search(rf"\b{name}\b", f"{option.get('default', '')} {_plain(option['description'])}"):
                return re.sub(r" ?The default is the variable [^.]*\.?$", "", _plain(option["description"])).strip()
    return ""


def render() -> str:
    """Return the page.

    :raises LookupError: naming the variables that nothing explains.
    """
    specs, users = read_specs(), find_users()
    meanings = {name: explain(name, specs) for name in sorted({*users, *MEANINGS})}
    missing = [name for name, meaning in meanings.items() if not meaning]
    if missing:
        raise LookupError(f"say in MEANINGS of tools/variables.py what these are: {', '.join(missing)}")
    lines = [_HEAD, *_table(("Variable", "Playbooks", "Meaning"))]
    for name, meaning in meanings.items():
        lines += _row(f"``{name}``", ", ".join(sorted(users.get(name, ()))) or "inventory", _escape(meaning))
    lines += ["", "Options of the roles", "--------------------", "", "For a play of your own that includes a role."]
    for role, options in specs.items():
        lines += ["", role, "~" * len(role), "", *_table(("Option", "Type", "Default", "Meaning"))]
        for name, option in options.items():
            default = option.get("default")
            words = "required" if option.get("required") else "" if default is None else f"``{_one_line(default)}``"
            lines += _row(f"``{name}``", str(option["type"]), words, _escape(_plain(option["description"])))
    return "\n".join(lines) + "\n"


_HEAD = """\
..
  Copyright (c) 2026, muster.training contributors
  GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
  SPDX-License-Identifier: GPL-3.0-or-later
  Written by python -m tools.variables: do not edit.

.. _ansible_collections.muster.training.docsite.variables:

All variables
=============

Set them in the inventory (host, group or ``all``) or with ``-e``. The playbook ``report`` runs on localhost and reads
those of the machines, too. The keys of ``muster_job`` are in `the job <guide_job.rst>`_.
"""


def _table(headings: t.Sequence[str]) -> list[str]:
    return ["", ".. list-table::", "   :header-rows: 1", "", *_row(*headings)]


def _row(*cells: str) -> list[str]:
    return [f"   {'*' if index == 0 else ' '} - {cell}".rstrip() for index, cell in enumerate(cells)]


def _plain(value: t.Any) -> str:
    text = " ".join(value) if isinstance(value, list) else str(value)
    text = re.sub(r"\b[A-Z]\(([^)]*)\)", lambda match: match[1].rpartition("#module:")[2] or match[1], text)
    return " ".join(text.split())


def _one_line(value: t.Any) -> str:
    return " ".join(str(value).split()) or "''"


def _escape(text: str) -> str:
    return re.sub(r"([*`|\\]|_(?=[\s.,;)]|$))", r"\\\1", text)


def main(arguments: list[str]) -> int:
    """Write the page, or with ``--check`` say whether it is up to date; 1 where it is not."""
    page = render()
    if arguments == ["--check"]:
        if PAGE.read_text() == page:
            return 0
        print("docs/docsite/rst/variables.rst is out of date: run python -m tools.variables", file=sys.stderr)
        return 1
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
