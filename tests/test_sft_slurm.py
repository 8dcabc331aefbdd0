"""The Slurm template: its shell is sound, and what it starts on each node is a launch that accelerate understands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "configs/slurm/sft_multinode.sbatch"
FAKES = """
scontrol() { printf 'node-a\\nnode-b\\n'; }
accelerate() { printf '%s\\n' "node $SLURM_NODEID" "$@"; }
exec() { "$@"; }
srun() {
  echo "srun $1 $2 $3 $4"
  while [[ $1 == --* ]]; do shift; done
  for node in 0 1; do SLURM_NODEID=$node "$@"; done
}
export -f scontrol accelerate exec srun
"""
"""Slurm's two commands and the launcher, which print instead; the step's command runs once for each node."""


def test_its_shell_is_sound():
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)


def test_each_node_starts_its_share_of_one_launch(tmp_path):
    from accelerate.commands.launch import launch_command_parser

    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "activate").write_text("")
    command = f"{FAKES}\nbash {SCRIPT} train_batch=16 'trainer.run_name=two words'"
    environment = os.environ | {
        "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "4",
        "VENV": str(tmp_path / "venv"),
        "LAUNCH_CONFIG": str(SCRIPT.parent.parent / "accelerate/ulysses_sp8.yaml"),
    }  # fmt: skip
    done = subprocess.run(["bash", "-c", command], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith("nodes 2, processes 8, head node-a:29500, configs/sft/qwen3_30b_a3b_thinking_2507.yaml on ")
    assert rest[0] == "srun --kill-on-bad-exit=1 --nodes=2 --ntasks=2 --ntasks-per-node=1"
    starts = [index for index, line in enumerate(rest) if line.startswith("node ")]
    assert len(starts) == 2
    for rank, (start, end) in enumerate(zip(starts, [*starts[1:], len(rest)], strict=True)):
        assert rest[start] == f"node {rank}" and rest[start + 1] == "launch"
        args = launch_command_parser().parse_args(rest[start + 2 : end])
        assert (args.num_machines, args.num_processes, args.machine_rank) == (2, 8, rank)
        assert (args.main_process_ip, args.main_process_port, args.rdzv_backend) == ("node-a", 29500, "c10d")
        assert args.parallelism_config_dp_replicate_size == 1  # 8 processes share a row
        assert args.module and args.training_script == "scripts.train_sft"
        assert args.training_script_args[2:] == ["train_batch=16", "trainer.run_name=two words"]
