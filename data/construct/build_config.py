"""What `passwright tasks build` makes: which models, at how many sizes, and how many tasks of each split. No torch."""

from __future__ import annotations

import hashlib
import json

from pydantic import BaseModel, ConfigDict, Field

from data.construct.model_result import DEFAULT_ZOO
from data.construct.sequence_model import SequenceModel


class ModelsConfig(BaseModel):
    """Where the graphs come from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: tuple[str, ...] = ("transformers",)
    """Zoo sources; "timm" needs the extra of that name."""
    only: tuple[str, ...] = ()
    """Model ids; empty: every model that is known to run."""
    zoo: str = DEFAULT_ZOO
    """Module with the models; bring your own with list_models, find_model, symbols_of, size_variants, build_example."""
    shapes: int = Field(default=10, ge=1)
    """Sizes a model is captured at, in float32."""
    dtypes: tuple[str, ...] = ("float16", "bfloat16")
    """Besides float32."""
    seed: int = 0
    """Of weights and inputs."""
    time_limit_s: float = Field(default=300.0, gt=0)
    """For one model, all of its captures; it is stopped then, and the run goes on."""
    min_architectures: int = Field(default=1, ge=1)
    """Fewer that gave a graph are an error: a set of tasks must not shrink because a library changed."""


class SubgraphsConfig(BaseModel):
    """Which parts of a full graph become templates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_fusible_ops: int = Field(default=2, ge=1)
    max_fusible_ops: int = Field(default=35, ge=1)
    shorter_plateaus: bool = True
    """Whether a fusible range also gives those that begin with it and end earlier: K does not grow there either."""
    min_classical_ops: int = Field(default=4, ge=2)
    max_classical_ops: int = Field(default=64, ge=2)
    max_folds: int = Field(default=16, ge=1)
    occurrences_per_fold: int = Field(default=12, ge=1)
    """Of one folded sequence, places from which it is cut, no more than one a model until every model had one."""
    max_graph_bytes: int = Field(default=16 << 20, ge=1)
    """Of a graph's arguments, and of everything that its operators make in one run."""


class SplitsConfig(BaseModel):
    """How many tasks of each kind."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    eval: int = Field(default=200, ge=0)
    """Fusible, one operator sequence each, its largest group."""
    train: int = Field(default=640, ge=0)
    """Fusible; at most: fewer if the corpus has no more outside of what is held out."""
    eval_classical: int = Field(default=50, ge=0)
    train_classical: int = Field(default=100, ge=0)
    single_op: int = Field(default=50, ge=0)
    max_eval_graphs: int = Field(default=64, ge=1)
    """Of one evaluation task; the paper's reach 396."""
    max_train_graphs: int = Field(default=16, ge=1)
    """Of one training task."""
    sequence_model: SequenceModel = "hmm"
    """Under which the rarity of a sequence is measured when evaluation sequences are chosen (sequence_model.py)."""
    same_code: str = "training.contamination:shares_code"
    """"module:name": (training graphs, held-out graphs) -> {uid of a training graph that holds a held-out one's code:
    why}; empty leaves it out. By name: data/ imports no training."""
    near_duplicate: float = Field(default=0.5, gt=0, le=1)
    """Training sequences that share this much of their operator 3-grams with a held-out one are left out."""


class ScreeningConfig(BaseModel):
    """Graphs on which good and bad passes cannot be told apart are left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    function: str = "eval_harness.screening:screen_reason"
    """"module:name": (graph, num_seeds) -> reason or None; empty leaves screening out. data/ imports no harness."""
    seeds: int = Field(default=10, ge=2)
    """Robust draws of a graph's inputs; robust-kbench's number."""
    time_limit_s: float = Field(default=60.0, gt=0)
    """For one graph."""


class BuildConfig(BaseModel):
    """One set of tasks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(default="passbench_lite", pattern=r"^[\w.-]+$")
    """Of the file, and of the set in references."""
    models: ModelsConfig = ModelsConfig()
    subgraphs: SubgraphsConfig = SubgraphsConfig()
    screening: ScreeningConfig = ScreeningConfig()
    splits: SplitsConfig = SplitsConfig()

    def stage_hash(self, stage: str, *fields: str) -> str:
        """What a stage's files depend on: those parts of the configuration, and the stage's name."""
        about = {"stage": stage} | {field: getattr(self, field).model_dump() for field in fields}
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
