"""What a student learns: SFT, GRPO, serving, evaluation. Imports data, eval_harness and trajectories."""
