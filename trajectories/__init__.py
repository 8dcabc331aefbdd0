"""What a model did: environment, policies, rollouts, records. Imports data and eval_harness; no torch at import."""
