# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad input, items 1 to 12: source files, names, addresses and outages of inventories, each through Ansible itself.

The numbers are those of the project's list of bad inputs and faults; items 13 to 33 are in the file beside.
"""

from __future__ import annotations

import copy
import json
import pathlib
import subprocess
import sys
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.urls import Origin
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.lease import (
    InstanceName,
    parse_cluster_name,
    parse_pool_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._inventory.names import clean_label
from ansible_collections.muster.training.tests.support.listings import (
    CANARY,
    ListApi,
    endings,
    lambda_api,
    listing,
    tailscale_api,
)
from ansible_collections.muster.training.tests.support.run_inventory import Workbench, environment

TOKEN = "tok-canary-7d20e6b1"
VALUE = "value-canary-1177"
Results = dict[str, dict[str, t.Any]]
# Named in ansible.cfg a plugin reads its files itself; else Ansible's own reader is first, with its own words.
ENABLED = ",".join(f"muster.training.{name}" for name in endings())

# Item -> name -> (the whole text after the plugin's own lines, or bytes in place of all; words of the refusal).
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "1 syntax": ("strict: [\n", "tailscale.yml:6: is not valid YAML"),
    "1 tab": ("compose:\n\tx: y\n", "tailscale.yml:5: is not valid YAML"),
    "1 duplicate key": ("strict: true\nstrict: false\n", "tailscale.yml:5: the key 'strict' occurs twice"),
    "2 empty": (b"", "must be a mapping"),
    "2 list": (b"- plugin: muster.training.tailscale\n", "must be a mapping"),
    "2 huge": (b"plugin: muster.training.tailscale\n" + b"#" * 50_000_000, "is larger than 1048576 bytes"),
    "2 not text": (b"plugin: \xff\xfe\n", "is not valid YAML text"),
    "3 misspelt": (f"api_tokn: {VALUE}\n", "api_tokn: is not an option of this plugin. Did you mean 'api_token'?"),
    "3 unknown": (f"zzz: {VALUE}\n", "zzz: is not an option of this plugin. Known are: "),
    "4 number": (f"timeout_s: {VALUE}\n", "timeout_s"),
    "4 boolean": ("strict: [1]\n", "strict: must be true or false"),
    "4 boolean word": ("validate_certs: ture\n", "validate_certs: must be true or false"),
    "4 choice": ("states: [no]\n", "states"),
}
ACCEPTED: dict[str, tuple[t.Callable[[str], bytes], str]] = {
    "2 BOM": (lambda text: b"\xef\xbb\xbf" + text.encode(), ""),
    "2 CRLF": (lambda text: text.replace("\n", "\r\n").encode(), ""),
    "4 lossless": (lambda text: text.encode(), 'timeout_s: "8"\nstrict: "no"\n'),
}


class Fleet:
    """Tailscale-shaped devices of one's own making."""

    def __init__(self) -> None:
        self._device: dict[str, t.Any] = listing("tailscale")["devices"][0]

    def api(self, *changes: dict[str, t.Any]) -> ListApi:
        devices = []
        for number, change in enumerate(changes):
            device = copy.deepcopy(self._device)
            device |= {"id": str(number), "nodeId": f"n{number}CNTRL", "hostname": f"h{number}"}
            device |= {"name": f"h{number}.tail1234.ts.net", "addresses": [f"100.64.0.{number + 1}"], **change}
            devices.append(device)
        return ListApi(None, {"GET /api/v2/tailnet/-/devices": {"devices": devices}})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """All inventories of this file, loaded in one process; ``asked`` tells how often the API was called for each."""
    bench = Workbench(tmp_path_factory.mktemp("bad"), TOKEN, endings())
    with tailscale_api() as api:
        for name, (text, _words) in REFUSED.items():
            place = bench.plugin(name, "tailscale", api.url, text if isinstance(text, str) else "")
            if isinstance(text, bytes):
                pathlib.Path(place).write_bytes(text)
            bench.case(name, place)
        found = bench.run(ANSIBLE_INVENTORY_ENABLED=ENABLED)
        asked = [name for name in REFUSED if not found[name]["error"]]
        assert asked == [] and api.requests == [], "a source that is refused must not contact anything"
        bench.cases = []
        for name, (change, more) in ACCEPTED.items():
            place = pathlib.Path(bench.plugin(name, "tailscale", api.url, more))
            place.write_bytes(change(place.read_text()))
            bench.case(name, str(place))
        found |= bench.run()
    yield found


