# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which single lines name a cause: NCCL's own messages, and those of launchers, PyTorch, gloo, kernels and Kubernetes.

The texts are those of the sources (NCCL src/{init,bootstrap,proxy}.cc, misc/{socket,ibvwrap,shmutils}.cc,
transport/{net_ib,nvls}, ras; aws-ofi-nccl; PyTorch c10d), of several versions each. A completion is classified by its
status number, never by the HINT beside it: NCCL prints hints that belong to other statuses.
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t

from ....module_utils._model.gpu_faults import CAUSE_CODES, parse_faults_at
from ..parse.lines import NcclRecord, printable
from .causes import Finding
from .error_tables import CUDA_ERRORS, ERRNO_CODES
from .program_end import find_rank

Scope = t.Literal["nccl", "any"]


_ADVICE_BYTES: t.Final = 200
# Before a message, in its sentence: what to do when that comes, which does not say that it came.
_ADVICE: t.Final = re.compile(
    rb"^(?!.*(?:Error|Exception)\b)(?:.*[^\w'])?"
    rb"(?i:(?:if|when|in case|whenever|should) (?:you|your|there|this|it|the|of|an?)\b|"
    rb"(?:to|helps?|can) (?:avoid|prevent)\b|(?:avoid|prevent)(?:s|ing)\b)(?!.*[.!?] )",
    re.DOTALL,
)


@dataclasses.dataclass(frozen=True, slots=True)
class LineRule:
    """A code and the text that names it. Scope ``nccl``: only in NCCL's records and in lines that quote NCCL."""

    code: str
    pattern: re.Pattern[bytes]
    scope: Scope = "nccl"
    transient: bool = False
    stopped: bool = False


def _line_rule(
    code: str, pattern: bytes, scope: Scope = "nccl", *, transient: bool = False, stopped: bool = False
) -> LineRule:
    return LineRule(code, re.compile(pattern), scope, transient, stopped)


_REFUSED = (
    rb"(?:Connection refused|Connection timed out|No route to host|Network is unreachable|Host is down|"
    rb"Software caused connection abort|Operation timed out)"
)
_QP = rb"ibv_modify_qp failed[^\n]{0,60}?"
_WC = rb"Got completion[^\n]{0,200}?(?:status=(?:IBV_WC_\w+\()?|with error )"
_VIRTUAL = (
    rb"(?:veth\w*|docker\d+|podman\d+|br-[0-9a-f]{6,}|virbr\d+|lxc\w+|cni\d+|cni-\w+|flannel\S*|cali\w+|tunl\d+|"
    rb"cilium_\w+|kube-\w+|weave|antrea-gw\d+|dummy\d+|tailscale\d+|wg\d+|zt\w{8})"
)


def _cuda_rules() -> tuple[LineRule, ...]:
    """Return a rule for each cause of CUDA's errors, by text, name, or number."""
    rules = []
    for code in dict.fromkeys(error.code for error in CUDA_ERRORS):
        own = [error for error in CUDA_ERRORS if error.code == code]
        words = "|".join(re.escape(word) for error in own for word in (error.text, error.name))
        numbers = "|".join(str(error.number) for error in own)
        pattern = rf"{words}|(?:Cuda failure |CUDA error:? |cuda runtime error \()(?:{numbers})\b"
        rules.append(_line_rule(code, pattern.encode(), "any"))
    return tuple(rules)


def _errno_rules(*codes: str) -> tuple[LineRule, ...]:
    """Return the rules for Python's errors of the system with these causes."""
    numbers = {code: "|".join(str(number) for number, own in ERRNO_CODES.items() if own == code) for code in codes}
    return tuple(
        _line_rule(code, rf"\w+Error: \[Errno (?:{found})\]".encode(), "any", stopped=code == "storage_unreachable")
        for code, found in numbers.items()
    )


def _unwritten_rules(*codes: str) -> tuple[LineRule, ...]:
    """Return the rules for what a node or a pod says that could not write where its job is to."""
    words = {code: [os.strerror(number) for number, own in ERRNO_CODES.items() if own == code] for code in codes}
    return tuple(
        _line_rule(code, rf"cannot be written: (?:{'|'.join(map(re.escape, found))})".encode(), "any")
        for code, found in words.items()
    )


