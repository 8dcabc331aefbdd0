"""GRPO's parts: configuration, plan, presets, shared GPUs, state, logs, groups. Whole runs: test_grpo_runs.py."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from eval_harness.errors import UserError
from eval_harness.judge.device_lock import exclusive_use
from scripts.cli import main
from tests.canned_evaluator import CannedEvaluator, make_task
from tests.grpo_runs import FailingEvaluator, write_run
from tests.rollout_helpers import answer_ids, attempt, build_rollout_tokenizer
from training.difficulty_pools import DifficultyPools, GroupResult
from training.generation import GenerationRequest, ScriptedEngine
from training.grpo_alarms import Alarms
from training.grpo_config import GrpoRunConfig, make_grpo_arguments
from training.grpo_evaluator import LocalRank, LockedEngine, check_sharing, devices_of
from training.grpo_groups import GroupRunner, advantages_by_turn
from training.grpo_plan import make_plan
from training.grpo_settings import EvaluatorSettings
from training.grpo_state import GrpoState, RolloutLog, forget_trajectories
from training.grpo_trainer import columns_of
from training.model_shape import load_architecture, shape_of
from training.sft_launch import LaunchFacts
from training.trl_rollout import check_trl_version
from trajectories.store import TrajectoryStore

TRAINER = {"max_steps": 3, "use_cpu": True, "bf16": False}


def _config(**changed):
    values = {"student": {"name_or_path": "student"}, "tasks": {"train": ["mini:train"]}} | changed
    return GrpoRunConfig.model_validate(values | {"trainer": TRAINER | changed.get("trainer", {})})


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        ({"num_generations": 4}, r"trainer\.num_generations: set by this program; instead set group_size"),
        ({"temperature": 0.5}, r"trainer\.temperature: .* sampling\.temperature"),
        ({"learning_rat": 1e-5}, r"trainer\.learning_rat: .* did you mean learning_rate\?"),
        ({"max_steps": 0}, r"trainer\.max_steps: missing"),
        ({"vllm_enable_sleep_mode": True}, r"vllm_enable_sleep_mode: would push the weights anew every turn"),
        ({"vllm_importance_sampling_clip_max": None}, r"^trainer: .* correct that field of trl\.GRPOConfig"),
    ],
)
def test_a_key_that_is_set_elsewhere_or_unknown_is_refused(trainer, message):
    with pytest.raises(UserError, match=message):
        make_grpo_arguments(_config(trainer=trainer))


def test_attempts_of_a_group_must_be_able_to_differ():
    for sampling, message in ({"temperature": 0.0}, "temperature"), ({"max_new_tokens": 9}, r"rollout\.max_new_tokens"):
        with pytest.raises(ValueError, match=message):
            _config(sampling={"temperature": 1.0} | sampling)
    with pytest.raises(UserError, match="never used for a reward"):
        _config(evaluator={"protocol": "passnet"}).check()


def test_presets_set_trl_s_fields_and_the_configuration_goes_over_them():
    fields = ("loss_type", "importance_sampling_level", "epsilon", "epsilon_high", "beta", "scale_rewards")
    found = {}
    for loss in ("dapo", "dr_grpo", "gspo"):
        args = make_grpo_arguments(_config(loss=loss), planned=False)
        found[loss] = tuple(getattr(args, field) for field in fields)
        assert args.vllm_importance_sampling_mode == "token_truncate" and args.ddp_timeout == 7200
        assert args.vllm_enable_sleep_mode is False and args.num_generations == 8
    assert found == {
        "dapo": ("dapo", "token", 0.2, 0.28, 0.0, "group"),
        "dr_grpo": ("dr_grpo", "token", 0.2, None, 0.0, "none"),
        "gspo": ("grpo", "sequence", 3e-4, 4e-4, 0.0, "group"),
    }
    assert make_grpo_arguments(_config(trainer={"beta": 0.04}), planned=False).beta == 0.04


def test_another_trl_is_refused_with_the_cure():
    check_trl_version("1.16.3")
    with pytest.raises(UserError, match=r"trl 1\.17\.0: .* pip install 'trl==1\.16\.0'"):
        check_trl_version("1.17.0")


def _plan(config, launch=None, **more):
    args = make_grpo_arguments(config, planned=False)
    shape = shape_of(load_architecture("smollm2-135m"))
    return make_plan(config, args, launch or LaunchFacts(on_cpu=True), shape, prompt_tokens=1000, **more)


def test_the_plan_says_what_a_lot_takes_and_follows_the_launch():
    config = _config(
        groups=8,
        group_size=8,
        updates_per_rollout=2,
        limits={"max_turns": 8, "max_evaluations": 3},
        rollout={"max_completion_tokens": 3000},
        evaluator={"devices": ["cuda:4", "cuda:5"], "assumed_evaluation_s": 4.0},
        trainer={"per_device_train_batch_size": 2, "save_steps": 2},
    )
    plan = _plan(config, LaunchFacts(num_processes=4))
    assert (plan.rollouts, plan.own_rollouts, plan.evaluations) == (64, 16, 192)
    decided = plan.decided()
    assert (decided["steps_per_generation"], decided["gradient_accumulation_steps"]) == (8, 4)
    text = "\n".join(plan.describe())
    assert "evaluations: 192 a lot at most" in text and "2 judge place(s); at 4 s each 384 s at most" in text
    assert "tokens: 256,000 a lot at most" in text and "never" not in text
    for changed, message in (
        ({"groups": 6}, "groups=6: each of 4 processes gets whole groups; give a multiple of 4"),
        ({"updates_per_rollout": 5}, "updates_per_rollout=5: 16 rollouts a process"),
        ({"trainer": {"save_steps": 3}}, r"save_steps=3: a lot of rollouts lasts 2 steps"),
        ({"trainer": {"per_device_train_batch_size": 3}}, "give a divisor of 8"),
        ({"rollout": {"max_completion_tokens": 9000}}, "beyond the model's 8192 positions"),
    ):
        trainer = config.trainer | changed.pop("trainer", {})
        values = config.model_dump(exclude_unset=True) | changed | {"trainer": trainer}
        with pytest.raises(UserError, match=message):
            _plan(GrpoRunConfig.model_validate(values), LaunchFacts(num_processes=4))


def test_memory_counts_vllm_and_the_reference_model_and_chooses_micro_batches():
    trainer = {"use_vllm": True, "vllm_gpu_memory_utilization": 0.5, "beta": 0.1}
    config = _config(trainer=trainer, rollout={"max_completion_tokens": 4000})
    launch = LaunchFacts()
    large, middle, small = (_plan(config, launch, device_memory_gib=gib) for gib in (140.0, 48.0, 20.0))
    assert large.vllm_gib == 70.0 and large.reference_gib == pytest.approx(0.25, abs=0.02)
    assert large.micro_batch > middle.micro_batch and not middle.checkpoints_layers and small.checkpoints_layers
    assert large.decided()["vllm_max_model_length"] == 5056  # 5000 in whole blocks
    with pytest.raises(UserError, match=r"vLLM 4, .* lower trainer\.vllm_gpu_memory_utilization"):
        _plan(config, launch, device_memory_gib=8.0).refuse_misfit()


def test_judges_on_a_gpu_that_trains_are_refused_unless_they_take_turns(caplog):
    ranks = [LocalRank(index, 2, index) for index in range(2)]
    assert not check_sharing(EvaluatorSettings(devices=["cuda:2", "cuda:3"]), ranks)
    assert not check_sharing(EvaluatorSettings(devices=["cuda:0"], executor={"kind": "ray"}), ranks)
    with pytest.raises(UserError, match=r"evaluator\.devices: cuda:1 also trains .* evaluator\.shared_gpu=lock"):
        check_sharing(EvaluatorSettings(devices=["cuda:1", "cuda:2"]), ranks)
    assert check_sharing(EvaluatorSettings(devices=["cuda:0"], shared_gpu="lock"), ranks)
    assert "take turns" in caplog.text
    three = EvaluatorSettings(devices=["cuda:2", "cuda:3", "cuda:4"])
    assert [devices_of(three, rank) for rank in ranks] == [["cuda:2", "cuda:4"], ["cuda:3"]]
    one = EvaluatorSettings(devices=["cpu"])
    assert [devices_of(one, rank) for rank in ranks] == [["cpu"], ["cpu"]]


def test_an_engine_that_shares_its_gpu_lets_a_judge_in_between_its_steps():
    """The judge gets the device long before the generation is over, and nothing is generated meanwhile."""
    engine = ScriptedEngine(lambda request: [1] * 400, tokens_per_step=1, step_s=0.005)
    locked = LockedEngine(engine, "cpu")
    alone: list[bool] = []
    asked = threading.Event()

    def judge() -> None:
        asked.set()
        with exclusive_use("cpu"):
            before = engine.num_steps
            time.sleep(0.1)
            alone.append(engine.num_steps == before)

    locked.submit(GenerationRequest("a", [1], 400))
    locked.step()
    thread = threading.Thread(target=judge)
    thread.start()
    asked.wait()
    while not locked.step():
        if alone:
            break
    assert alone == [True] and engine.num_steps < 200
    locked.cancel("a")
    with exclusive_use("cpu") as waited_s:
        assert waited_s < 10.0
    thread.join()
    locked.close()


def test_the_state_of_a_checkpoint_brings_pools_alarms_and_totals_back(tmp_path):
    def new():
        return GrpoState(DifficultyPools(["a", "b", "c"], seed=1), Alarms())

    state = new()
    state.pools.update([GroupResult("a", 0, (0.0, 1.0)), GroupResult("b", 0, (1.0, 1.0))])
    state.alarms.check(1, {"rollouts/num": 4, "rollouts/num_infrastructure": 2, "template/drift_share": 1.0})
    state.add({"rollouts/num": 4.0, "groups/num": 2.0, "groups/dead_share": 0.5, "seconds/rollout": 1.5})
    state.save(tmp_path / "checkpoint-1")
    again = new()
    again.load(tmp_path / "checkpoint-1")
    assert again.pools.counts() == {"fresh": 1, "live": 1, "hard": 0, "solved": 1}
    assert again.pools.draw(6, step=5) == state.pools.draw(6, step=5)
    assert again.alarms.active == state.alarms.active == ["infrastructure", "template_drift"]
    assert again.totals["num_rollouts"] == 4 and again.totals["num_dead_groups"] == 1
    (tmp_path / "checkpoint-1" / "passwright_grpo.json").write_text('{"version": 9}')
    with pytest.raises(UserError, match="version 9"):
        new().load(tmp_path / "checkpoint-1")


def test_what_came_after_the_checkpoint_is_forgotten(tmp_path):
    log = RolloutLog(tmp_path / "rollouts.jsonl")
    log.append({"step": step, "reward": None} for step in (0, 0, 1, 2))
    with log.path.open("a") as stream:
        stream.write('{"step": 1, "rew')  # a kill in the middle of a line
    log.forget_from(1)
    assert [json.loads(line)["step"] for line in log.path.read_text().splitlines()] == [0, 0]
    folder = tmp_path / "store" / "trajectories"
    folder.mkdir(parents=True)
    for name in ("step00000.0.0.00-a.json", "step00001.0.0.00-a.json", "step00012.x.turns.jsonl", "other.json"):
        (folder / name).write_text("{}")
    assert forget_trajectories(tmp_path / "store", 1) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["other.json", "step00000.0.0.00-a.json"]


def _runner(config, evaluator, store=None):
    tasks = {name: make_task(name) for name in ("a", "b", "c")}
    tokenizer = build_rollout_tokenizer()
    pools = DifficultyPools(list(tasks), config.pools, seed=0)
    runner = GroupRunner(config, tasks, pools, evaluator=evaluator, protocol=config.evaluator.load_protocol(),
                         tokenizer=tokenizer, store=store, gather=list, num_places=1)  # fmt: skip
    return runner, tokenizer, pools


def _engine(tokenizer, marks_of):
    turns: dict[str, int] = {}

    def answer(request):
        turn = turns[request.key] = turns.get(request.key, -1) + 1
        messages = attempt(*marks_of(request.key))
        return answer_ids(tokenizer, messages[turn] if turn < len(messages) else "Done.")

    return ScriptedEngine(answer)


def test_dead_groups_are_run_anew_on_other_tasks_and_counted(tmp_path):
    config = _config(groups=1, group_size=2, limits={"max_turns": 3}, max_resamples=2)
    store = TrajectoryStore(tmp_path)
    store.open_for_writing({"name": "x"})
    evaluator = CannedEvaluator()
    runner, tokenizer, pools = _runner(config, evaluator, store)
    # the first lot is alike; of the second one attempt is better
    engine = _engine(tokenizer, lambda key: ["as=1.5"] if ".again1.01-" in key else ["wrong"])
    made = runner.run(engine, 1, step=0)
    (group,) = made.groups
    assert [member.reward.total for member in group.members] == sorted(m.reward.total for m in group.members)
    assert not group.result.is_dead and ".again1." in group.members[0].rollout.request.key
    assert made.figures["groups/num"] == 2 and made.figures["groups/resampled"] == 1
    assert made.figures["groups/dead_share"] == 0.5 and made.figures["rollouts/num"] == 4
    assert made.figures["template/drift_share"] == 0
    assert sorted(pools.counts().items()) == [("fresh", 1), ("hard", 1), ("live", 1), ("solved", 0)]
    assert len({row["task_id"] for row in made.rows}) == 2 and len(made.rows) == 4
    assert len(store.record_paths()) == 4
    # two attempts of the first group wrote the same folder: it was judged once
    assert len(evaluator.submitted) == 3
    store.close()


def test_a_judge_that_dies_or_hangs_costs_attempts_and_nothing_else():
    config = _config(groups=3, group_size=3, limits={"max_turns": 2}, max_resamples=0,
                     rollout={"wall_limit_s": 1.0}, evaluator={"share_repeats": False})  # fmt: skip
    runner, tokenizer, _ = _runner(config, FailingEvaluator())
    engine = _engine(tokenizer, lambda key: ["as=1.5" if ".01-" in key else "as=1.2"])
    started = time.monotonic()
    made = runner.run(engine, 3, step=0)
    assert time.monotonic() - started < 30
    rewards = [member.reward.total for group in made.groups for member in group.members]
    assert len(rewards) == 9 and rewards.count(None) == 4  # three failed, one hung
    assert made.figures["rollouts/num_infrastructure"] == 4
    columns = columns_of(made.groups, config)
    assert columns.rewards == rewards and len(columns.completion_ids) == 9


def test_turn_level_credit_has_an_advantage_for_each_turn():
    config = _config(groups=1, group_size=2, limits={"max_turns": 3}, credit={"mode": "turn", "scale": "none"})
    runner, tokenizer, _ = _runner(config, CannedEvaluator())
    engine = _engine(tokenizer, lambda key: ["as=1.2", "as=1.8"] if ".00-" in key else ["as=1.2"])
    (group,) = runner.run(engine, 1, step=0).groups
    first, second = advantages_by_turn(group, config)
    assert len(first) == 3 and len(second) == 2
    assert first[0] > 0 > second[0] and first[1] > 0 and abs(first[0] + second[0]) < 1e-9
    columns = columns_of([group], config)
    assert columns.turn_advantages == [first, second]
    assert [len(spans) for spans in columns.turns] == [3, 2]


def test_the_dry_run_prints_evaluations_and_seconds_and_refuses_mixed_splits(tmp_path, capsys):
    path = write_run(tmp_path, evaluator={"assumed_evaluation_s": 5.0})
    assert main(["train", "grpo", "--config", str(path), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "rollouts: 4 = 2 groups of 2, 4 a process" in text and "evaluations: 12 a lot at most" in text
    assert "at 5 s each 60 s at most" in text and "scripts.train_grpo" in text
    assert not (tmp_path / "run").exists()
    both = f"tasks.held_out=[{tmp_path / 'train.parquet'}]"
    assert main(["train", "grpo", "--config", str(path), both, "--dry-run"]) == 2
    assert "tasks.held_out: a is trained on too" in capsys.readouterr().err


def test_every_shipped_grpo_configuration_says_where_it_judges():
    from scripts.config_loading import load_config

    for path in sorted(Path("configs/grpo").glob("*.yaml")):
        config = load_config(GrpoRunConfig, path)
        config.check()
        assert config.name == path.stem and config.evaluator.shared_gpu == "refuse"
    pair = [load_config(GrpoRunConfig, Path(f"configs/grpo/{name}.yaml")) for name in ("covered", "es_t")]
    first, second = (config.model_dump(exclude={"name", "reward"}) for config in pair)
    assert first == second and [config.reward.preset for config in pair] == ["covered", "es_t"]
