"""Every YAML file under configs/ parses with the class that reads it: a file that fails is found here, not by a user.

A new folder or file needs a line in READERS; a file that nothing reads is an error too.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval_harness.errors import UserError
from scripts.config_loading import load_config
from trajectories.agents import make_agent, policy_settings
from trajectories.policies import make_policy

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
FILES = sorted(CONFIGS.rglob("*.y*ml"))


def read_collect(path: Path) -> None:
    from trajectories.collect import CollectConfig
    from trajectories.policies import make_policy

    config = load_config(CollectConfig, path)
    config.protocols()
    make_policy(config.policy)


def read_sft(path: Path) -> None:
    from training.sft import SftRunConfig, make_trainer_arguments

    config = load_config(SftRunConfig, path)
    # TRL's own fields are not copied into a class of ours, so only TRL can say whether they exist. A precision that
    # this machine lacks is not the file's fault.
    trainer = {key: value for key, value in config.trainer.items() if key not in ("bf16", "fp16", "tf32")}
    make_trainer_arguments(config.model_copy(update={"trainer": trainer | {"bf16": False, "use_cpu": True}}))


def read_grpo(path: Path) -> None:
    from training.grpo_config import GrpoRunConfig, make_grpo_arguments

    config = load_config(GrpoRunConfig, path)
    config.check()
    trainer = {key: value for key, value in config.trainer.items() if key not in ("bf16", "fp16", "tf32")}
    changed = config.model_copy(update={"trainer": trainer | {"bf16": False, "use_cpu": True}})
    make_grpo_arguments(changed, planned=False)


def read_dataset(path: Path) -> None:
    from training.dataset_config import DatasetConfig

    config = load_config(DatasetConfig, path)
    assert config.name == path.stem == config.selection.preset


def read_eval(path: Path) -> None:
    from training.evaluate_config import StudentEvaluationConfig

    config = load_config(StudentEvaluationConfig, path)
    assert config.resolved_final_protocol().name == config.final_protocol
    assert config.limits.max_turns == 50 and config.limits.time_limit_s is None


def read_accelerate(path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    assert load_config_from_file(str(path)).num_processes >= 1


def read_quickstart(path: Path) -> None:
    from scripts.quickstart_config import QuickstartConfig
    from training.sft import make_trainer_arguments

    config = load_config(QuickstartConfig, path)
    config.collect.protocols()
    make_trainer_arguments(config.sft)
    # the student's prompt shows the turns left, so it must be the teacher's
    assert config.evaluation.limits.max_turns == config.collect.limits.max_turns
    assert config.evaluation.prompt == config.collect.prompt
    assert config.evaluation.tasks == config.collect.tasks == config.tasks


def read_tasks(path: Path) -> None:
    from data.construct.build import model_ids
    from data.construct.build_config import BuildConfig

    config = load_config(BuildConfig, path)
    assert config.name == path.stem
    assert model_ids(config)


PROOF = {"collect": read_collect, "sft": read_sft, "grpo_covered": read_grpo, "grpo_es_t": read_grpo}


def read_proof(path: Path) -> None:
    """The parts of one chain: each takes what the one before it leaves, and the student sees the teacher's prompt."""
    from training.dataset_config import DatasetConfig
    from training.evaluate_config import StudentEvaluationConfig

    if path.stem == "dataset":
        config = load_config(DatasetConfig, path)
        assert config.contamination == "drop" and config.eval_tasks == ["passbench_lite:eval"]
    elif path.stem == "eval":
        from trajectories.collect import CollectConfig

        evaluation = load_config(StudentEvaluationConfig, path)
        collect = load_config(CollectConfig, path.with_name("collect.yaml"))
        assert evaluation.resolved_final_protocol().name == "strict"
        assert (evaluation.limits.max_turns, evaluation.prompt) == (collect.limits.max_turns, collect.prompt)
        assert evaluation.protocol_overrides == collect.protocol_overrides
    else:
        PROOF[path.stem](path)


def read_agents(path: Path) -> Any:
    agent = make_agent({"preset": path.stem})
    for settings in policy_settings(agent, {"kind": "openai", "model": "m"}):
        make_policy(settings)
    return agent


READERS: dict[str, Callable[[Path], Any]] = {
    "agents/": read_agents,
    "collect/": read_collect,
    "dataset/": read_dataset,
    "sft/": read_sft,
    "grpo/": read_grpo,
    "tasks/": read_tasks,
    "eval/": read_eval,
    "proof/": read_proof,
    "accelerate/": read_accelerate,
    "quickstart.yaml": read_quickstart,
}


def reader_of(path: Path) -> Callable[[Path], Any] | None:
    relative = path.relative_to(CONFIGS).as_posix()
    return next((reader for prefix, reader in READERS.items() if relative.startswith(prefix)), None)


def test_there_are_configurations() -> None:
    assert {"quickstart.yaml", "collect/expert.yaml", "sft/tiny.yaml", "accelerate/cpu.yaml"} <= {
        path.relative_to(CONFIGS).as_posix() for path in FILES
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(CONFIGS).as_posix())
def test_every_shipped_configuration_is_read_by_its_class(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "a key, so that a missing one is not what fails")
    reader = reader_of(path)
    assert reader is not None, f"nothing reads {path}; add its reader to READERS"
    reader(path)


def test_the_paper_s_collection_is_the_paper_s() -> None:
    from trajectories.collect import CollectConfig

    config = load_config(CollectConfig, CONFIGS / "collect/paper.yaml")
    assert config.tasks == ["passbench:train"] and config.num_attempts == 2 and config.limits.max_turns == 50
    assert config.max_tasks is None and config.final_protocol == "strict"


def test_a_shipped_configuration_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trajectories.collect import CollectConfig

    monkeypatch.chdir(tmp_path)
    assert load_config(CollectConfig, Path("configs/collect/expert.yaml")).policy["kind"] == "expert"


def test_an_unknown_key_of_a_stage_is_named_with_its_place() -> None:
    from scripts.quickstart_config import QuickstartConfig

    with pytest.raises(UserError, match=r"unknown key 'collect\.num_worker'; did you mean 'collect\.num_workers'\?"):
        load_config(QuickstartConfig, CONFIGS / "quickstart.yaml", ["collect.num_worker=1"])
