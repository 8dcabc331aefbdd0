"""What a candidate is worth: candidates, the stages of an evaluation, verdicts and scores. Imports data."""
