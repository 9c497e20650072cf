# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The causes that programs, torch, CUDA and the driver show, as data; those of networks are in :mod:`cause_table`."""

from __future__ import annotations

from .cause_info import CauseInfo

PROGRAM_CAUSES = (
    CauseInfo(
        "checkpoint_failed",
        "fatal",
        "A checkpoint could not be written or read",
        "Check free space and permissions of the checkpoint path; resume from the newest complete checkpoint",
    ),
    CauseInfo(
        "checkpoint_mismatch",
        "fatal",
        "The checkpoint is of another model than the program builds",
        "Use the model and arguments (args) that wrote the checkpoint, or another run id or checkpoint folder for a "
        "changed model",
    ),
    CauseInfo(
        "disk_full",
        "fatal",
        "A disk is full",
        "Free space on the disk that the message names",
        on_hosts="Free space on the node (old checkpoints are deleted there by hand, or by checkpoints.keep at the "
        "next start), or set muster_node_state and checkpoints.path to a larger disk",
        in_pods="Free space on the volume, or use a larger one in job.mounts and checkpoints.path",
    ),
    CauseInfo(
        "driver_too_old",
        "fatal",
        "The NVIDIA driver does not fit the program's CUDA",
        "Update the NVIDIA driver of the node (a reboot loads it), or use a torch or an image for the driver's "
        "CUDA version (nvidia-smi shows it)",
    ),
    CauseInfo(
        "gpu_error",
        "fatal",
        "A GPU or its driver reports a fault",
        "Drain the node, then reset the GPU or reboot (dmesg shows the Xid number, NVIDIA's table what it means); if "
        "it comes again, have the GPU replaced",
    ),
    CauseInfo(
        "gpu_missing",
        "fatal",
        "A rank asked for a GPU that it does not have",
        "Give each rank its GPU: gpus_per_node and processes_per_node must fit the node, and the program must take the "
        "GPU of LOCAL_RANK; check nvidia-smi and CUDA_VISIBLE_DEVICES",
    ),
    CauseInfo(
        "gpu_arch_mismatch",
        "fatal",
        "The program's torch is not built for this GPU",
        "Install a torch (and extensions) built for this GPU's compute capability, or use GPUs that it supports",
    ),
    CauseInfo(
        "library_mismatch",
        "fatal",
        "A shared library is missing or of another version",
        "Reinstall torch with its own libraries into a clean environment so that one version of each is there, and "
        "remove others from LD_LIBRARY_PATH",
    ),
    CauseInfo(
        "cuda_toolkit_missing",
        "fatal",
        "A package compiles CUDA code, and the CUDA toolkit is not there",
        "Install the toolkit (nvcc) of torch's CUDA version and set CUDA_HOME in job.env, or install the package with "
        "its extensions already built",
        in_pods="Use an image with the toolkit (nvcc) of torch's CUDA version (a -devel image) and CUDA_HOME, or with "
        "the package's extensions already built",
    ),
    CauseInfo(
        "wrong_architecture",
        "fatal",
        "The program is built for another processor (exec format error)",
        "Use a build for the node's architecture (uname -m: x86_64 or aarch64); a script needs its #! line",
        in_pods="Use an image for the node's architecture (arm64 or amd64), or nodes of the image's platform",
    ),
    CauseInfo(
        "bad_arguments",
        "fatal",
        "The program does not take its arguments",
        "Correct job.args after its usage line; a --local-rank that it does not know comes from an old launcher: read "
        "LOCAL_RANK from the environment instead",
    ),
    CauseInfo(
        "module_missing",
        "fatal",
        "A Python package is missing",
        "Install the package for the job's interpreter",
        on_hosts="Install the package for the job's interpreter on every node (muster_training_packages), and name it "
        "in job.requires",
        in_pods="Add the package to the image",
    ),
    CauseInfo(
        "permission_denied",
        "fatal",
        "The program may not read or write a file",
        "Give the user that runs the job the right to that path, or name another path",
    ),
    CauseInfo(
        "syntax_error",
        "fatal",
        "The program is not valid Python for this interpreter",
        "Correct the line that is named; check that the nodes' Python is as new as the program needs",
    ),
    CauseInfo(
        "port_in_use",
        "fatal",
        "A port is already in use on the node",
        "End the other process that has the port (ss -ltnp), such as an earlier job, or let the program use a free "
        "port instead of a fixed one",
    ),
    CauseInfo(
        "too_many_open_files",
        "fatal",
        "A process has too many open files",
        "Raise the limit of open files (ulimit -n, LimitNOFILE), use fewer data-loader workers, or "
        "torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    CauseInfo(
        "download_failed",
        "fatal",
        "A download failed: the node does not reach the server",
        "Open the way to the server or set a proxy (job.env), or bring the files along (job.datasets) and use them "
        "offline (HF_HUB_OFFLINE=1)",
    ),
    CauseInfo(
        "download_refused",
        "fatal",
        "A server refused a download: it wants a token that may read it",
        "Accept the model's conditions with your account and give the job its token (job.secret_refs, as HF_TOKEN), or "
        "bring the files along (job.datasets) and use them offline (HF_HUB_OFFLINE=1)",
    ),
    CauseInfo(
        "unused_parameters",
        "fatal",
        "DistributedDataParallel waits for gradients of parameters that were not used",
        "Use all parameters in the loss on every rank, or pass find_unused_parameters=True to DistributedDataParallel",
    ),
    CauseInfo(
        "device_assert",
        "fatal",
        "A CUDA kernel found an index or value out of range",
        "Compare labels and indices with the number of classes or the size of the table; run with "
        "CUDA_LAUNCH_BLOCKING=1 or on the CPU to see the line",
    ),
    CauseInfo(
        "gpu_memory_access",
        "fatal",
        "A CUDA kernel used an address that is not its own",
        "Run with CUDA_LAUNCH_BLOCKING=1, or one rank under compute-sanitizer, to see the kernel; extensions may be "
        "built for another torch. dmesg tells whose fault it is: Xid 31 is the program's, 94 and 95 are of the GPU's "
        "memory",
    ),
    CauseInfo(
        "loss_nan",
        "fatal",
        "The loss is not a number (NaN or infinite)",
        "Lower the learning rate, clip gradients, check the data and the precision. To continue from before it, move "
        "the checkpoints of later steps out of the run's checkpoint folder and train again with the same muster_run_id",
    ),
    CauseInfo(
        "collective_timeout",
        "fatal",
        "A collective timed out: one rank did not take part",
        "Find the rank that stood or ended: its log and stack (py-spy dump), unequal numbers of batches, a branch that "
        "only some ranks take, or slow storage; a longer timeout only if it was at work",
    ),
    CauseInfo(
        "program_error",
        "fatal",
        "The program ended with an error of its own",
        "Read the traceback above this line: it is the first error in the log that does not follow from another rank's",
    ),
    CauseInfo(
        "run_stopped",
        "secondary",
        "The program was ended from outside (a signal, a time limit, a closed terminal)",
        "Nothing in the log says that it failed: see who ended it (scheduler, time limit, reboot, a closed terminal), "
        "and continue from the newest checkpoint",
    ),
    CauseInfo(
        "cuda_error",
        "fatal",
        "CUDA reports an error that does not say whose fault it is",
        "See dmesg for an Xid at that time (it says whether program or GPU); without one run with "
        "CUDA_LAUNCH_BLOCKING=1, and see whether GPU memory was nearly full and one CUDA build is installed",
    ),
    CauseInfo(
        "gpu_busy",
        "fatal",
        "The GPU is in use by another process, or in exclusive mode",
        "See nvidia-smi for processes and the compute mode (nvidia-smi -c DEFAULT ends exclusive mode), and let each "
        "rank take the GPU of its LOCAL_RANK",
    ),
    CauseInfo(
        "container_gpu",
        "fatal",
        "The container runtime could not give the container its GPUs",
        "See that nvidia-smi works on the node, install nvidia-container-toolkit of the newest version, configure the "
        "runtime with it (nvidia-ctk runtime configure) and restart the runtime",
    ),
    CauseInfo(
        "batch_mismatch",
        "fatal",
        "The batch sizes do not agree with the number of ranks",
        "Make batch size = micro batch x accumulation x data-parallel ranks. Where the last number is 1 although more "
        "ranks were started, DeepSpeed began before or without the process group: use a launcher (torchrun)",
    ),
    CauseInfo(
        "checkpoint_untrusted",
        "fatal",
        "torch.load refused a class in the file: since PyTorch 2.6 it loads weights alone (weights_only=True)",
        "The file need not be damaged. If you trust it, allow the class (torch.serialization.add_safe_globals) or load "
        "with weights_only=False; newer versions of transformers and Lightning do so themselves",
    ),
    CauseInfo(
        "checkpoint_missing",
        "fatal",
        "The checkpoint to continue from is not there",
        "Name the folder that holds a whole checkpoint, or start without resuming",
    ),
    CauseInfo(
        "link_down",
        "advice",
        "A port of an RDMA device lost its link",
        "Check cable and switch port (mlxlink, ibdiagnet), and whether the counter link_downed of that port rises",
        explains=("wc_retry_exceeded", "collective_timeout", "modify_qp_timeout"),
    ),
    CauseInfo(
        "disk_error",
        "fatal",
        "A disk or file system reports errors or became read-only",
        "Read dmesg of the node for the device, check the disk (smartctl, nvme smart-log) and the file system, and "
        "write elsewhere until then",
    ),
    CauseInfo(
        "storage_unreachable",
        "advice",
        "Network storage does not answer, or its file handles became stale",
        "Check the server and the network to it, and mount it anew on the nodes that report it",
        explains=("collective_timeout", "rank_stuck_in_kernel"),
    ),
    CauseInfo(
        "too_many_processes",
        "fatal",
        "No more processes or threads could be started",
        "Raise the limit (ulimit -u, TasksMax of the unit, the pod's pids limit), and set OMP_NUM_THREADS and fewer "
        "data-loader workers",
    ),
)
