"""Soft verifiers: a model says whether a pass would compile, stay within its tensors, and compute the right numbers.

    prompts.py (versioned texts) -> judging.py (questions, votes, one reflection) -> labels.py (what the harness said)
    -> scoring.py (accuracy, what it would have saved) -> tuning.py (a better prompt, generation by generation)

After robust-kbench: three aspects, majority of votes, used to rank before hardware. They rank and reject nothing.
"""