# What programs, torch and CUDA say; a prefix of the launcher may come first.
_PROGRAM_GROUPS: tuple[tuple[LineRule, ...], ...] = (
    (
        _line_rule("gpu_error", rb"fallen off the bus|Unable to determine the device handle for GPU", "any"),
        _line_rule(
            "driver_too_old",
            rb"driver on your system is too old|[Dd]river/library version mismatch|unsatisfied condition: cuda",
            "any",
        ),
        _line_rule("gpu_missing", rb"No CUDA GPUs are available|Found no NVIDIA driver", "any"),
        _line_rule("gpu_busy", rb"all CUDA-capable devices are busy", "any"),
        _line_rule(
            "gpu_arch_mismatch",
            rb"is not compatible with the current PyTorch installation|Torch not compiled with CUDA enabled",
            "any",
        ),
        *_cuda_rules(),
        _line_rule(
            "cuda_error", rb"CUDA unknown error|CU(?:BLAS|DNN|SPARSE|SOLVER)_STATUS_(?!ALLOC|SUCCESS)[A-Z]", "any"
        ),
        _line_rule("cuda_error", rb"CUDA error: (?!out of memory|CU)\w", "any"),
    ),
    (
        _line_rule(
            "container_gpu",
            rb"nvidia-container-cli: (?:initialization|detection|device|mount) error(?!: nvml error: driver/lib)|"
            rb"could not select device driver [^\n]{0,80}gpu|unresolvable CDI devices",
            "any",
        ),
        _line_rule(
            "pod_image",
            rb"(?:runc|crun)[^\n]{0,200} executable file [^\n]{0,80}not found|manifest unknown|pull access denied for",
            "any",
        ),
    ),
    (
        _line_rule(
            "batch_mismatch", rb"Check batch related parameters|batch size[^\n]{0,60} is not divisible by", "any"
        ),
        _line_rule("checkpoint_missing", rb"(?:No|Can't find a) valid checkpoint (?:found )?(?:at|in)", "any"),
    ),
    _errno_rules("storage_unreachable", "too_many_processes", "oom_host"),
    (
        _line_rule("too_many_processes", rb"Thread creation failed: Resource temp|can't start new thread", "any"),
        _line_rule("run_stopped", rb"slurmstepd: error: \*\*\* (?:JOB|STEP) [^\n]{0,80}CANCELLED", "any"),
        _line_rule("disk_error", rb"I/O error, dev (?!fd)\w+|EXT4-fs error|XFS \(\S+\): [^\n]{0,60}orruption", "any"),
        _line_rule("rank_stuck_in_kernel", rb"INFO: task [^\n]{1,80} blocked for more than \d+ seconds", "any"),
        _line_rule("storage_unreachable", rb"nfs: server \S+ not responding", "any"),
    ),
    (
        _line_rule(
            "library_mismatch",
            rb"(?:ImportError|OSError): [^\n]{0,300}(?:undefined symbol|cannot open shared object file|"
            rb"version `\w+_[\d.]+' not found)",
            "any",
        ),
        _line_rule("cuda_toolkit_missing", rb"CUDA_HOME (?:does not exist|environment variable is not set)", "any"),
        _line_rule("module_missing", rb"ModuleNotFoundError: |ImportError: No module named", "any"),
        _line_rule("syntax_error", rb"(?:SyntaxError|IndentationError|TabError): ", "any"),
        _line_rule("wrong_architecture", rb"[Ee]xec format error", "any"),
        _line_rule(
            "bad_arguments",
            rb"^(?:\[[^\]\n]{1,40}\]:? ?)?\S+: error: "
            rb"(?:unrecognized arguments|the following arguments are required|argument )",
            "any",
        ),
        *_errno_rules("permission_denied"),
    ),
    (_line_rule("port_in_use", rb"EADDRINUSE|(?<!bind failed: )[Aa]ddress already in use", "any"),),
    (
        _line_rule("too_many_open_files", rb"Too many open files|received 0 items of ancdata", "any"),
        *_errno_rules("too_many_open_files"),
    ),
    (
        _line_rule(
            "unused_parameters",
            rb"Expected to have finished reduction in the prior iteration|Expected to mark a variable ready only once",
            "any",
        ),
    ),
    (
        _line_rule(
            "collective_timeout",
            rb"Watchdog caught collective operation timeout|Timed out waiting \d+ms for (?:recv|send) operation|"
            rb"Timed out initializing process group",
            "any",
        ),
    ),
    (
        _line_rule("loss_nan", rb"\b[Ll]oss is (?:nan|NaN|inf)\b|\bN[Aa]N [Ll]oss\b|\bnan loss\b", "any"),
        _line_rule("loss_nan", rb"found NaN in local|loss scale already at minimum|Minimum loss scale reached", "any"),
    ),
)
# The first rule of a group that matches wins: a group is one message with several readings.
_GROUPS: tuple[tuple[LineRule, ...], ...] = (
    (
        _line_rule("modify_qp_timeout", _QP + rb"(?:\b110\b|timed out)[^\n]{0,400}retrying", transient=True),
        _line_rule("modify_qp_timeout", _QP + rb"(?:\b110\b|timed out)"),
        _line_rule("modify_qp_unreachable", _QP + rb"(?:\b101\b|\b113\b|unreachable|No route)"),
        _line_rule("roce_gid_per_pod", _QP + rb"(?:\b19\b|\b61\b|No such device|No data available)"),
        _line_rule("roce_gid_index", _QP + rb"(?:\b22\b|Invalid argument)"),
    ),
    (
        _line_rule("wc_retry_exceeded", _WC + rb"1[23]\b"),
        _line_rule(
            "wc_retry_exceeded",
            rb"NET/OFI Request [^\n]{0,200}completed with error[^\n]{0,200}[Uu]n(?:reachable|responsive)",
        ),
        _line_rule("acs_iommu", _WC + rb"4\b"),
    ),
    (
        _line_rule("reg_mr_failed", rb"ibv_reg_(?:dmabuf_)?mr\w* failed|NET/OFI Unable to register memory"),
        _line_rule("create_cq_failed", rb"ibv_(?:create_(?:cq|qp|srq)|alloc_pd)\w* failed"),
    ),
    (
        _line_rule(
            "dev_shm_full",
            rb"failed to extend /dev/shm/|creating shared memory segment|Unable to allocate shared memory",
        ),
        _line_rule("dev_shm_full", rb"posix_fallocate failed[^\n]{0,20}No space"),
        _line_rule("dev_shm_full", rb"insufficient shared memory \(shm\)|unable to write to file </torch_", "any"),
        _line_rule("dev_shm_full", rb"is killed by signal: Bus error|out of shared memory", "any"),
    ),
    (_line_rule("version_mismatch", rb"Mismatched NCCL version detected"),),
    (_line_rule("duplicate_gpu", rb"Duplicate GPU detected|Multiple [Rr]anks are using the same GPU"),),
    (_line_rule("nic_count_mismatch", rb"Detected mixed local Net device counts[^\n]{0,60}\)\. Set"),),
    (
        _line_rule(
            "imex", rb"MNNVL \(cliqueSize \d+\) is available but not working|\bIMEX\b|nvidia-imex|caps-imex-channels"
        ),
        _line_rule("fabric_manager", rb"Failed to bind NVLink SHARP"),
        _line_rule("fabric_manager", rb"system not yet initialized|Cuda failure 802|cudaErrorSystemNotReady", "any"),
    ),
    (
        _line_rule("no_iface_in_subnet", rb"No interface found in the same subnet"),
        _line_rule("rendezvous_dns", rb"error encountered when getting address info"),
        _line_rule(
            "bootstrap_bad_address", rb"is neither AF_INET\(\d+\) nor AF_INET6|No valid (?:<IPv4\w*>|\[IPv6\]):<?port"
        ),
        _line_rule("address_family", rb"Address family not supported|unsupported IP family|[Aa]ddress family mismatch"),
        _line_rule("wrong_interface", rb"[Nn]o socket interface found|no interface found matching", stopped=True),
        _line_rule("wrong_interface", rb"Connect to [^\n]{0,60}%" + _VIRTUAL + rb"[^\n]{0,20} failed"),
        # What only its own host or link reaches was offered to another node.
        _line_rule("wrong_interface", rb"[Cc]onnect to (?:fe80:|169\.254\.|127\.|::1)[^\n]{0,60} (?:failed|returned)"),
        _line_rule(
            "wrong_interface", rb"[Gg]loo[^\n]{0,200}(?:connect |remote=)\[(?:127\.|::1|fe80:|169\.254\.)", "any"
        ),
        _line_rule("wrong_interface", rb"Unable to find (?:address|interface) for: ", "any", stopped=True),
    ),
    (
        _line_rule(
            "socket_connect_timeout",
            rb"[Cc]onnect(?: to \S+)? (?:failed ?: ?|returned )(?:\d+ ?\()?" + _REFUSED + rb"[^\n]{0,40}retrying",
            transient=True,
        ),
        _line_rule(
            "socket_connect_timeout", rb"[Cc]onnect(?: to \S+)? (?:failed ?: ?|returned )(?:\d+ ?\()?" + _REFUSED
        ),
        _line_rule("socket_connect_timeout", rb"[Cc]onnect(?: to \S+)? timed out"),
        _line_rule("socket_connect_timeout", rb"[Gg]loo[^\n]{0,200}(?:[Cc]onnect timeout|" + _REFUSED + rb")", "any"),
    ),
    (
        _line_rule("socket_reset", rb"Connection reset by peer|[Cc]onnection closed by (?:remote )?peer"),
        _line_rule(
            "socket_reset", rb"Call to (?:recv|send)\w*[^\n]{0,80} failed ?: ?(?:Connection timed out|Broken pipe)"
        ),
        _line_rule("socket_reset", rb"gloo[^\n]{0,200}(?:Connection reset by peer|Connection closed by peer)", "any"),
    ),
    (_line_rule("link_down", rb"Got async event ?: port error|Got async error event ?: (?:port|link)"),),
    (_line_rule("libibverbs_missing", rb"Failed to open libibverbs\.so"),),
    (_line_rule("ib_no_device", rb"NET/IB ?: (?:No device found|Unable to open device)"),),
    (_line_rule("gpudirect_off", rb"NET/IB ?: GPU Direct RDMA Disabled for HCA"),),
    (
        _line_rule("ofi_tcp_provider", rb"Selected [Pp]rovider is (?:tcp|sockets|udp)\b"),
        _line_rule(
            "plugin_broken", rb"NET/OFI [^\n]{0,80}(?:optimal provider|Initializing plugin failed|protocol that worked)"
        ),
        _line_rule(
            "plugin_broken", rb"NET/Plugin[^\n]{0,200}(?:undefined symbol|wrong ELF class|GLIBC\w*_[\d.]+' not found)"
        ),
        # The plugin was found and a library that it needs was not.
        _line_rule("plugin_broken", rb"NET/Plugin[^\n]{0,120}(?:: |=)lib(?!nccl)[\w.+-]+: cannot open shared object"),
        _line_rule("plugin_broken", rb"NET/Plugin[^\n]{0,40}Failed to find ncclNetPlugin symbol"),
        # The network that NCCL_NET pins cannot be used: NCCL does not fall back then, and the job ends.
        _line_rule(
            "plugin_broken",
            rb"Failed to initialize any NET plugin|[Ee]rror: network [^\n]{1,60} not found",
            stopped=True,
        ),
    ),
    (_line_rule("ras_port_shared", rb"RAS failed to establish a client listening socket"),),
    (
        _line_rule(
            "collective_mismatch", rb"[Mm]ismatched collective|collective mismatch|message truncated : receiving"
        ),
        _line_rule("collective_mismatch", rb"Communicator ranks have different \w+ operation counts", "any"),
        _line_rule(
            "collective_mismatch", rb"Detected mismatch between collectives|Not all ranks joining collective", "any"
        ),
        _line_rule("collective_mismatch", rb"\b(?:SIZE_OR_SYNTAX|COLLECTIVE_(?:TYPE|STATE|DTYPE))_MISMATCH\b", "any"),
    ),
    (
        _line_rule("ranks_missing", rb"\b\d+/\d+ clients joined|Missing communicator data from \d+ rank", "any"),
        _line_rule("ranks_missing", rb"not enough slots available in the system|\b0/\d+ nodes are available", "any"),
        _line_rule("ranks_missing", rb"was unable to reliably start one or more daemons", "any"),
        _line_rule("ranks_missing", rb"ImagePullBackOff|ErrImagePull|RendezvousTimeoutError", "any"),
        _line_rule("ranks_missing", rb"mismatch in rank count from procs"),
    ),
    (
        _line_rule("download_refused", rb"GatedRepoError|access a gated repo|\b40[13] Client Error", "any"),
        # A server on the internet is not the rendezvous.
        _line_rule(
            "download_failed", rb"HTTPS?ConnectionPool\(host=|[Mm]ax retries exceeded with url", "any", transient=True
        ),
        _line_rule(
            "download_failed", rb"couldn't connect to 'https?://|Failed to resolve 'https?://", "any", transient=True
        ),
        # errno 97 is PyTorch trying IPv6 first on a host without it, in jobs that work.
        _line_rule(
            "rendezvous_dns", rb"client socket has timed out after|connection to the C10d store has failed", "any"
        ),
        _line_rule("rendezvous_dns", rb"failed to connect to any network address of", "any"),
        _line_rule("rendezvous_dns", rb"connect\(\) timed out\. Original timeout was", "any"),
        _line_rule(
            "rendezvous_dns",
            rb"Name or service not known|Temporary failure in name resolution|Name does not resolve|"
            rb"No address associated with hostname|nodename nor servname",
            "any",
            transient=True,
        ),
    ),
    (
        _line_rule(
            "oom_gpu",
            rb"(?:CUDA|HIP|XPU) out of memory|CUDA error: out of memory|RESOURCE_EXHAUSTED: Out of memory|"
            rb"Cuda failure (?:2 )?'out of memory'",
            "any",
        ),
        _line_rule("oom_gpu", rb"cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED", "any"),
        _line_rule(
            "oom_host",
            rb"Out of memory: Kill|oom[-_]kill|OOMKilled|killed by signal: Killed|cgroup out of memory|std::bad_alloc|"
            rb"killed due to the node running low on memory",
            "any",
        ),
        _line_rule("oom_host", rb"DefaultCPUAllocator: (?:can't|not enough)|^MemoryError\b", "any"),
    ),
    (
        _line_rule(
            "checkpoint_mismatch",
            rb"Error\(s\) in loading state_dict|size mismatch for [^\n]{1,200}: copying a param|"
            rb"Missing key(?:\(s\)|s)? in (?:checkpoint )?state_dict",
            "any",
        ),
        *_unwritten_rules("disk_full", "disk_error", "permission_denied"),
        _line_rule("checkpoint_failed", rb"write\(\): fd \d+ failed", "any"),
        _line_rule(
            "checkpoint_failed",
            rb"CheckpointException|PytorchStream(?:Writer|Reader) failed|"
            # A name that torch.save does not take is the program's.
            rb"inline_container\.cc(?![^\n]{1,40}invalid file name)",
            "any",
        ),
        _line_rule("checkpoint_untrusted", rb"Weights only load failed|WeightsUnpickler error", "any"),
        _line_rule("checkpoint_failed", rb"Error while deserializing header|UnpicklingError", "any"),
        _line_rule(
            "checkpoint_failed",
            rb"(?:No space left on device|Read-only file system|Input/output error|Permission denied)"
            rb"[^\n]{0,200}(?:checkpoint|ckpt|\.pt\b|\.safetensors|\.distcp)",
            "any",
        ),
        _line_rule(
            "checkpoint_failed",
            rb"(?:[Cc]heckpoint|ckpt)[^\n]{0,200}(?:No space left on device|Read-only file system|Input/output error)",
            "any",
        ),
        *_errno_rules("disk_full", "disk_error"),
    ),
    *_PROGRAM_GROUPS,
    (
        _line_rule("mtu_black_hole", rb"message too long,? mtu|Frag(?:mentation)? needed and DF set", "any"),
        _line_rule("relayed_path", rb"\bvia DERP\(|; relay \"\w+\"|relaying through DERP", "any"),
    ),
)
# A line without an NCCL record is matched only when it holds one of these; most lines of a training log do not.
_SUSPECT = re.compile(
    rb"[Ee]rror|ailed|FAILED|refused|timed out|unreachable|mismatch|MISMATCH|[Mm]issing|memory|oom-kill|OOMKilled|"
    rb"bad_alloc|No space|not known|resol|joined|available|Pull|initialized|DERP|relay \"|too long|needed and DF|"
    rb"checkpoint|Exception|WARN|[Cc]onnect|collective|different|unable|too old|insufficient|EADDRINUSE|in use|ancdata|"
    rb"open files|[Ll]oss is|[Nn][Aa][Nn] [Ll]oss|Bus error|shared memory|kernel image|Found no|not compiled|"
    rb"not compatible|fallen off|Unable to determine|CU(?:BLAS|DNN)_STATUS|unsatisfied|divisible|valid check|creation|"
    rb"new thread|slurmstepd|blocked for|not responding|got signal|by signal|select device|CDI dev|not found|denied|"
    rb"NaN in"
)
# A line of a traceback that shows the source: what it would raise is not yet what it raised.
_SOURCE = re.compile(rb"(?:\[[^\]\n]{1,40}\]:? ?)?\s{2,}raise ")
# PyTorch and nccl-tests repeat NCCL's last message without its header, on the lines after these words.
_QUOTES = re.compile(
    rb"Last error:|NCCL error|Test NCCL failure|DistBackendError|nccl(?:System|Remote|Internal|UnhandledCuda)Error|"
    rb"ncclInvalidUsage|\w\.(?:cc|cu|h):\d+ (?:NCCL )?WARN "
)
_QUOTED_LINES = 4
MAX_KERNEL_LINES = 4096
_NVLS_SOURCE = "transport/nvls.cc"
_P2P_SOURCE = "transport/p2p.cc"


