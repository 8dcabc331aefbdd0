"""load_config: what is merged, and that each kind of mistake is one line that names the file, the key and the cure."""

import json
import os
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from eval_harness.errors import UserError
from scripts.config_loading import (
    RUN_RECORD_FILE,
    config_hash,
    hash_input,
    load_config,
    refuse_other_config,
    write_run_record,
)


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    learning_rate: float = Field(default=1.0, gt=0)
    num_epochs: int = 1


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = "tiny"
    inner: Inner = Inner()
    trainer: dict[str, object] = {}
    tasks: list[str] = []


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def one_line(error: pytest.ExceptionInfo[UserError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_overrides_go_on_top_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "name: small\ninner:\n  learning_rate: 1e-4\n  num_epochs: 3\ntasks: [a, b]\n")
    config = load_config(Outer, path, ["inner.num_epochs=5", "trainer.warmup_steps=7", "tasks=[c]"])
    # 1e-4 without a dot is a text to PyYAML and a number to users
    assert config == Outer(
        name="small",
        inner=Inner(learning_rate=1e-4, num_epochs=5),
        trainer={"warmup_steps": 7},
        tasks=["c"],
    )


def test_no_file_gives_the_defaults() -> None:
    assert load_config(Outer, None) == Outer()
    assert load_config(Outer, None, ["trainer.lr=1e-4"]).trainer == {"lr": 1e-4}


@pytest.mark.parametrize(
    ("text", "overrides", "words"),
    [
        ("nmae: x\n", [], ["config.yaml", "'nmae'", "did you mean 'name'?"]),
        ("inner:\n  learning_rat: 1\n", [], ["config.yaml", "'inner.learning_rat'", "'inner.learning_rate'"]),
        # a key put one level too high is answered with where it belongs
        ("learning_rate: 1\n", [], ["config.yaml", "'learning_rate'", "'inner.learning_rate'"]),
        ("name: x\n", ["inner.num_epoch=3"], ["override 'inner.num_epoch=3'", "'inner.num_epochs'"]),
        ("zzz: 1\n", [], ["'zzz'", "valid keys: name, inner, inner.learning_rate"]),
        ("inner:\n  learning_rate: -1\n", [], ["config.yaml", "inner.learning_rate = -1", "greater than 0"]),
        ("inner:\n  num_epochs: many\n", [], ["config.yaml", "inner.num_epochs = 'many'", "integer"]),
        ("name: x\n", ["inner.learning_rate=0"], ["override 'inner.learning_rate=0'", "greater than 0"]),
        ("name: [x\n", [], ["config.yaml:2:1", "not YAML"]),
        ("- a\n- b\n", [], ["config.yaml", "key: value"]),
        ("name: ${other}\n", [], ["config.yaml", "other"]),
        ("name: ???\n", [], ["config.yaml", "name"]),
        ("name: x\n", ["num_epochs"], ["'num_epochs'", "key=value"]),
        ("name: x\n", ["--num-epochs=3"], ["'--num-epochs=3'", "key=value"]),
        ("name: x\n", ["tasks=[a"], ["tasks=[a"]),
    ],
)
def test_a_mistake_is_one_line_with_its_cure(
    tmp_path: Path, text: str, overrides: list[str], words: list[str]
) -> None:
    with pytest.raises(UserError) as error:
        load_config(Outer, write(tmp_path, text), overrides)
    line = one_line(error)
    assert all(word in line for word in words), line


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    write(tmp_path, "")
    with pytest.raises(UserError, match=r"confg\.yaml: no such configuration file; did you mean .*config\.yaml\?"):
        load_config(Outer, tmp_path / "confg.yaml")


def test_environment_variables_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("name", "NAME", "PASSWRIGHT_NAME", "OUTER_NAME", "inner__num_epochs"):
        monkeypatch.setitem(os.environ, name, "9")
    assert load_config(Outer, write(tmp_path, "")) == Outer()


def test_the_hash_is_of_the_resolved_values(tmp_path: Path) -> None:
    from_file = load_config(Outer, write(tmp_path, "inner:\n  num_epochs: 4\n"))
    assert config_hash(from_file) == config_hash(load_config(Outer, None, ["inner.num_epochs=4"]))
    assert config_hash(from_file) != config_hash(Outer())


def test_the_run_record_holds_what_a_rerun_needs(tmp_path: Path) -> None:
    source = tmp_path / "tasks"
    source.mkdir()
    (source / "a.txt").write_text("one")
    before = hash_input(source)
    record = json.loads(write_run_record(tmp_path / "run", Outer(name="x"), {"tasks": source}).read_text())
    assert record["config"]["name"] == "x"
    assert record["config_hash"] == config_hash(Outer(name="x"))
    assert record["inputs"]["tasks"]["sha256"] == before
    assert {"python", "torch"} <= set(record["versions"])
    assert record["machine"]["num_cores"] >= 1
    (source / "a.txt").write_text("two")
    assert hash_input(source) != before


def test_a_resume_with_another_configuration_is_refused(tmp_path: Path) -> None:
    refuse_other_config(tmp_path, Outer())  # nothing there yet
    write_run_record(tmp_path, Outer())
    refuse_other_config(tmp_path, Outer())
    with pytest.raises(UserError, match=r"run_record\.json: made with another .*\(name differ\).*--no-resume"):
        refuse_other_config(tmp_path, Outer(name="other"))
    (tmp_path / RUN_RECORD_FILE).write_text("{")
    with pytest.raises(UserError, match="not a run record"):
        refuse_other_config(tmp_path, Outer())
