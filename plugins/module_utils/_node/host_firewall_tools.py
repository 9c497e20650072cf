# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firewalls that are known: ufw, firewalld and plain nftables. Each renders rules as text, opens and closes."""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import dataclasses
import json
import pathlib
import shlex
import typing as t
import xml.sax.saxutils

from . import files
from .commands import run

Rule = t.Mapping[str, t.Any]
_MARK = "muster"
_POLICIES = pathlib.Path("/etc/firewalld/policies")
_SCRIPT = pathlib.Path("/var/lib/muster/firewall.sh")
_UNIT = pathlib.Path("/etc/systemd/system/muster-firewall.service")
_UNIT_TEXT = f"""# Written by muster.training; changes are overwritten.
[Unit]
Description=Let packets of the Kubernetes cluster through the firewall
After=nftables.service
PartOf=nftables.service
ReloadPropagatedFrom=nftables.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -e {_SCRIPT}
ExecReload=/bin/sh -e {_SCRIPT}

[Install]
WantedBy=multi-user.target nftables.service
"""


@dataclasses.dataclass(frozen=True)
class FirewallTool:
    """One firewall. ``render``: rules as its own texts; ``open`` returns its refusal, if there is one."""

    is_active: t.Callable[[], bool]
    render: t.Callable[[t.Sequence[Rule]], list[str]]
    is_in_force: t.Callable[[t.Sequence[str]], bool]
    open: t.Callable[[t.Sequence[str]], str | None]
    close: t.Callable[[t.Sequence[str]], None]


def find_active() -> str | None:
    """Return the firewall that is active here, None where there is none."""
    return next((name for name, tool in TOOLS.items() if tool.is_active()), None)


# ufw: one line a rule, as ``ufw show added`` prints it.


def _ufw_is_active() -> bool:
    return "Status: active" in run("ufw", "status", check=False)


def render_ufw(rules: t.Sequence[Rule]) -> list[str]:
    """Return the lines of ufw for rules, one for each source."""
    found = []
    for rule in rules:
        words = "ufw route allow" if rule["hook"] == "forward" else "ufw allow"
        ports = ",".join(port.replace("-", ":") for port in rule["ports"])
        end = f" port {ports} proto {rule['protocol']}" if ports else ""
        for source in rule["sources"] or [None]:
            for target in rule["destinations"] or [None]:
                origin = f" from {source}" if source else ""
                goal = f" to {target}" if target else f" to any{end}" if end else ""
                found.append(f"{words}{origin}{goal} comment '{_MARK}'")
    return found


def _list_ufw() -> list[str]:
    lines = run("ufw", "show", "added", check=False).splitlines()
    return [line.strip() for line in lines if line.strip().endswith(f"comment '{_MARK}'")]


def _ufw_is_in_force(wanted: t.Sequence[str]) -> bool:
    return sorted(_list_ufw()) == sorted(wanted)


def _open_ufw(wanted: t.Sequence[str]) -> str | None:
    present = _list_ufw()
    for line in wanted:
        if line not in present:
            # Before rules of the user that may deny the same port to all.
            try:
                run(*_insert_ufw(line, "prepend"))
            except OSError as exc:
                return str(exc)
    _close_ufw([line for line in present if line not in wanted])
    return None


def _close_ufw(lines: t.Sequence[str]) -> None:
    present = _list_ufw()
    for line in lines:
        if line in present:
            run(*_insert_ufw(line.rpartition(" comment ")[0], "delete"))


def _insert_ufw(line: str, word: str) -> list[str]:
    words = shlex.split(line)
    words.insert(words.index("allow"), word)
    return words


# firewalld: two policies before all zones, one file each. The file is the rule.


def _firewalld_is_active() -> bool:
    return run("firewall-cmd", "--state", check=False).strip() == "running"


