# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the training_job action; the work is done on the controller, in plugins/action/training_job.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: training_job
version_added: 0.1.0
short_description: Run a multi-node training job on plain hosts or Kubernetes, follow it, and prove that it resumed
description:
  - Starts a gang of processes on the hosts of the play, or of pods on a cluster, and follows it to its end.
  - Nothing starts until every host has passed its preflight, holds the code and can reach the first host's port.
    If one host cannot start, all are stopped and the reason is reported.
  - The launcher's own engine restarts failed ranks (torchrun's elastic agents, or C(mpirun) as a whole), within
    O(job.restart). The processes keep running when the connection or the controller is lost, and the same task finds
    them again.
  - The same job with the same code gets the same run id. Running the task again changes nothing while the run is
    running and after it has succeeded. A run that failed, was lost or was cancelled continues from its checkpoint.
  - With O(job.placement.backend=kubernetes) the gang is an object of JobSet, Kueue, Kubeflow Trainer, the MPI
    operator, KubeRay or Volcano (O(job.placement.engine)). Placement is checked, names and ports between pods are
    tested, and the server validates all objects before the job is submitted. The play's hosts are then not used.
  - A run in which fewer ranks were seen than requested has failed, whatever its exit code.
options:
  job:
    description:
      - The job to run. Unknown keys are refused with the nearest valid key.
      - Required unless O(run_id) names a recorded run to continue.
      - A key that the job's backend or engine cannot carry out is refused by name, never ignored.
    type: dict
    suboptions:
      name:
        description: Name of the job, at most 40 characters, lower-case letters, digits and C(-).
        type: str
        required: true
      nodes:
        description: Number of nodes. The world size is nodes times processes per node.
        type: int
        default: 1
      template:
        description:
          - Name of a preset whose keys are overlaid by the job's own, mappings key by key.
          - A preset of the collection (C(pytorch_ddp), C(pytorch_fsdp), C(deepspeed_zero3), C(accelerate),
            C(huggingface_finetune), C(mpi4py)) or the file C(NAME.yml) of a folder in O(template_paths).
        type: str
      placement:
        description: The backend, and the nodes that the job may use.
        type: dict
        suboptions:
          backend:
            description:
              - V(kubernetes) runs the job in pods, V(hosts) on the hosts of the play.
              - V(auto) is V(hosts) where the play has machines and no O(kubeconfig) or O(context) is named, and
                V(kubernetes) where it is the other way round. Where both or none are there, a job with an O(job.image)
                runs in pods. The decision is printed. A recorded run stays on its backend.
            type: str
            choices: [auto, hosts, kubernetes]
            default: auto
          island:
            description: Name of the island whose nodes the job uses. An island is a group of nodes with one fast
              network.
            type: str
          network_mode:
            description:
              - The network of the pods on Kubernetes. V(host) is the nodes' own network, which takes one pod per
                node.
              - V(pod) cannot be used on plain hosts.
              - V(auto) is V(host) for pods that get a shared RDMA device, where the namespace allows it, and V(pod) for
                others. The decision is printed.
            type: str
            choices: [auto, host, pod]
            default: auto
          required_network_types:
            description: Networks that each node must have.
            type: list
            elements: str
            choices: [mesh, lan, public]
            default: []
          allow_slow_network:
            description: Whether the job may run on lane D (a mesh or the open network) and on nodes of several
              islands.
            type: bool
            default: false
          engine:
            description:
              - The controller that runs the job on Kubernetes.
              - The default follows from O(job.launcher). It is V(mpijob) for C(mpi), V(rayjob) for C(ray), else
                V(jobset).
            type: str
            choices: [jobset, indexed_job, trainjob, mpijob, rayjob, volcano]
          cluster:
            description: Context of the kubeconfig, on Kubernetes.
            type: str
          namespace:
            description: Namespace on Kubernetes. The default is the namespace of the context.
            type: str
          queue:
            description:
              - LocalQueue of Kueue on Kubernetes, or a queue of Volcano with that engine.
              - Required where the namespace has several LocalQueues.
            type: str
          priority:
            description: Priority class of the job on Kubernetes.
            type: str
          share_machines:
            description:
              - Whether pods may be on one machine, on Kubernetes. By default each pod of a job is on a machine of
                its own, so that O(job.nodes) are machines, and a job is refused where that is not possible.
              - A queue of Kueue with a topology fills a machine before it takes the next one. Without this option a job
                of which two pods fit on one machine is refused there.
              - Where pods share machines, the live line, the record and the report say so, and no network is proven.
            type: bool
            default: false
          start_wait_s:
            description:
              - How many seconds something that can pass by itself may keep the pods from starting on Kubernetes, before
                the run ends as failed with that cause.
              - It counts for an image whose registry does not answer, a refusal by an admission rule that may change,
                and a mounted object that does not exist. What no waiting mends ends the run at once.
              - It does not count for the time that a job waits in its queue or for nodes with room.
              - The default is long enough for five tries of a kubelet.
            type: int
            default: 180
      launcher:
        description:
          - The program that starts the ranks. V(ray) runs on Kubernetes only.
          - V(megatron) is torchrun with the options of Megatron-LM that O(job.parallel) becomes, and with C(--save) and
            C(--load) of the run's folder for checkpoints where O(job.args) do not name them.
        type: str
        choices: [torchrun, accelerate, deepspeed, megatron, mpi, ray, command]
        default: torchrun
      image:
        description:
          - Container image of the pods. Required on Kubernetes, refused on plain hosts.
          - Of a registry that is bound (M(muster.training.service_binding)), its tag is resolved to a digest once a
            start, which all pods of all attempts run; nodes of other architectures are left out, and the run's own
            Secret has the credentials.
        type: str
      python:
        description: Interpreter on the nodes. The default is the host variable C(muster_training_python), else
          C(python3).
        type: str
      code:
        description: The source of the program's files. Required for a relative O(job.script).
        type: dict
        suboptions:
          ref:
            description:
              - A folder on the controller with V(path), C(URL@REVISION) with V(git), an absolute folder of the image
                with V(image).
            type: str
            required: true
          from:
            description:
              - The kind of the source. V(image) runs on Kubernetes only.
              - V(binding) is reserved for service bindings and refused.
            type: str
            choices: [path, git, image, binding]
            default: path
          sha256:
            description: Expected checksum of the files. Another checksum is refused.
            type: str
          workdir:
            description: Working folder of the program, relative to the folder of the files.
            type: str
            default: .
      script:
        description:
          - Python file to run, relative to the code or absolute.
          - Exactly one of O(job.script), O(job.module) and O(job.command) is required.
        type: str
      module:
        description: Python module to run, as C(python -m) runs it. See O(job.script).
        type: str
      command:
        description: Argument list to run, with O(job.launcher=command) or O(job.launcher=mpi). See O(job.script).
        type: list
        elements: str
        default: []
      args:
        description:
          - Arguments of the program. C({run_dir}) stands for the run's folder on the node, C({checkpoint_dir}) for the
            run's folder for checkpoints (not with O(job.launcher=ray)), C({deepspeed_config}) for the DeepSpeed file.
        type: list
        elements: str
        default: []
      env:
        description: Environment variables of the program. Variables that the launcher sets are refused.
        type: dict
        default: {}
      gpus_per_node:
        description: GPUs per node. 0 trains on the CPU.
        type: int
        default: 0
      processes_per_node:
        description: Ranks per node. The default is one per GPU, or one without GPUs.
        type: int
      groups:
        description: Reserved. Groups of unequal nodes are refused.
        type: list
        elements: dict
        default: []
      gpu:
        description: Requirements on the GPUs of each node.
        type: dict
        suboptions:
          model:
            description: Part of the model's name.
            type: str
          memory_gib_min:
            description: Least memory of one GPU, in GiB.
            type: int
          arch:
            description: Architecture of the GPU.
            type: str
      resources:
        description: Resources of each node.
        type: dict
        suboptions:
          cpu:
            description: Processor cores of a pod on Kubernetes, such as V(4), V(0.5) or V(500m). At least 0.1.
            type: str
          memory:
            description:
              - Memory limit as a quantity such as V(64Gi) (2^30 bytes each) or V(64G) (10^9 bytes each).
              - On plain hosts systemd limits the job on a node as a whole. Where no systemd runs, each process is
                limited by itself (RLIMIT_DATA), and a job with GPUs is refused.
            type: str
          shm:
            description:
              - Size of C(/dev/shm) of a pod on Kubernetes. It counts against O(job.resources.memory).
              - The default is 8Gi with GPUs, else 1Gi, at most half of O(job.resources.memory).
            type: str
          rdma:
            description:
              - Whether each pod on Kubernetes gets a device of the cluster's RDMA resource, or the name of the
                resource, such as V(rdma/roce). With a network that takes the resource (SR-IOV) pods are attached to it.
              - The default is true for jobs with GPUs where all nodes that fit offer one.
            type: raw
      secret_refs:
        description: Secrets by reference. The values never appear in a record or a log.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: Name of the variable that the program sees.
            type: str
            required: true
          from:
            description:
              - The source of the value. V(env) and V(file) are read on the controller.
              - V(vault) and V(openbao) are read on the controller with C(hvac), from a key-value store, or from what
                makes tokens and credentials with a lease. These are renewed while the run is followed, and revoked when
                it ends. Without O(job.secret_refs[].binding), E(VAULT_ADDR) and E(VAULT_TOKEN) (E(BAO_ADDR) and
                E(BAO_TOKEN)) say where and as whom.
              - V(aws_secrets_manager) is read on the controller with C(botocore), V(infisical) by its API.
              - V(kubernetes) names a Secret. On Kubernetes it is one of the job's namespace, which pods read. On plain
                hosts the controller reads it.
              - V(external_secrets) has the operator External Secrets read it in the cluster, by
                O(job.secret_refs[].store). The controller never has the value. Kubernetes only.
            type: str
            choices: [env, file, vault, openbao, aws_secrets_manager, infisical, kubernetes, external_secrets]
            required: true
          path:
            description:
              - The file with V(file), the name of the Secret with V(kubernetes), C(MOUNT/PATH) with V(vault) and
                V(openbao), the name or ARN with V(aws_secrets_manager), C(PROJECT/ENVIRONMENT/FOLDER) with
                V(infisical), and the C(remoteRef.key) of the store with V(external_secrets).
            type: str
          key:
            description:
              - The variable on the controller with V(env), and the key at the path with services. A secret of AWS has
                keys when it is a JSON object.
              - The default is O(job.secret_refs[].name). With V(external_secrets) it is the C(remoteRef.property), and
                without it the whole value is taken.
            type: str
          as:
            description:
              - V(env) sets the variable to the value. V(file) sets C(NAME_FILE) to the path of a file that holds it.
              - V(registry) is what images are pulled with, on Kubernetes only. It is C(USER:PASSWORD) for the registry
                of O(job.image), a configuration file with C(auths), or, with V(kubernetes), a Secret of the type
                C(kubernetes.io/dockerconfigjson).
            type: str
            choices: [env, file, registry]
            default: env
          binding:
            description: The binding of the service that is asked.
            type: str
          store:
            description:
              - With V(external_secrets), the store by which the operator reads. V(NAME) is a SecretStore of the
                namespace, V(cluster/NAME) a ClusterSecretStore.
            type: str
      datasets:
        description: Data for the program, which finds it in the variable C(MUSTER_DATASET_NAME).
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: Name of the dataset, at most 40 characters.
            type: str
            required: true
          path:
            description:
              - File or folder on the controller that is copied to the nodes. Required without
                O(job.datasets[].binding).
              - With O(job.datasets[].mode=mount), the absolute path at which all nodes have the data.
            type: str
          mode:
            description:
              - V(stage) copies the data to the nodes, from the controller or from a bucket.
              - V(stream) gives the program the address C(s3://BUCKET/PREFIX), the endpoint and its credentials.
                Requires O(job.datasets[].binding).
              - V(mount) names a path that the nodes have; in pods it is on one of O(job.mounts). With a binding of a
                shared file system, O(job.datasets[].prefix) is its folder there.
            type: str
            choices: [stage, mount, stream]
            default: stage
          read_only:
            description: Whether the program only reads the data. Must be V(true) with O(job.datasets[].binding).
            type: bool
            default: true
          binding:
            description:
              - Name of the binding of an object store whose bucket for C(datasets) holds the data.
            type: str
          prefix:
            description: Folder of the bucket, or one object in it. The default is the whole bucket.
            type: str
          cache:
            description:
              - Folder of a mount of the job in which the pods of a node stage the dataset once for all of them, and
                later runs find it. The default is a volume of each pod.
              - Needs the Kubernetes backend, O(job.datasets[].binding), O(job.datasets[].mode=stage) and a mount that
                is not read-only.
            type: str
      mounts:
        description:
          - Volumes of the job. Each needs exactly one of O(job.mounts[].binding), O(job.mounts[].pvc) and
            O(job.mounts[].host_path).
          - Plain hosts have those with a binding only.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: Name of the mount, at most 40 characters.
            type: str
            required: true
          path:
            description:
              - Absolute path in the pods. On plain hosts it is the path at which the nodes have the shared file system.
            type: str
            required: true
          host_path:
            description: Absolute path of a folder of the node, on Kubernetes. With a binding it is that of the binding.
            type: str
          read_only:
            description: Whether the mount is read-only.
            type: bool
            default: false
          binding:
            description:
              - Name of a binding of the kind V(shared_filesystem). A node where it is not mounted, or where another
                one is, does not start the program. Of a StorageClass, pods get the claim of their namespace.
            type: str
          marker:
            description: The file system that the binding was checked with. Recorded, and not meant to be set.
            type: str
          pvc:
            description:
              - Name of a PersistentVolumeClaim in the job's namespace on Kubernetes. Several nodes need the access
                mode ReadWriteMany. With a binding it is that of the binding.
            type: str
      checkpoints:
        description: The checkpoints that the program writes and resumes from.
        type: dict
        suboptions:
          path:
            description:
              - Folder on the nodes; a run uses a folder of its own below it. The default is inside the run's folder on
                each node.
              - On Kubernetes it belongs below a mount. Elsewhere it is lost with its pod.
            type: str
          shared:
            description:
              - Whether all nodes of a job with several nodes must see one folder at O(job.checkpoints.path). Before the
                program starts, the first node writes a file there that the others must read within 15 seconds. A node
                that does not see it is named, and nothing is started. In pods this is repeated in every attempt. Not
                tested with O(job.launcher=ray).
              - V(false) is for nodes with a folder of their own. On hosts, what one node alone saved is then copied to
                the others before ranks begin; programs that keep a part of the checkpoints on each node are left alone.
            type: bool
            default: true
          format:
            description:
              - What a complete checkpoint is, for O(job.checkpoints.keep) and O(job.checkpoints.resume=required).
              - With V(auto) the layouts of common programs are known by names and files, also in folders below, and
                which one was seen is in the run's record. A checkpoint that lacks what its program writes last does
                not count, is said, and is hidden from programs that take the newest name. Such programs need not
                report their checkpoints. Where no layout is known, V(auto) is V(files) without logs, cards and tools,
                as far as a file such as C(latest.txt) says that names one of them.
              - V(transformers) is C(checkpoint-N) with C(trainer_state.json); V(accelerate) a folder with
                C(random_states_0.pkl); V(deepspeed) C(global_stepN), or a folder with C(mp_rank_NN_model_states.pt), as
                far as C(latest) says; V(megatron) C(iter_N), as far as C(latest_checkpointed_iteration.txt) says;
                V(mmengine) C(iter_N.pth) and C(epoch_N.pth), as far as C(last_checkpoint) says; V(lightning) C(*.ckpt);
                V(orbax) a folder with C(_CHECKPOINT_METADATA); V(torchtune) C(step_N) or C(epoch_N) with
                C(recipe_state.pt), or with the weights and C(config.json), as after the last step; V(fairseq)
                C(checkpoint_last.pt), C(checkpointE.pt) and C(checkpoint_E_N.pt); V(verl) C(global_step_N), as far as
                C(latest_checkpointed_iteration.txt) says; V(tensorflow) C(NAME.index) with all of its
                C(NAME.data-N-of-M); V(safetensors) a folder with an index and all of its shards.
              - V(dcp), PyTorch's distributed checkpoints, is a folder with a C(.metadata) file, which is written last.
              - V(files) is a file or folder that is not empty and whose name neither starts with C(.) nor ends with
                C(.tmp), C(.part), C(.partial) or C(.incomplete). The program writes under such a name and renames.
            type: str
            choices:
              [auto, files, orbax, deepspeed, megatron, mmengine, lightning, dcp, accelerate, transformers, torchtune,
               fairseq, verl, tensorflow, safetensors]
            default: auto
          resume:
            description:
              - V(auto) leaves it to the program to resume from what is in E(MUSTER_CHECKPOINT_DIR).
              - With V(never) each start of the run gets an empty folder of its own, C(attempt-N) in the run's folder.
                Restarts within a start resume from it.
              - With V(required) a start is refused where the run's folder has no complete checkpoint. On Kubernetes
                the pods refuse it, before the program starts.
              - The program finds it in E(MUSTER_RESUME).
            type: str
            choices: [auto, never, required]
            default: auto
          resume_args:
            description:
              - Arguments that the program gets besides O(job.args) in each start, and restart, that finds a complete
                checkpoint in the run's folder, such as V([--resume, "{checkpoint}"]). C({checkpoint}) stands for its
                path, C({checkpoint_dir}) and C({run_dir}) for what they do in O(job.args).
              - For programs that have to be told to resume. The newest complete checkpoint of O(job.checkpoints.format)
                is taken, the one that a tracker of the program names before others.
              - Not possible with O(job.launcher=ray).
            type: list
            elements: str
            default: []
          keep:
            description:
              - Number of complete checkpoints to keep. Older ones are removed on the node that has them while the
                program runs, never the newest one. All are kept when it is not set.
              - What has the word C(best) in its name stays besides, and so does the one that the state of transformers'
                Trainer names as its best.
              - Of checkpoints without a known layout only those are removed that the program has reported with
                C(checkpoint_step) and C(path).
              - The program finds it in E(MUSTER_CHECKPOINT_KEEP).
            type: int
          grace_s:
            description: Seconds that the program has to save after SIGTERM, at most 3600.
            type: int
            default: 30
          interval_steps:
            description: Steps between two checkpoints of the program. A drill compares the steps lost with it.
            type: int
          binding:
            description:
              - The binding of an object store with a bucket for checkpoints. Complete checkpoints are stored there
                while the program runs, and fetched before a start on nodes or in pods whose copy is older, torn or
                missing.
              - With the engine V(mpijob) it requires O(job.restart.max_crashes=0).
              - With the engine V(rayjob) Ray Train stores them by itself, below the address in
                E(MUSTER_RAY_STORAGE_PATH).
            type: str
          copy_every_s:
            description:
              - How often, in seconds, a node of a gang on hosts without a shared folder looks whether the node before
                it has saved a checkpoint alone, and copies the newest one. The machine that saves can then be lost.
              - V(0) copies before a restart only. With O(job.checkpoints.binding) the store has them.
            type: int
            default: 30
      deepspeed_config:
        description: Content of DeepSpeed's JSON file. Needs O(job.launcher=deepspeed) or O(job.launcher=accelerate).
        type: dict
        default: {}
      parallel:
        description:
          - How Megatron divides the model and the batch among ranks. Needs O(job.launcher=megatron).
          - What Megatron would assert when all ranks have started is refused before; the model's sizes are read from
            O(job.args), and what is not written there is not judged.
          - Tensor parallel groups of ranks on several nodes are refused unless their network was measured as lane A.
        type: dict
        suboptions:
          tensor:
            description: Ranks that have a part of each layer (C(--tensor-model-parallel-size)).
            type: int
            default: 1
          pipeline:
            description: Stages of layers (C(--pipeline-model-parallel-size)). Above V(1) it needs O(job.gpus_per_node).
            type: int
            default: 1
          context:
            description: Ranks that have a part of each sequence (C(--context-parallel-size)).
            type: int
            default: 1
          expert:
            description: Ranks among which the experts are divided (C(--expert-model-parallel-size)).
            type: int
            default: 1
          sequence:
            description: Whether tensor parallel ranks divide the sequence between their parts (C(--sequence-parallel)).
            type: bool
            default: false
          micro_batch:
            description: Samples of a rank in one pass (C(--micro-batch-size)). Without it O(job.args) have it.
            type: int
          global_batch:
            description: Samples of a step over all ranks (C(--global-batch-size)). Without it O(job.args) have it.
            type: int
      requires:
        description:
          - 'Packages that the interpreter must have, such as C({torch: ">=2.4"}). All nodes must have the same
            release.'
          - On Kubernetes the image brings them, and nothing is compared.
        type: dict
        default: {}
      requirements:
        description:
          - Packages to install beside those that the interpreter has, as pip names them, such as C(einops>=0.8).
            C(-r FILE) stands for the lines of a file in the code.
          - Each set gets a virtual environment of its own on every node, on all nodes at once, and once where nodes
            share the path. Refused on Kubernetes, where the image has the packages.
        type: list
        elements: str
        default: []
      restart:
        description: Limits of restarts, with separate budgets for crashes and for lost nodes.
        type: dict
        suboptions:
          max_crashes:
            description: Restarts after a crash of the program.
            type: int
            default: 3
          max_lost_nodes:
            description: Restarts after the loss of a node.
            type: int
            default: 3
          on_lost_node:
            description:
              - V(wait) waits for the node, V(fail) ends the run.
              - V(replace) and V(shrink) are carried out by M(muster.training.fleet_heal). On Kubernetes V(shrink)
                needs O(job.elastic).
            type: str
            choices: [wait, fail, replace, shrink]
            default: wait
          wait_s:
            description: Seconds to wait for a lost node, at most 86400.
            type: int
            default: 600
          fatal_exit_codes:
            description: Exit codes of the program that end the run without a restart, 1 to 255.
            type: list
            elements: int
            default: []
          on_hang:
            description:
              - What follows once the gang has hung for O(job.restart.hang_s) seconds, which means that ranks wait in a
                collective for one that does not come to it. The controller that follows the run carries it out, and
                O(wait=false) is refused with V(restart) and V(stop).
              - V(report) says who is waited for, and where, and leaves the run alone.
              - V(restart) kills the rank that is waited for (its pod on Kubernetes), so that the gang starts again from
                its newest checkpoint. That counts as a crash.
              - V(stop) ends the run as failed with the cause C(hang), once its ranks could save.
            type: str
            choices: [report, restart, stop]
            default: report
          hang_s:
            description: Seconds that a gang hangs before O(job.restart.on_hang) is carried out, 10 to 86400.
            type: int
            default: 60
      elastic:
        description:
          - A world that may change its size, on Kubernetes with torchrun and the engine C(jobset) or C(indexed_job).
        type: dict
        suboptions:
          min:
            description: Least number of nodes.
            type: int
          max:
            description: Largest number of nodes. Only O(job.nodes) is accepted.
            type: int
      stop_on:
        description:
          - What ends a run that trains nothing. The run is then failed, and its outcome names the cause.
          - The controller that follows the run carries it out, on plain hosts and on Kubernetes. O(wait=false) is
            refused. A run that is followed again later is judged from then on.
        type: dict
        suboptions:
          nan:
            description:
              - Whether a reported loss that is not a number (NaN or infinite) ends the run. Otherwise it is a warning.
              - A program that prints its steps needs a group C(loss) in O(job.metrics.step_pattern) that matches
                C(nan), too, such as C(loss=(?P<loss>\S+)).
            type: bool
            default: false
          stalled_s:
            description:
              - Seconds without a new step that end the run, counted from the last step, or from the start of the ranks
                before the first one. Leave room for the first step and for saving checkpoints.
              - Time in a queue, of a restart, and while a node or the cluster does not answer is not counted.
              - The program has to report its steps.
              - Where each rank stood is kept in C(logs/NODE.stacks) before it is stopped; in pods by py-spy, where the
                image has it, and by the kernel.
            type: int
      timeout_s:
        description: Seconds after which the job is stopped.
        type: int
      ttl_after_finished_s:
        description: Seconds that the objects of a finished job stay on Kubernetes. The default is a day.
        type: int
      release:
        description: Whether rented machines are terminated after the run, never, when it succeeded or always.
        type: str
        choices: [never, success, always]
        default: never
      max_cost_usd:
        description: US dollars that the run may cost. A run that costs more is stopped and its rented machines
          terminated.
        type: float
      tracking:
        description:
          - The tracker of the run, a mapping with C(binding), the name of a binding of the kind V(tracking), and
            C(experiment), the experiment of MLflow or the project of Weights & Biases (default the job's name). The
            name of the binding alone is enough. With C(log=true) the steps that are read of the run are logged to
            MLflow from the controller while it follows the run, for a program that logs nothing itself.
          - With C(model), the name of a registered model, and C(log=true) the last checkpoint of a run that succeeded
            becomes a version of it with the alias C(alias) (default C(trained)). With O(job.checkpoints.binding) that
            is the stored one. Its bytes stay where they are; M(muster.training.training_job_fetch) fetches it by name.
          - The program gets the variables that the tracker's own client reads (C(MLFLOW_TRACKING_URI),
            C(WANDB_PROJECT) and others); credentials are delivered as secrets are.
        type: raw
      monitoring:
        description:
          - The name of a binding of the kind V(monitoring). While the run is followed, its step, loss, speed, age of
            the checkpoint, attempt, transport and cost are sent there from the controller every 15 seconds, as metrics
            C(muster_run_*) of Prometheus. While it does not answer they are dropped, and the run continues.
        type: str
      metrics:
        description: How metrics are read from the program's output.
        type: dict
        suboptions:
          preset:
            description:
              - The program or library whose lines are read. Patterns that are set replace those of the preset.
              - V(transformers) is its Trainer, which trl, axolotl, LLaMA-Factory and sentence-transformers use, too;
                V(lightning) is its progress bar, V(accelerate) and V(nanogpt) what their examples print, V(torchvision)
                its references and the ImageNet example, V(diffusers) its examples and sd-scripts, V(mmengine) also
                mmcv.
              - Without a preset and without patterns, a program that reports nothing is read as the one whose lines are
                seen, V(accelerate) excepted.
            type: str
            choices:
              [ms_swift, transformers, lightning, accelerate, nanogpt, megatron, deepspeed, torchtune, torchtitan,
              keras, nemo, nanotron, litgpt, llm_c, modded_nanogpt, fairseq, opennmt, timm, torchvision, mmengine,
              detectron2, ultralytics, paddle, composer, maxtext, diffusers, diffusers_unconditional,
              stable_baselines3, verl]
          figures_pattern:
            description:
              - Regular expression for lines with figures and without a step, such as C('loss'. (?P<loss>[^,}]+)). Each
                named group is a figure of the last step that was printed before.
            type: str
          step_pattern:
            description:
              - Regular expression with a group C(step) and any of C(loss), C(tokens_per_s) and other metrics, for a
                program that does not write C(MUSTER_METRICS_FILE). Figures may have a unit, such as C(80.7k).
              - With a group C(total), the length of a progress bar, only lines of the first bar count; with C(epoch)
                (or C(epoch1), counted from 1) too, the step counts within epochs of that length. A group C(rank) says
                who printed the line.
            type: str
          checkpoint_pattern:
            description: Regular expression with a group C(step) for the line that says that a checkpoint was saved.
            type: str
          resume_pattern:
            description:
              - Regular expression with a group C(step) for the line that says from which checkpoint the program
                resumed. A drill is proven by it, else by O(job.checkpoints.interval_steps).
            type: str
      batch:
        description: Your own numbers, only for the advice that is shown before launch.
        type: dict
        suboptions:
          per_rank:
            description: Samples per rank and step.
            type: int
          accumulation:
            description: Steps whose gradients are accumulated.
            type: int
            default: 1
          base_learning_rate:
            description: Learning rate at O(job.batch.base_batch), scaled linearly with the batch.
            type: float
          base_batch:
            description: Samples per step for which O(job.batch.base_learning_rate) holds.
            type: int
          parameters:
            description: Parameters of the model, for the time of an all-reduce.
            type: int
          bytes_per_gradient:
            description: Bytes of one gradient, 1 to 8.
            type: int
            default: 4
  run_id:
    description:
      - Name of the run. The default is the job's name and a checksum of the job and its code.
      - Required with O(state=cancelled).
    type: str
  state:
    description:
      - V(present) starts or continues the run and follows it.
      - V(cancelled) stops it on all its hosts, after O(job.checkpoints.grace_s) seconds to save.
    type: str
    choices: [present, cancelled]
    default: present
  hosts:
    description: Inventory hosts to choose nodes from, in order; rank 0 is on the first. The default is all of the
      play.
    type: list
    elements: str
  template_paths:
    description: Folders with a team's own job templates, one YAML file each; the first folder that has a name wins.
    type: list
    elements: path
    default: []
  wait:
    description: Whether to follow the run to its end. Without it the task ends when every agent has been started.
    type: bool
    default: true
  take_over:
    description: Whether to take a run over that another controller started.
    type: bool
    default: false
  recreate:
    description:
      - Whether to stop a run on Kubernetes that is running with another job under the same name, and to start this
        job.
      - Without it the task fails and shows the differences. On plain hosts cancel the run first.
      - Also whether to start a run again whose object no longer exists in the cluster (deleted, or its time to live
        has expired) and whose result was not recorded.
    type: bool
    default: false
  extend:
    description:
      - Whether to continue a run that has succeeded with another job, such as O(job.args) with more steps. It begins
        from its checkpoints.
      - Without it, a run that has succeeded with another job is refused. The same job changes nothing.
      - For plain hosts. Name the run by O(run_id), because another job has another default.
    type: bool
    default: false
  catalogue_template:
    description:
      - The template of the catalogue that O(job) was filled from, as M(muster.training.training_template_info) returns
        it. It is recorded with the run, and does not tell one run from another.
      - A run that is continued with the same job and without this option keeps the template that is recorded.
    type: dict
    suboptions:
      name:
        description: Name of the template.
        type: str
        required: true
      version:
        description: Its version.
        type: str
        required: true
      digest:
        description: SHA-256 of its content.
        type: str
        required: true
      inputs:
        description: The answers, of a secret its reference.
        type: dict
      overrides:
        description: Keys of the job that were laid over the filled one.
        type: dict
      source:
        description: Where the template came from, as in O(muster.training.training_template_info#module:sources).
        type: dict
  notify:
    description:
      - Where the end of the run is reported, as one line with its outcome and reason. A failure to do so is a warning.
      - C(webhook) is an address to which a JSON object is posted, with the keys C(text), C(run_id), C(outcome) and
        C(cause). It is treated as a secret.
      - C(mail) has the keys C(to), C(from), C(host), and optionally C(port), C(user), C(password) and C(tls)
        (C(starttls), C(implicit) or C(none)).
      - C(on) is C(end) or C(failure).
    type: dict
  reports_url:
    description:
      - The address at which a web server of yours serves the folder C(runs) of the cluster in the state home. The
        metrics of a run (O(job.monitoring)) then name its report.
    type: str
  drill:
    description:
      - Kill a process on purpose while following, and prove the resume from the step counter.
    type: dict
    suboptions:
      target:
        description:
          - One rank's process, a host's agent with its ranks, or everything of the run on a host.
          - V(cut) cuts a host off its network without a reset, as a pulled cable does, and restores the link after
            O(drill.seconds). It is proven by steps after the link is back, or by a resume. It takes root and nft or
            iptables on the host, and is refused for local hosts.
          - On Kubernetes V(agent) is a pod and V(host) all pods of the run on a node; a single rank cannot be killed,
            and V(cut) is refused.
        type: str
        choices: [worker, agent, host, cut]
        default: worker
      rank:
        description: The rank to kill; also chooses the host. The default is the last rank.
        type: int
      node:
        description: The host on which to kill, when not the one of the rank.
        type: str
      at_step:
        description: >-
          Kill when this training step is seen. Without it and O(drill.after_s) it is as soon as there is a checkpoint
          to resume from.
        type: int
      after_s:
        description: Kill this many seconds after the first step.
        type: float
      seconds:
        description:
          - How long O(drill.target=cut) lasts, at most 86400. The default is 60.
          - A silent host is reported after at most 30 seconds; after O(job.restart.wait_s) the run is lost.
        type: int
  kubeconfig:
    description:
      - For a job with O(job.placement.backend=kubernetes), the kubeconfig (a path, or its content as a mapping).
      - The default is the kubeconfig that C(kubectl) finds.
    type: raw
  context:
    description: The context of the kubeconfig. The default is O(job.placement.cluster), else the current one.
    type: str
  cluster_id:
    description:
      - The uid of the namespace C(kube-system), or the id that a refusal names. Any other cluster is refused, whatever
        the kubeconfig points at.
      - Without it, two things are refused. One is a run whose record says that it is running on another cluster. The
        other is a new run on a cluster that has none of the rented machines while, by the ledger, another cluster
        has them. Set it when they belong to this cluster now, such as after its control plane was rebuilt.
    type: str
  cluster_gone:
    description:
      - With O(state=cancelled), whether the cluster of the run no longer exists. The run is recorded as cancelled, its
        record and logs stay. Refused where a cluster answers.
    type: bool
    default: false
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._state_home
attributes:
  check_mode:
    support: full
    details: The preflight runs on all hosts, which only reads; nothing is written on the controller or on a host.
  diff_mode:
    support: none
  idempotent:
    support: full
seealso:
  - module: muster.training.training_job_info
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Train on two nodes
  muster.training.training_job:
    job:
      name: char-lm
      template: pytorch_ddp
      nodes: 2
      gpus_per_node: 8
      code: {from: path, ref: ./examples/char_lm}
      script: train.py
      args: [--steps, 1000]
      checkpoints: {path: /mnt/checkpoints, interval_steps: 100}
  run_once: true

- name: Kill rank 1 at step 50 and prove that the job resumes
  muster.training.training_job:
    job: "{{ muster_job }}"
    drill: {target: worker, rank: 1, at_step: 50}
  run_once: true

- name: Train on a cluster, through a queue
  muster.training.training_job:
    job:
      name: char-lm
      nodes: 4
      gpus_per_node: 8
      image: registry.example.com/team/char-lm:1.4
      script: train.py
      code: {ref: ./examples/char_lm}
      mounts:
        - {name: checkpoints, path: /checkpoints, pvc: checkpoints}
      checkpoints: {path: /checkpoints}
      placement: {backend: kubernetes, namespace: team, queue: gpus}
    kubeconfig: ~/.kube/team.yaml
  run_once: true

- name: Stop a run
  muster.training.training_job:
    run_id: char-lm-1a2b3c4d
    state: cancelled
  run_once: true
"""

RETURN = r"""
run_id:
  description: The name of the run.
  returned: success
  type: str
  sample: char-lm-1a2b3c4d
run:
  description:
    - The run record, as in C(run.json). C(problems) names attempts that did not resume although they could have.
    - Of a run that failed only its state, outcome, cause, detail, exit code and world size. A run that could not be
      cancelled or followed any more has its state and outcome.
  returned: when not in check mode
  type: dict
  sample: {"state": "ended", "outcome": "succeeded", "world_size": {"asked": 16, "seen": 16}, "problems": []}
folder:
  description: The run's folder on the controller, with the record, events, metrics and logs.
  returned: when not in check mode
  type: str
derived:
  description: World size, effective batch, learning-rate advice, price, and where checkpoints go if not shared.
  returned: in check mode
  type: dict
checks:
  description: The result of the preflight.
  returned: in check mode
  type: dict
released:
  description:
    - The rented machines that were terminated at the run's end (O(job.release), O(job.max_cost_usd)) and proved gone.
  returned: when any were due
  type: list
  elements: str
not_proved_gone:
  description:
    - Machines that were due and may still bill, each with C(name), C(provider) and C(problem). The module fails.
  returned: when any were due
  type: list
  elements: dict
kept:
  description:
    - Why a machine that was due was kept, by name. On Kubernetes another run may be using it. Where the cluster
      cannot say so, the module fails.
  returned: when any were kept
  type: dict
"""
