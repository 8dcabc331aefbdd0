"""EvolveConfig: every number of the evolutionary search (robust-kbench, Algorithm 1; its own: preset robust_kbench)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trajectories.agents.archive import ContextKind
from trajectories.agents.screening import VerifierConfig

RECOMMENDATIONS = (
    "",
    "another tile size: more elements a program where there are many programs, fewer where there are few",
    "another number of warps or threads a program",
    "let one program handle several rows, or several programs one long row",
    "read each input once: keep what is needed twice in registers",
    "make neighbouring threads read neighbouring elements, in wide loads",
    "do less arithmetic on indices: precompute on the host, or make sizes compile-time constants",
    "serve more of the graph with one kernel, so that less is launched and written in between",
)
"""High-level advice, of which each proposal gets one at random; "" is none."""


class EvolveConfig(BaseModel):
    """Settings of `kind: evolve`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ensemble: tuple[dict[str, Any], ...] = Field(default=({},), min_length=1)
    """One policy each: keys that replace those of `policy:` (temperature, reasoning_effort, model), or a whole policy
    with its own `kind`. Each proposal is asked of one at random."""
    translation_rounds: int = Field(default=10, ge=1)
    """Tries at a first correct candidate."""
    summarise_errors: bool = True
    """Have a failure put into words by one more call, instead of showing the evaluator's own."""
    generations: int = Field(default=10, ge=0)
    num_proposals: int = Field(default=8, ge=1)
    """N, of a generation."""
    num_evaluated: int = Field(default=4, ge=1)
    """N*, the best of them by soft verification."""
    context: ContextKind = "slowest_to_fastest"
    """Which correct candidates a request shows (archive.choose_context)."""
    context_size: int = Field(default=5, ge=1)
    num_recent: int = Field(default=2, ge=0)
    """Of recent_elite, those that are there for being new."""
    max_context_chars: int = Field(default=40_000, ge=1_000)
    """Of the candidates in a request; the slowest are left out first."""
    num_failures: int = Field(default=3, ge=0)
    """Recent failures that a request tells of, a line each."""
    recommendations: tuple[str, ...] = RECOMMENDATIONS
    verifier: VerifierConfig | None = None
    """None: proposals that pass the rules go to the harness in the order in which they came."""
    feedback_chars: int = Field(default=1_500, ge=200)
    """Of a candidate's verdict in a request."""