def render_firewalld(rules: t.Sequence[Rule]) -> list[str]:
    """Return the policies of packets to the machine and of those that it passes on, each as the text of its file."""
    texts = []
    for hook, egress in (("input", "HOST"), ("forward", "ANY")):
        lines = ['<?xml version="1.0" encoding="utf-8"?>', '<policy priority="-10" target="CONTINUE">']
        lines += [f"  <short>{_MARK}-{hook}</short>", "  <description>Written by muster.training</description>"]
        lines += ['  <ingress-zone name="ANY"/>', f'  <egress-zone name="{egress}"/>']
        lines += [line for rule in rules if rule["hook"] == hook for line in _firewalld_rules(rule)]
        texts.append("\n".join([*lines, "</policy>", ""]))
    return texts


def _firewalld_rules(rule: Rule) -> list[str]:
    lines = []
    for source in rule["sources"] or [None]:
        for target in rule["destinations"] or [None]:
            family = "ipv6" if ":" in (source or target or "") else "ipv4"
            where = "".join(
                f"<{name} address={xml.sax.saxutils.quoteattr(value)}/>"
                for name, value in (("source", source), ("destination", target))
                if value
            )
            ports = [f'<port port="{port}" protocol="{rule["protocol"]}"/>' for port in rule["ports"]]
            lines += [f'  <rule family="{family}">{where}{port}<accept/></rule>' for port in ports or [""]]
    return lines


def _firewalld_files(texts: t.Sequence[str]) -> dict[pathlib.Path, str]:
    names = (f"{_MARK}-input.xml", f"{_MARK}-forward.xml")
    return {_POLICIES / name: text for name, text in zip(names, texts)}  # noqa: B905  (Python 3.10 has strict=)


def _firewalld_is_in_force(wanted: t.Sequence[str]) -> bool:
    known = run("firewall-cmd", "--get-policies", check=False).split()
    return all(_read(place) == text and place.stem in known for place, text in _firewalld_files(wanted).items())


def _open_firewalld(wanted: t.Sequence[str]) -> str | None:
    _POLICIES.mkdir(exist_ok=True)
    for place, text in _firewalld_files(wanted).items():
        files.write_atomic(place, text.encode(), 0o640)
    try:
        run("firewall-cmd", "--check-config")
        run("firewall-cmd", "--reload")
    except OSError as exc:
        return str(exc)
    return None


def _close_firewalld(texts: t.Sequence[str]) -> None:
    for place in _firewalld_files(texts):
        place.unlink(missing_ok=True)
    if _firewalld_is_active():
        run("firewall-cmd", "--reload")


# nftables: an accept in a table of one's own does not spare a packet from the user's chains, so these are given a jump.


def read_ruleset(text: str) -> tuple[list[dict[str, str]], list[dict[str, t.Any]]]:
    """Return the base chains that drop packets to or through the machine, and the jumps that were added to them.

    Tables of iptables are left out: nft may not write into them.
    """
    items = json.loads(text or "{}").get("nftables", [])
    rules = [item["rule"] for item in items if "rule" in item]
    dropping, jumps = [], []
    for chain in [item["chain"] for item in items if "chain" in item and _is_foreign_filter(item["chain"])]:
        own = [rule for rule in rules if all(rule[key] == chain[other] for key, other in _SAME)]
        if _drops(chain, own):
            dropping.append({key: str(chain[key]) for key in ("family", "table", "name", "hook")})
        jumps += [rule for rule in own if _jumps_to(rule, f"{_MARK}-{chain['hook']}")]
    return dropping, jumps


_SAME = (("family", "family"), ("table", "table"), ("chain", "name"))


def _is_foreign_filter(chain: t.Mapping[str, t.Any]) -> bool:
    """Return whether a chain filters packets to or through the machine and may be written into."""
    filters = chain.get("hook") in ("input", "forward") and chain.get("type") == "filter"
    return filters and chain["family"] in ("ip", "ip6", "inet") and chain["name"] not in ("INPUT", "FORWARD")


def _drops(chain: t.Mapping[str, t.Any], rules: t.Sequence[t.Mapping[str, t.Any]]) -> bool:
    words = [word for rule in rules for word in rule.get("expr", [])]
    return chain.get("policy") == "drop" or any("drop" in word or "reject" in word for word in words)


def _jumps_to(rule: t.Mapping[str, t.Any], target: str) -> bool:
    return any((word.get("jump") or {}).get("target") == target for word in rule["expr"])


