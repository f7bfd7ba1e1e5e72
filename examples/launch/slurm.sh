#!/bin/bash
# The paper's 300M run on eight nodes of eight GPUs, one process per GPU, with Slurm:
#
#     sbatch examples/launch/slurm.sh
#
# JAX finds the other processes by Slurm's own variables. Slurm queues the job again if it
# is preempted, if a node fails, and ten minutes before its time ends. The same command then
# resumes from the last checkpoint.
# We checked only the script's syntax and the plan (107 hours on 64 H100 at 40% of their
# peak rate). It has never run on a cluster.
#SBATCH --job-name=idea-300m
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@600
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

set -euo pipefail
export KERAS_BACKEND=jax
RUN=${RUN:-examples/runs/paper_300m_from_800m.toml}
# Documents are tokenized once, by the first process; the others wait for the cache.
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
srun --kill-on-bad-exit=1 keras-idea train "$RUN" &
# The signal interrupts the first `wait`; the second waits for the processes to end.
wait || wait