class Findings:
    """Collects findings of a stream: the first line of each code, how often, the last line.

    ``quotes`` counts lines that repeat an error of NCCL's without being its records.
    """

    def __init__(self) -> None:
        self.quotes = 0
        self.kernel: dict[int, str] = {}
        self._findings: dict[tuple[str, bool, bool], Finding] = {}
        self._quoted_until = 0

    def record(self, line_number: int, record: NcclRecord) -> None:
        """Read one NCCL record."""
        if b"Cuda failure" in record.text and record.source.startswith((_NVLS_SOURCE, _P2P_SOURCE)):
            # A failed import of a peer's memory is a fault of the IMEX domain only where multi-node NVLink is used.
            code = "fabric_manager" if record.source.startswith(_NVLS_SOURCE) else "imex"
            if code == "fabric_manager" or re.search(rb"Cuda failure (?:80[01]|\d* ?'operation not)", record.text):
                self.add(Finding(code, line_number, printable(record.text), record.host, last_line=line_number))
                return
        self._match(line_number, record.text, record.host, quoted=True)

    def plain(self, line_number: int, line: bytes) -> None:
        """Read one line without an NCCL record."""
        if b"NVRM: " in line:
            # Each error of a GPU is a finding of its own, with what its number asks for.
            if len(self.kernel) < MAX_KERNEL_LINES:
                self.kernel[line_number] = printable(line)
            return
        quoted = self.is_quoted(line_number)
        if (not quoted and not _SUSPECT.search(line)) or _SOURCE.match(line):
            return
        if _QUOTES.search(line):
            self.quotes += 1
            self._quoted_until = line_number + _QUOTED_LINES
        self._match(line_number, line, "", quoted=line_number <= self._quoted_until)

    def is_quoted(self, line_number: int) -> bool:
        """Return whether a line may still belong to a message that an earlier line introduced."""
        return line_number <= self._quoted_until

    def add(self, finding: Finding) -> None:
        """Add a finding; of one code and kind the first one is counted."""
        key = (finding.code, finding.transient, finding.stopped)
        first = self._findings.get(key)
        if first is None:
            self._findings[key] = finding
        else:
            self._findings[key] = dataclasses.replace(first, count=first.count + 1, last_line=finding.last_line)

    def result(self, ready_line: int) -> dict[str, Finding]:
        """Return code to finding; retries before ``ready_line`` (where the job was ready) do not count."""
        result: dict[str, Finding] = {}
        for finding in sorted(self._findings.values(), key=lambda one: (not one.stopped, one.transient)):
            if not (finding.transient and finding.last_line < ready_line):
                result.setdefault(finding.code, finding)
        for number, fault in parse_faults_at(self.kernel.items()):
            text = f"{fault.text} ({fault.line[fault.line.find('NVRM') :][:160]})"
            code = CAUSE_CODES.get(fault.action, "gpu_error")
            result[f"{code} {fault.pci} {fault.xid}"] = Finding(code, number, text, last_line=number, fix=fault.fix)
        return result

    def _match(self, line_number: int, text: bytes, host: str, *, quoted: bool) -> None:
        for group in _GROUPS:
            for rule in group:
                found = rule.pattern.search(text) if quoted or rule.scope == "any" else None
                if found and (quoted or not _is_spoken_of(text[: found.start()])):
                    shown = printable(text)
                    rank = find_rank(text)
                    stopped = rule.stopped
                    self.add(
                        Finding(rule.code, line_number, shown, host, 1, line_number, rule.transient, stopped, rank)
                    )
                    break


def _is_spoken_of(before: bytes) -> bool:
    """Return whether a message is one of which a line only speaks, by what is before it."""
    return bool(_ADVICE.search(before[-_ADVICE_BYTES:]))


def is_virtual_interface(name: str) -> bool:
    """Return whether an interface of this name is made by a container engine, a CNI or a mesh, or is loopback."""
    return re.fullmatch(_VIRTUAL, name.encode("utf-8", "replace")) is not None