def _ruleset() -> tuple[list[dict[str, str]], list[dict[str, t.Any]]]:
    return read_ruleset(run("nft", "--json", "list", "ruleset", check=False))


def _nftables_is_active() -> bool:
    return bool(_ruleset()[0])


def render_nftables(rules: t.Sequence[Rule]) -> list[str]:
    """Return the script that puts a chain into each table that drops packets, and a jump to it in front."""
    return [_nftables_script(rules, _ruleset()[0])]


def _nftables_script(rules: t.Sequence[Rule], chains: t.Sequence[t.Mapping[str, str]]) -> str:
    lines = ["# Written by muster.training; changes are overwritten."]
    for chain in chains:
        family, table, name = chain["family"], chain["table"], chain["name"]
        own, place = f"{_MARK}-{chain['hook']}", f"{family} {table}"
        lines += [f"nft -f - <<'END'\nadd chain {place} {own}\nflush chain {place} {own}"]
        lines += [
            f"add rule {place} {own} {words} accept"
            for rule in rules
            if rule["hook"] == chain["hook"]
            for words in _nftables_matches(rule, family)
        ]
        lines += ["END", f"nft list chain {place} {name} | grep -q 'jump {own}' ||"]
        lines += [f"nft insert rule {place} {name} jump {own}"]
    return "\n".join([*lines, ""])


def _nftables_matches(rule: Rule, family: str) -> list[str]:
    found = []
    for kind, colon in (("ip", False), ("ip6", True)):
        addresses = {
            word: [item for item in rule[name] if (":" in item) == colon]
            for word, name in (("saddr", "sources"), ("daddr", "destinations"))
        }
        if (family not in ("inet", kind)) or not any(addresses.values()):
            continue
        words = [f"{kind} {word} {{ {', '.join(items)} }}" for word, items in addresses.items() if items]
        words += [f"{rule['protocol']} dport {{ {', '.join(rule['ports'])} }}"] if rule["ports"] else []
        found.append(" ".join(words))
    return found


def _nftables_is_in_force(wanted: t.Sequence[str]) -> bool:
    chains, jumps = _ruleset()
    enabled = run("systemctl", "is-enabled", _UNIT.name, check=False).strip() == "enabled"
    return enabled and len(jumps) == len(chains) and [_read(_SCRIPT), _read(_UNIT)] == [wanted[0], _UNIT_TEXT]


def _open_nftables(wanted: t.Sequence[str]) -> str | None:
    files.write_atomic(_SCRIPT, wanted[0].encode(), 0o600)
    files.write_atomic(_UNIT, _UNIT_TEXT.encode(), 0o644)
    run("systemctl", "daemon-reload")
    try:
        run("sh", "-e", str(_SCRIPT))
        run("systemctl", "enable", "--quiet", _UNIT.name)
        run("systemctl", "restart", _UNIT.name)
    except OSError as exc:
        return str(exc)
    return None


def _close_nftables(texts: t.Sequence[str]) -> None:
    run("systemctl", "disable", "--now", "--quiet", _UNIT.name, check=False)
    _UNIT.unlink(missing_ok=True)
    _SCRIPT.unlink(missing_ok=True)
    run("systemctl", "daemon-reload")
    own = set()
    for jump in _ruleset()[1]:
        place = (jump["family"], jump["table"])
        run("nft", "delete", "rule", *place, jump["chain"], "handle", str(jump["handle"]))
        own.add((*place, next(word["jump"]["target"] for word in jump["expr"] if "jump" in word)))
    for chain in sorted(own):
        run("nft", "delete", "chain", *chain)


def _read(place: pathlib.Path) -> str | None:
    try:
        return place.read_text()
    except OSError:
        return None


TOOLS: dict[str, FirewallTool] = {
    "ufw": FirewallTool(_ufw_is_active, render_ufw, _ufw_is_in_force, _open_ufw, _close_ufw),
    "firewalld": FirewallTool(
        _firewalld_is_active, render_firewalld, _firewalld_is_in_force, _open_firewalld, _close_firewalld
    ),
    "nftables": FirewallTool(
        _nftables_is_active, render_nftables, _nftables_is_in_force, _open_nftables, _close_nftables
    ),
}
