# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugins in Ansible, against list calls on loopback that keep to the providers' documents."""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.tests.support.listings import (
    APIS,
    CANARY,
    endings,
    headscale_api,
    lambda_api,
    listing,
    tailscale_api,
)
from ansible_collections.muster.training.tests.support.loopback import raw_server, reply
from ansible_collections.muster.training.tests.support.run_inventory import Workbench

TOKEN = "tok-canary-31c4ab97"


def workbench(folder: pathlib.Path) -> Workbench:
    return Workbench(folder, TOKEN, endings())


GROUPED = """
group: tailnet
keyed_groups:
  - {key: tailscale_tags, prefix: '', separator: ''}
groups:
  up: muster_reachable
compose:
  os_name: tailscale_os
  where: muster_node.addresses.mesh[0].address
filters:
  - exclude: tailscale_expired
  - include: muster_node.name is match('spark')
  - exclude: true
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, t.Any]]]:
    """All inventories that need nothing but an API that works, loaded in one process."""
    bench = workbench(tmp_path_factory.mktemp("inventory"))
    with contextlib.ExitStack() as stack:
        apis = {name: stack.enter_context(make()) for name, (make, _ending, _path) in APIS.items()}
        head = stack.enter_context(headscale_api())
        urls = {name: api.url for name, api in apis.items()}
        for name in APIS:
            bench.case(name, bench.plugin(name, name, urls[name]))
        bench.case("grouped", bench.plugin("grouped", "tailscale", urls["tailscale"], GROUPED))
        states = "states: [offline]\nexternal: true\nhostname: tailscale_name"
        bench.case("states", bench.plugin("states", "tailscale", urls["tailscale"], states))
        # Each address has its own pace of one call a second: none is called twice.
        for case in ("lambda then mesh", "mesh then lambda"):
            rented = bench.plugin(case, "lambda_cloud", stack.enter_context(lambda_api()).url)
            both = [rented, bench.plugin(case, "tailscale", urls["tailscale"])]
            bench.case(case, *(both if case.startswith("lambda") else reversed(both)))
        static = bench.source("static/hosts.yml", "all: {hosts: {spark-01: {rack: 7}}, children: {node: {}}}\n")
        bench.case("static", static, bench.plugin("static", "tailscale", urls["tailscale"]))
        accounts = [
            bench.plugin(f"account{number}", "lambda_cloud", urls["lambda_cloud"], token=f"{TOKEN}-{number}")
            for number in (1, 2)
        ]
        bench.case("two accounts", *accounts)
        bench.case(
            "keys",
            bench.plugin(
                "keys", "runpod", urls["runpod"], "known_hosts_dir: /keys\nconnect_with: [private, ssh_direct]"
            ),
        )
        template = "\"{{ lookup('env', 'MY_TOKEN') }}\""
        bench.case("template", bench.plugin("template", "shadeform", urls["shadeform"], token=template))
        file = f"api_token_file: {bench.source('file/token', TOKEN)}"
        bench.case("file", bench.plugin("file", "shadeform", urls["shadeform"], file, token=None))
        bench.case("env", bench.plugin("env", "vastai", urls["vastai"], token=None))
        headscale = f"plugin: muster.training.tailscale\nsource: headscale\napi_url: {head.url}\napi_token: {TOKEN}\n"
        bench.case("headscale", bench.source("h/headscale.yml", headscale))
        fake = bench.folder / "status"
        fake.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(listing('tailscale_status'))}\nEND\n")
        fake.chmod(0o755)
        local = f"source: local\ntailscale_binary: {fake}\nconnect_with: [magicdns, mesh]\n"
        bench.case("local", bench.source("l/tailnet.yml", f"plugin: muster.training.tailscale\n{local}"))
        yield bench.run(MY_TOKEN=TOKEN, VAST_API_KEY=TOKEN)


@pytest.mark.parametrize("name", APIS)
def test_each_provider_gives_hosts_with_records(results: dict[str, dict[str, t.Any]], name: str) -> None:
    found = results[name]
    assert found["error"] is None and found["hosts"]
    for host, variables in found["hosts"].items():
        node = Node.from_dict(variables["muster_node"])
        assert node.state != "gone" and node.account and host
        assert not {"name", "tags", "os", "id", "state"} & set(variables)
        assert (variables.get("ansible_host") == node.ssh.host) or node.kind == "cluster"
    assert CANARY not in json.dumps(found) and TOKEN not in json.dumps(found)


def test_lambda_hosts(results: dict[str, dict[str, t.Any]]) -> None:
    hosts = results["lambda_cloud"]["hosts"]
    assert len(hosts) == 3 and "old" not in hosts
    rented = hosts["lab-h100-0-1f2e3d4c"]
    assert (rented["ansible_host"], rented["ansible_user"]) == ("198.51.100.2", "ubuntu")
    assert rented["muster_reachable"] is True and "ansible_port" not in rented
    waiting = hosts["lab-h100-1-5a6b7c8d"]
    assert "ansible_host" not in waiting and waiting["muster_reachable"] is False


def test_ports_of_containers(results: dict[str, dict[str, t.Any]]) -> None:
    pod, waiting = results["runpod"]["hosts"]["demo-0"], results["runpod"]["hosts"]["demo-1"]
    assert (pod["ansible_host"], pod["ansible_port"], pod["ansible_user"]) == ("203.0.113.4", 22001, "root")
    assert pod["runpod_cluster_cidr"] == "10.65.0.0/16" and not waiting["muster_reachable"]
    instance = results["vastai"]["hosts"]["lab-4090-0-11223344"]
    assert (instance["ansible_host"], instance["ansible_port"]) == ("192.0.2.45", 20000)
    assert sorted(results["env"]["hosts"]) == sorted(results["vastai"]["hosts"])


def test_host_keys_and_private_addresses(results: dict[str, dict[str, t.Any]]) -> None:
    pod = results["keys"]["hosts"]["demo-0"]
    assert (
        pod["ansible_ssh_common_args"]
        == "-o UserKnownHostsFile=/keys/runpod-pod_node0 -o HostKeyAlias=runpod-pod_node0"
    )
    assert pod["ansible_host"] == "10.65.0.2" and "ansible_port" not in pod


def test_clusters_are_no_machines(results: dict[str, dict[str, t.Any]]) -> None:
    cluster = results["coreweave"]["hosts"]["demo"]
    assert cluster["ansible_connection"] == "local" and "ansible_host" not in cluster and cluster["muster_reachable"]
    assert results["coreweave"]["hosts"]["broken"]["muster_reachable"] is False


def test_devices_are_kept_apart_and_marked(results: dict[str, dict[str, t.Any]]) -> None:
    hosts = results["tailscale"]["hosts"]
    assert "hello" not in hosts and len(hosts) == 8
    assert hosts["node"]["muster_node"]["id"] == "n7CNTRL"
    second = next(name for name, item in hosts.items() if item["muster_node"]["id"] == "n8CNTRL")
    assert second.startswith("node-") and hosts[second]["muster_node"]["name"] == "node"
    assert "localhost" not in hosts and any(name.startswith("localhost-") for name in hosts)
    assert [hosts[name]["muster_reachable"] for name in ("spark-01", "spark-02", "spark-03", "spark-04")] == [
        True,
        False,
        False,
        False,
    ]
    assert results["tailscale"]["log"].count("have the same name") == 1


def test_groups_variables_and_filters(results: dict[str, dict[str, t.Any]]) -> None:
    found = results["grouped"]
    assert sorted(found["hosts"]) == ["spark-01", "spark-02", "spark-04"] == sorted(found["groups"]["tailnet"])
    assert found["groups"]["tag_gpu"] == ["spark-01", "spark-02"] and found["groups"]["up"] == ["spark-01"]
    assert found["hosts"]["spark-01"]["where"] == "100.101.102.1"


def test_states_and_host_names(results: dict[str, dict[str, t.Any]]) -> None:
    names = sorted(results["states"]["hosts"])
    assert names == [
        "node.tail1234.ts.net",
        "spark-02.tail1234.ts.net",
        "spark-03.tail1234.ts.net",
        "spark-04.tail1234.ts.net",
    ]


def test_templates_of_a_provider_stay_text(results: dict[str, dict[str, t.Any]]) -> None:
    hosts = results["tailscale"]["hosts"]
    assert next(item for name, item in hosts.items() if name.startswith("localhost-"))["tailscale_os"] == "{{ 1 + 1 }}"


def test_one_machine_from_two_sources(results: dict[str, dict[str, t.Any]]) -> None:
    first, second = results["lambda then mesh"], results["mesh then lambda"]
    assert len(first["hosts"]) == len(second["hosts"]) == 3 + 8 - 1
    for found, address in ((first, "100.101.102.6"), (second, "198.51.100.2")):
        host = found["hosts"]["lab-h100-0-1f2e3d4c"]
        assert host["muster_node"]["provider"] == "lambda" and host["ansible_host"] == address
        assert host["muster_node"]["network_types"] == ["mesh", "lan", "public"]
        assert host["muster_node"]["ssh"]["host"] == address and host["tailscale_node_id"] == "n6CNTRL"


def test_hosts_of_other_sources(results: dict[str, dict[str, t.Any]]) -> None:
    found = results["static"]
    assert found["hosts"]["spark-01"]["rack"] == 7 and found["hosts"]["spark-01"]["ansible_host"] == "100.101.102.1"
    # A group has the name already: the device gets a mark.
    assert "node" not in found["hosts"]
    two = results["two accounts"]["hosts"]
    assert len(two) == 6 and len({item["muster_node"]["account"] for item in two.values()}) == 2


@pytest.mark.parametrize("name", ["template", "file"])
def test_ways_to_give_the_token(results: dict[str, dict[str, t.Any]], name: str) -> None:
    assert results[name]["error"] is None and len(results[name]["hosts"]) == 4


def test_headscale_and_local(results: dict[str, dict[str, t.Any]]) -> None:
    assert sorted(results["headscale"]["hosts"]) == ["old-renamed", "spark-01"]
    local = results["local"]["hosts"]
    assert local["lambda-01"]["ansible_host"] == "lambda-01.tail1234.ts.net"
    assert local["lambda-01"]["tailscale_path"] == "direct" and local["runpod-01"]["muster_reachable"] is False
    assert local["spark-01"]["tailscale_is_self"] is True


REFUSALS = {
    "misspelt": ("api_tokn: x\n", "api_tokn: is not an option of this plugin. Did you mean 'api_token'?"),
    "keyed": ("keyed_groups: [{key: a, prefx: b}]\n", "prefx: is not an option of this plugin. Did you mean 'prefix'?"),
    "twice": ("strict: true\nstrict: false\n", "tailscale.yml:5: the key 'strict' occurs twice"),
    "not yaml": ("strict: [\n", "is not valid YAML"),
    "type": ("timeout_s: soon\n", "timeout_s"),
    "choice": ("states: [runing]\n", "states"),
    "filter": ("filters: [{only: x}]\n", "filters[0]: must be one of include"),
    "filter undefined": ("filters: [{exclude: gone.away}]\n", "filters[0].exclude: cannot be evaluated"),
    "filter text": ("filters: [{exclude: tailscale_os}]\n", "filters[0].exclude: must be true or false"),
    "hostname": ("hostname: gone.away\n", "hostname: cannot be evaluated for"),
    "compose": ("strict: true\ncompose: {x: gone.away}\n", "gone"),
    "ca": (
        "source: headscale\nca_path: /nonexistent/ca.pem\n",
        "a TLS file cannot be used (no such file or directory)",
    ),
    "filters of the server": ("server_filters: {tags: {a: 1}}\n", "server_filters.tags"),
    "tailnet": ("tailnet: ../x\n", "tailnet: must be the tailnet's name"),
    "proxy": ("proxy: socks5://user:hunter22@x\n", "proxy: must"),
}
ENABLED = ",".join(f"muster.training.{name}" for name in APIS)


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, t.Any]]]:
    """All source files that are refused, and tokens that cannot be used, in one process."""
    bench = workbench(tmp_path_factory.mktemp("refused"))
    with tailscale_api() as api, raw_server(*[reply(b"")] * 9) as port:
        for name, (more, _problem) in REFUSALS.items():
            # Neither a proxy nor TLS is used towards this machine itself.
            url = "https://192.0.2.1" if name == "proxy" else f"https://127.0.0.1:{port}" if name == "ca" else api.url
            bench.case(name, bench.plugin(name, "tailscale", url, more))
        bench.case("no token", bench.plugin("no-token", "tailscale", api.url, token=None))
        bench.case("token with space", bench.plugin("space", "tailscale", api.url, token=f"'{TOKEN} x'"))
        undefined = bench.plugin("undefined", "tailscale", api.url, f"api_token_file: {TOKEN}", token="'{{ gone }}'")
        bench.case("undefined template", undefined)
        bench.case("warn", bench.plugin("warn", "tailscale", api.url, "on_error: warn\nfilters: [{only: x}]\n"))
        url = "plugin: muster.training.lambda_cloud\napi_token: x-token-123\napi_url: "
        bench.case("plain http", bench.source("plain/lambda.yml", f"{url}http://192.0.2.1/\n"))
        bench.case("password", bench.source("password/lambda.yml", f"{url}https://user:hunter22@192.0.2.1/\n"))
        yield bench.run(ANSIBLE_INVENTORY_ENABLED=ENABLED)


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_source_files(refusals: dict[str, dict[str, t.Any]], name: str) -> None:
    found = refusals[name]
    assert "Completely failed to parse" in found["error"] and not found["hosts"]
    assert REFUSALS[name][1] in " ".join(found["log"].split())
    assert TOKEN not in found["log"] and "hunter22" not in found["log"] and "Traceback" not in found["log"]


def test_refused_tokens(refusals: dict[str, dict[str, t.Any]]) -> None:
    problems = {
        "no token": "Set api_token or api_token_file or environment variable TAILSCALE_API_KEY",
        "token with space": "api_token: holds a space",
        "undefined template": "api_token: its template cannot be evaluated",
        "plain http": "api_url: must use https",
        "password": "api_url: must not contain a user or password",
    }
    for name, problem in problems.items():
        assert refusals[name]["error"] and problem in " ".join(refusals[name]["log"].split()), name
        assert TOKEN not in refusals[name]["log"] and "hunter22" not in refusals[name]["log"]


def test_going_on_without_a_source_is_said(refusals: dict[str, dict[str, t.Any]]) -> None:
    found = refusals["warn"]
    assert found["error"] is None and not found["hosts"]
    assert "filters[0]" in found["all"]["muster_inventory_problems"][0]
