# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a machine, read by the rules of K3s itself: an option that K3s does not have is an error there."""

from __future__ import annotations

import importlib.util
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._hosts import k3s_files

FLAGS = pathlib.Path(__file__).parents[5] / "tests/lab/k3s/program/flags.py"
SERVER = k3s_files.K3sSettings(
    "server", "a", pods="10.42.0.0/16", services="10.43.0.0/16", names=("192.0.2.1",), taints=("k=v:NoSchedule",)
)
AGENT = k3s_files.K3sSettings("agent", "b", server="https://192.0.2.1:6443", node_ip="192.0.2.2", flannel_iface="eth1")


def strict() -> t.Any:
    spec = importlib.util.spec_from_file_location("k3s_flags", FLAGS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(settings: k3s_files.K3sSettings) -> dict[str, k3s_files.NodeFile]:
    return {item.path: item for item in k3s_files.render(settings)}


@pytest.mark.parametrize("settings", [SERVER, AGENT])
def test_k3s_knows_every_option(settings: k3s_files.K3sSettings) -> None:
    flags = strict()
    known = flags.SERVER if settings.role == "server" else flags.AGENT
    values: dict[str, t.Any] = {}
    flags._add(values, yaml.safe_load(texts(settings)[k3s_files.CONFIG].text), known, "test")
    assert values["node-name"] == settings.node


def test_the_strict_reader_refuses_what_k3s_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    flags = strict()
    monkeypatch.setattr(flags, "CONFIG", str(tmp_path / "config.yaml"))
    (tmp_path / "config.yaml").write_text("cluster-cidr: 10.42.0.0/16\n")
    assert flags.read("server", [])["cluster-cidr"] == ["10.42.0.0/16"]
    for command, words in (("agent", []), ("server", ["--bogus"]), ("server", ["stray"])):
        with pytest.raises(flags.UsageError):
            flags.read(command, words)
    drop = tmp_path / "config.yaml.d"
    drop.mkdir()
    (drop / "50-x.yaml").write_text("cluster-cidr+: 10.44.0.0/16\ntoken: from-file\n")
    monkeypatch.setenv("K3S_TOKEN", "from-environment")
    found = flags.read("server", ["--disable", "traefik", "--disable=servicelb"])
    assert found["cluster-cidr"] == ["10.42.0.0/16", "10.44.0.0/16"]
    assert found["token"] == "from-environment" and found["disable"] == ["traefik", "servicelb"]


def test_a_server_has_no_ingress_and_encrypts_secrets_unless_asked_otherwise() -> None:
    config = yaml.safe_load(texts(SERVER)[k3s_files.CONFIG].text)
    assert config["disable"] == ["traefik", "servicelb"] and config["secrets-encryption"] is True
    assert config["write-kubeconfig-mode"] == "0600" and config["tls-san"] == ["192.0.2.1"]
    import dataclasses

    asked = dataclasses.replace(SERVER, traefik=True, servicelb=True, more={"secrets-encryption": False})
    config = yaml.safe_load(texts(asked)[k3s_files.CONFIG].text)
    assert "disable" not in config and config["secrets-encryption"] is False


def test_an_agents_token_is_a_file_of_its_own() -> None:
    config = yaml.safe_load(texts(AGENT)[k3s_files.CONFIG].text)
    assert config["token-file"] == k3s_files.TOKEN and "token" not in config
    assert config["server"] == "https://192.0.2.1:6443" and config["flannel-iface"] == "eth1"


def test_modes_and_units() -> None:
    found = texts(AGENT)
    assert {path: item.mode for path, item in found.items()} == {
        "/etc/systemd/system/k3s-agent.service": 0o644,
        k3s_files.CONFIG: 0o600,
        "/etc/systemd/system/k3s-agent.service.d/50-memlock.conf": 0o644,
    }
    unit = found["/etc/systemd/system/k3s-agent.service"].text
    assert "ExecStart=/usr/local/bin/k3s agent\n" in unit and "KillMode=process" in unit and "Type=notify" in unit


def test_registries_are_written_only_where_there_are_some() -> None:
    import dataclasses

    asked = dataclasses.replace(
        AGENT, memlock=False, registries={"mirrors": {"docker.io": {"endpoint": ["https://r"]}}}
    )
    found = texts(asked)
    assert yaml.safe_load(found[k3s_files.REGISTRIES].text) == asked.registries
    assert found[k3s_files.REGISTRIES].mode == 0o600 and not any("memlock" in path for path in found)