@pytest.mark.parametrize("name", REFUSED)
def test_01_to_04_refused(results: Results, name: str) -> None:
    found = results[name]
    assert found["error"] and not found["hosts"]
    assert REFUSED[name][1] in " ".join(found["log"].split())
    assert VALUE not in found["log"].replace(f"'{VALUE}'", "") or name == "4 number"
    assert "Traceback" not in found["log"] and TOKEN not in found["log"]


@pytest.mark.parametrize("name", ACCEPTED)
def test_02_and_04_accepted(results: Results, name: str) -> None:
    assert results[name]["error"] is None and len(results[name]["hosts"]) == 8


def test_01_the_exit_status_of_ansible(tmp_path: pathlib.Path) -> None:
    bench = Workbench(tmp_path, TOKEN, endings())
    source = bench.plugin("x", "tailscale", "http://127.0.0.1:9", "strict: [\n")
    play = tmp_path / "p.yml"
    play.write_text("[{hosts: all, gather_facts: false, tasks: []}]")
    argv = [sys.executable, "-m", "ansible", "playbook", "-i", source, str(play)]
    env = environment(tmp_path, ANSIBLE_INVENTORY_ENABLED=ENABLED)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env, timeout=60)
    # Ansible's own status of an inventory that it could not read.
    assert done.returncode == 1 and "tailscale.yml:6: is not valid YAML" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr + done.stdout


def load(folder: pathlib.Path, *apis: tuple[str, str], more: str = "") -> dict[str, t.Any]:
    bench = Workbench(folder, TOKEN, endings())
    bench.case("x", *(bench.plugin(f"s{number}", plugin, url, more) for number, (plugin, url) in enumerate(apis)))
    return bench.run()["x"]


def test_05_one_name_from_two_sources(tmp_path: pathlib.Path) -> None:
    """Two accounts with a host of one name: both stay, one with a suffix, told once; the order decides nothing."""
    with lambda_api() as first, lambda_api() as second:
        found = load(tmp_path, ("lambda_cloud", first.url), ("lambda_cloud", second.url))
        again = load(tmp_path, ("lambda_cloud", first.url), ("lambda_cloud", second.url))
    # One account seen twice is one set of machines.
    assert len(found["hosts"]) == 3 and sorted(found["hosts"]) == sorted(again["hosts"])
    fleet = Fleet()
    with fleet.api({"name": "lab-h100-0-1f2e3d4c.x.ts.net"}) as mesh, lambda_api() as rented:
        merged = load(tmp_path, ("lambda_cloud", rented.url), ("tailscale", mesh.url))
    host = merged["hosts"]["lab-h100-0-1f2e3d4c"]
    assert host["muster_node"]["provider"] == "lambda" and host["muster_node"]["addresses"]["mesh"]


def test_06_two_devices_with_one_name(tmp_path: pathlib.Path) -> None:
    stale = {"name": "gpu.x.ts.net", "connectedToControl": False, "lastSeen": "2026-01-01T00:00:00Z"}
    live = {"name": "gpu.x.ts.net", "connectedToControl": True, "lastSeen": None}
    with Fleet().api(stale, live) as api:
        found = load(tmp_path, ("tailscale", api.url))
    assert found["hosts"]["gpu"]["muster_node"]["id"] == "n1CNTRL" and len(found["hosts"]) == 2
    other = next(item for name, item in found["hosts"].items() if name != "gpu")
    assert other["muster_node"]["id"] == "n0CNTRL" and other["muster_reachable"] is False
    assert found["log"].count("have the same name") == 1


def test_07_names_that_are_none(tmp_path: pathlib.Path) -> None:
    names = ["GPU_1", "gpu 1", "gpü-1", "🚀", "a.b", "-x-", "localhost", "ALL"]
    assert len({clean_label(name) for name in names}) == len(names)
    with Fleet().api(*({"name": f"{name}.x.ts.net", "hostname": name} for name in names)) as api:
        found = load(tmp_path, ("tailscale", api.url))
    hosts = found["hosts"]
    assert len(hosts) == len(names) and "localhost" not in hosts and "all" not in hosts
    assert all(len(name) <= 63 and name.isascii() and name == name.lower() for name in hosts)
    assert sorted(item["tailscale_hostname"] for item in hosts.values()) == sorted(names)


