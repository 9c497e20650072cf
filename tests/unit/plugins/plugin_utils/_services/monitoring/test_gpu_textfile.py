# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of GPUs from nvidia-smi: an H100, a GeForce that does not tell all, an old driver, and none that answers."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._services.monitoring import gpu_textfile
from ansible_collections.muster.training.tests.support.prometheus_program import find

ASKED = ("uuid", "name", "pci.bus_id", "driver_version", *gpu_textfile.FIELDS, *gpu_textfile._SLOWED)
COMMON = {
    "uuid": "GPU-1",
    "name": "NVIDIA H100 80GB HBM3",
    "pci.bus_id": "00000000:1B:00.0",
    "driver_version": "570.86",
}
H100 = {
    **COMMON, "utilization.gpu": "97", "power.draw": "612.55", "temperature.gpu": "64", "clocks.sm": "1980",
    "memory.used": "70123", "memory.total": "81559", "ecc.errors.uncorrected.volatile.total": "0",
    "remapped_rows.pending": "No", "remapped_rows.failure": "Yes", "temperature.memory": "71",
    "pcie.link.width.current": "8", "pcie.link.width.max": "16",
    "clocks_event_reasons.hw_thermal_slowdown": "Not Active", "clocks_event_reasons.sw_thermal_slowdown": "Active",
    "clocks_event_reasons.hw_power_brake_slowdown": "Not Active",
}  # fmt: skip
GEFORCE = {
    **H100, "name": "NVIDIA GeForce RTX 4090", "ecc.errors.uncorrected.volatile.total": "[N/A]",
    "remapped_rows.pending": "[N/A]", "remapped_rows.failure": "[N/A]", "temperature.memory": "N/A",
    "clocks_event_reasons.sw_thermal_slowdown": "Not Active",
}  # fmt: skip
SPARK = {**GEFORCE, "name": "NVIDIA GB10", "memory.used": "[N/A]", "memory.total": "[Not Supported]"}
PROGRAM = """#!{python}
import sys
values = {values!r}
words = sys.argv[1]
if words.startswith("--query-compute-apps"):
    print("GPU-1"); print("GPU-1")
elif words == "-L":
    print("GPU 0: x")
else:
    names = words.partition("=")[2].split(",")
    wrong = next((name for name in names if name not in values), None)
    if wrong:
        print(f'Field "{{wrong}}" is not a valid field to query.\\n'); sys.exit(2)
    print(", ".join(values[name] for name in names))
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(gpu_textfile, "count_devices", lambda: 1)
    monkeypatch.setattr(gpu_textfile, "count_errors", lambda: ['muster_pcie_errors_total{pci="p"} 3'])
    monkeypatch.setattr(gpu_textfile, "read_xids", lambda: {("0000:1b:00", "79"): 1700000000.5})
    return tmp_path


def place(folder: pathlib.Path, values: dict[str, str]) -> None:
    program = folder / "nvidia-smi"
    program.write_text(PROGRAM.format(python=sys.executable, values=values))
    program.chmod(0o755)


def read(text: str) -> dict[str, float]:
    return {line.partition("{")[0].split(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines()}


def test_a_gpu_that_tells_all(folder: pathlib.Path) -> None:
    place(folder, H100)
    text = gpu_textfile.describe()
    found = read(text)
    assert found == {
        "muster_gpu_pci_devices": 1.0, "muster_gpu_readable": 1.0, "muster_gpu_devices": 1.0, "muster_gpu_info": 1.0,
        "muster_gpu_utilisation_percent": 97.0, "muster_gpu_power_watts": 612.55, "muster_gpu_temperature_celsius": 64.0,
        "muster_gpu_clock_mhz": 1980.0, "muster_gpu_memory_used_bytes": 70123.0 * 2**20, "muster_gpu_memory_bytes": 81559.0 * 2**20,
        "muster_gpu_ecc_uncorrected_errors": 0.0, "muster_gpu_remap_pending": 0.0, "muster_gpu_remap_failure": 1.0,
        "muster_gpu_throttled": 1.0, "muster_gpu_processes": 2.0, "muster_gpu_xid_time_seconds": 1700000000.5,
        "muster_gpu_memory_temperature_celsius": 71.0, "muster_gpu_pcie_width": 8.0, "muster_gpu_pcie_width_max": 16.0,
        "muster_pcie_errors_total": 3.0,
    }  # fmt: skip
    assert {*found} == {*gpu_textfile.FIELDS.values(), *gpu_textfile.OTHERS}
    assert 'model="NVIDIA H100 80GB HBM3",pci="00000000:1B:00.0"' in text


@pytest.mark.parametrize(
    ("values", "lacking"),
    [
        (GEFORCE, {"muster_gpu_ecc_uncorrected_errors", "muster_gpu_remap_pending", "muster_gpu_remap_failure",
                   "muster_gpu_memory_temperature_celsius"}),
        (SPARK, {"muster_gpu_ecc_uncorrected_errors", "muster_gpu_remap_pending", "muster_gpu_remap_failure",
                 "muster_gpu_memory_used_bytes", "muster_gpu_memory_bytes", "muster_gpu_memory_temperature_celsius"}),
    ],
)  # fmt: skip
def test_what_a_gpu_does_not_tell_has_no_figure(
    folder: pathlib.Path, values: dict[str, str], lacking: set[str]
) -> None:
    place(folder, values)
    found = read(gpu_textfile.describe())
    assert {*gpu_textfile.FIELDS.values(), *gpu_textfile.OTHERS} - {*found} == lacking
    assert found["muster_gpu_throttled"] == 0.0


def test_an_old_driver_has_older_names_and_fewer_fields(folder: pathlib.Path) -> None:
    old = {name.replace("event_reasons", "throttle_reasons"): value for name, value in H100.items()}
    del old["remapped_rows.pending"], old["remapped_rows.failure"]
    place(folder, old)
    found = read(gpu_textfile.describe())
    assert found["muster_gpu_throttled"] == 1.0 and "muster_gpu_remap_pending" not in found
    assert found["muster_gpu_utilisation_percent"] == 97.0


def test_gpus_that_nothing_answers_for(folder: pathlib.Path) -> None:
    program = folder / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\necho Unable to determine the device handle for GPU0000:1B:00.0: Unknown Error\nexit 9\n"
    )
    program.chmod(0o755)
    found = read(gpu_textfile.describe())
    assert found["muster_gpu_readable"] == 0.0 and found["muster_gpu_pci_devices"] == 1.0
    assert "muster_gpu_devices" not in found, "how many there are is not known"


def test_the_devices_of_a_bus(tmp_path: pathlib.Path) -> None:
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x8086", "0x030000")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    (tmp_path / "d").mkdir()
    assert gpu_textfile.count_devices(tmp_path) == 1


def test_errors_in_the_log_of_the_kernel(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "kmsg"
    log.write_bytes(b"4,1,5000000,-;NVRM: Xid (PCI:0000:1B:00): 79, pid=1, GPU has fallen off the bus.\n")
    assert [*gpu_textfile.read_xids(str(log))] == [("0000:1b:00", "79")]
    assert gpu_textfile.read_xids(str(tmp_path / "none")) == {}


def test_the_file_is_one_that_prometheus_reads(folder: pathlib.Path) -> None:
    place(folder, {**H100, "name": 'odd "name"\\ of it'})
    assert gpu_textfile.main([str(folder)]) == 0
    text = (folder / "muster_gpu.prom").read_text()
    done = subprocess.run(
        [find("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 3) and "parse" not in done.stderr and 'model="odd \\"name\\"' in text, done.stderr


def test_it_runs_as_one_file(tmp_path: pathlib.Path) -> None:
    """On a machine it is a file alone, without the collection."""
    place = tmp_path / "gpu_textfile.py"
    shutil.copy(str(gpu_textfile.__file__), place)
    words = [sys.executable, "-I", str(place)]
    assert subprocess.run([*words, str(tmp_path)], check=False).returncode == 0
    assert "muster_gpu_pci_devices" in (tmp_path / "muster_gpu.prom").read_text()
    refused = subprocess.run([*words, str(tmp_path / "none")], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "usage" in refused.stdout


def test_errors_of_pcie_links_are_those_of_gpus_and_hcas(tmp_path: pathlib.Path) -> None:
    for name, vendor in (("0000:1b:00.0", "0x10de"), ("0000:3b:00.0", "0x15b3"), ("0000:00:1f.2", "0x8086")):
        device = tmp_path / name
        device.mkdir()
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "aer_dev_correctable").write_text("RxErr 2\nBadTLP 1\nTOTAL_ERR_COR 3\n")
        (device / "aer_dev_fatal").write_text("Undefined 0\nTOTAL_ERR_FATAL 0\n")
    found = gpu_textfile.count_errors(tmp_path)
    assert found == [
        'muster_pcie_errors_total{pci="0000:1b:00.0",kind="correctable"} 3',
        'muster_pcie_errors_total{pci="0000:1b:00.0",kind="fatal"} 0',
        'muster_pcie_errors_total{pci="0000:3b:00.0",kind="correctable"} 3',
        'muster_pcie_errors_total{pci="0000:3b:00.0",kind="fatal"} 0',
    ]