def test_08_names_that_are_too_long() -> None:
    longest = InstanceName("c" * 24, "p" * 16, 9999, "1f2e3d4c")
    assert len(f"{longest}-999") <= 63, "what the longest accepted parts make must fit"
    for check, value in ((parse_cluster_name, "c" * 25), (parse_pool_name, "p" * 17)):
        with pytest.raises(InputError):
            check(value)
    label = clean_label("n" * 200)
    assert len(label) <= 63 and label != clean_label("n" * 201)


def test_09_devices_that_are_of_no_use_now(tmp_path: pathlib.Path) -> None:
    offline = {"connectedToControl": False, "lastSeen": "2026-01-01T00:00:00Z"}
    expired = {"expires": "2020-01-01T00:00:00Z", "keyExpiryDisabled": False}
    with Fleet().api({}, offline, expired, {"authorized": False}) as api:
        found = load(tmp_path, ("tailscale", api.url))
    assert found["error"] is None
    assert [found["hosts"][f"h{number}"]["muster_reachable"] for number in range(4)] == [True, False, False, False]


@pytest.mark.parametrize("failure", [(503, b"", {"Retry-After": "0"}), (200, b"", {}), (200, b'{"devices": null}', {})])
def test_10_an_outage_is_no_empty_fleet(tmp_path: pathlib.Path, failure: t.Any) -> None:
    with tailscale_api() as api:
        bench = Workbench(tmp_path, TOKEN, endings())
        source = bench.plugin("s", "tailscale", api.url, "timeout_s: 2\ncache_stale_s: 3600\n")
        bench.case("kept", source, cache=False)
        assert len(bench.run()["kept"]["hosts"]) == 8
        api.failure = failure
        found = load(tmp_path / "other", ("tailscale", api.url), more="timeout_s: 2\n") if _mkdir(tmp_path) else {}
        stale = bench.run()["kept"]
    assert found["error"] and not found["hosts"]
    assert len(stale["hosts"]) == 8 and "using a listing" in stale["log"]
    assert all("muster_inventory_age_s" in item for item in stale["hosts"].values())


def _mkdir(folder: pathlib.Path) -> bool:
    (folder / "other").mkdir()
    return True


def test_11_addresses(tmp_path: pathlib.Path) -> None:
    six = ["fd7a:115c:a1e0::1"]
    with Fleet().api({"addresses": six}, {"addresses": ["fe80::1%eth0", "100.64.0.9"]}, {"addresses": []}) as api:
        found = load(tmp_path, ("tailscale", api.url), more="connect_with: [mesh]\n")
    hosts = found["hosts"]
    assert hosts["h0"]["ansible_host"] == six[0] and hosts["h1"]["ansible_host"] == "100.64.0.9"
    assert "ansible_host" not in hosts["h2"] and hosts["h2"]["muster_reachable"] is False
    assert Origin("https", six[0], 8443).authority == f"[{six[0]}]:8443"
    # The same address of the shared range in two tailnets: two hosts, told apart by their ids.
    same = {"addresses": ["100.64.0.7"]}
    with Fleet().api(same, same) as api:
        assert len(load(tmp_path, ("tailscale", api.url))["hosts"]) == 2


def test_12_no_secret_is_kept_or_listed(tmp_path: pathlib.Path) -> None:
    bench = Workbench(tmp_path, TOKEN, endings())
    with lambda_api() as api:
        source = bench.plugin("s", "lambda_cloud", api.url, "cache_fresh_s: 60\n")
        argv = [sys.executable, "-m", "ansible", "inventory", "-i", source, "--list", "-vvvvv"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment(tmp_path), timeout=60)
    assert done.returncode == 0 and len(json.loads(done.stdout[done.stdout.index("{") :])["_meta"]["hostvars"]) == 3
    kept = list((tmp_path / "cache").rglob("*.json"))
    assert len(kept) == 1
    for text in (done.stdout, done.stderr, kept[0].read_text()):
        assert TOKEN not in text and CANARY not in text
