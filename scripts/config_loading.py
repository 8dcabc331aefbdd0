"""YAML file + dotted overrides -> a checked pydantic model, and the run record that lies beside every output.

OmegaConf merges (it reads 1e-4 as a float, which PyYAML does not); pydantic with extra="forbid" checks. Every mistake
of the user is one UserError naming the file or override, the key and the cure. Environment variables are never read.
"""

from __future__ import annotations

import datetime
import difflib
import hashlib
import json
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError

from eval_harness.errors import UserError
from scripts.machine import describe_machine, library_versions

RUN_RECORD_FILE = "run_record.json"
RUN_RECORD_VERSION = 1

SHIPPED_ROOT = Path(__file__).resolve().parent.parent
"""Where configs/ lies: the repository, or site-packages of an installed wheel."""

ConfigT = TypeVar("ConfigT", bound=BaseModel)


def load_config(model_cls: type[ConfigT], path: Path | str | None, overrides: Sequence[str] = ()) -> ConfigT:
    """The model of YAML file `path` (None: all defaults) with `key.sub=value` overrides on top. Raises UserError."""
    merged = OmegaConf.create({}) if path is None else _read_yaml(Path(path))
    try:
        for override in overrides:
            merged = OmegaConf.merge(merged, _read_override(override))
        values = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{_origin(path, overrides)}: {reason}; correct that value") from None
    try:
        return model_cls.model_validate(values)
    except ValidationError as error:
        raise UserError(_explain(error, model_cls, path, overrides)) from None


def configured_kind(path: Path | None, key: str) -> str | None:
    """The kind that a YAML file gives the mapping `key`, before it is checked; None where it gives none."""
    found = None if path is None else OmegaConf.select(_read_yaml(Path(path)), key)
    return found.get("kind") if found is not None and OmegaConf.is_dict(found) else None


def find_shipped(path: Path) -> Path:
    """path, or the shipped file of that name when the command is given in another folder than the repository."""
    is_elsewhere = not path.exists() and path.parts[:1] == ("configs",)
    return SHIPPED_ROOT / path if is_elsewhere else path


def config_hash(config: BaseModel) -> str:
    """sha256 over the resolved values: a resume with another configuration is refused by it."""
    return hashlib.sha256(json.dumps(config.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def hash_input(path: Path) -> str:
    """sha256 of a file, or of the relative paths and contents of a folder's files."""
    digest = hashlib.sha256()
    if path.is_file():
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder; correct the path")
    for file in sorted(item for item in path.rglob("*") if item.is_file() and "__pycache__" not in item.parts):
        digest.update(f"{file.relative_to(path).as_posix()}\n{hash_input(file)}\n".encode())
    return digest.hexdigest()


def write_run_record(out_dir: Path, config: BaseModel, inputs: Mapping[str, Path] | None = None) -> Path:
    """Write resolved configuration, versions, machine and input hashes to out_dir/run_record.json; returns its path."""
    record = {
        "schema_version": RUN_RECORD_VERSION,
        "written_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "config_class": f"{type(config).__module__}.{type(config).__qualname__}",
        "config": config.model_dump(mode="json"),
        "config_hash": config_hash(config),
        "inputs": {name: {"path": str(path), "sha256": hash_input(path)} for name, path in (inputs or {}).items()},
        "versions": library_versions(),
        "machine": describe_machine(),
    }
    out_dir.mkdir(parents=True, exist_ok=True)
    target = out_dir / RUN_RECORD_FILE
    # replaced whole, so that a full disk or a kill leaves the old record and not half of a new one
    partial = target.with_suffix(".json.partial")
    partial.write_text(json.dumps(record, indent=2) + "\n")
    partial.replace(target)
    return target


def refuse_other_config(out_dir: Path, config: BaseModel) -> None:
    """Raise UserError if out_dir holds the run record of another configuration."""
    path = out_dir / RUN_RECORD_FILE
    if not path.exists():
        return
    try:
        recorded = json.loads(path.read_text())
        old_hash, old_config = recorded["config_hash"], recorded["config"]
    except (json.JSONDecodeError, KeyError, TypeError):
        raise UserError(f"{path}: not a run record; choose another --out or remove that folder") from None
    if old_hash == config_hash(config):
        return
    new_config = config.model_dump(mode="json")
    changed = sorted(key for key in {*old_config, *new_config} if old_config.get(key) != new_config.get(key))
    raise UserError(
        f"{path}: made with another configuration ({', '.join(changed) or 'other fields'} differ); "
        "use that configuration, --no-resume or another --out"
    )


def _read_yaml(path: Path) -> Any:
    path = find_shipped(path)
    if not path.is_file():
        raise UserError(f"{path}: no such configuration file; {_nearest_file(path)}")
    try:
        loaded = OmegaConf.load(path)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise UserError(f"{path}{where}: not YAML ({reason}); correct that line") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text; give a YAML file") from None
    except (OSError, OmegaConfBaseException) as error:
        raise UserError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())})") from None
    if not OmegaConf.is_dict(loaded):
        raise UserError(f"{path}: expected `key: value` lines at the top level")
    return loaded


def _read_override(override: str) -> Any:
    key, equals, _ = override.partition("=")
    if not equals or not key or key.startswith("-"):
        raise UserError(f"{override!r}: not an override; write key=value, for example {key.lstrip('-') or 'key'}=1")
    try:
        return OmegaConf.from_dotlist([override])
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"{override!r}: the value is not YAML ({' '.join(str(error).split())}); quote it") from None


def _nearest_file(path: Path) -> str:
    """The cure for a path that is not there: a neighbour of like name, or the folder's YAML files."""
    names = sorted(item.name for item in path.parent.glob("*.y*ml")) if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.5)
    if near:
        return f"did you mean {path.parent / near[0]}?"
    return f"{path.parent} holds {', '.join(names)}" if names else "correct --config"


def _origin(path: Path | str | None, overrides: Sequence[str]) -> str:
    return str(path) if path is not None else (" ".join(overrides) or "the configuration")


def _explain(
    error: ValidationError, model_cls: type[BaseModel], path: Path | str | None, overrides: Sequence[str]
) -> str:
    """One line for the first mistake, unknown keys first: they are often the cause of the others."""
    details = sorted(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
    first = details[0]
    key = ".".join(str(part) for part in first["loc"])
    source = next((text for text in overrides if _touches(text.partition("=")[0], key)), None)
    where = f"override {source!r}" if source is not None else _origin(path, overrides)
    more = f" ({len(details) - 1} more after this one)" if len(details) > 1 else ""
    if first["type"] == "extra_forbidden":
        return f"{where}: unknown key {key!r}; {_suggest(key, model_cls)}{more}"
    if first["type"] == "missing":
        return f"{where}: the key {key!r} is required; add it{more}"
    reason = first["msg"].removeprefix("Value error, ")
    given = "" if isinstance(first["input"], dict) else f" = {first['input']!r}"
    subject = f"{key}{given}: " if key else ""
    return " ".join(f"{where}: {subject}{reason}{more}".split())


def _touches(override_key: str, key: str) -> bool:
    return key == override_key or key.startswith(f"{override_key}.") or override_key.startswith(f"{key}.")


def _suggest(key: str, model_cls: type[BaseModel]) -> str:
    valid = list(_dotted_keys(model_cls))
    last = key.rpartition(".")[2]
    # the same name elsewhere in the tree: a key put one level too high or too low
    misplaced = [name for name in valid if name.rpartition(".")[2] == last]
    near = misplaced or difflib.get_close_matches(key, valid, n=1, cutoff=0.5)
    if not near:
        by_last = {name.rpartition(".")[2]: name for name in valid}
        near = [by_last[name] for name in difflib.get_close_matches(last, by_last, n=1, cutoff=0.5)]
    return f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(valid)}"


def _dotted_keys(model_cls: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model_cls.model_fields.items():
        yield prefix + name
        for nested in _models_in(field.annotation):
            yield from _dotted_keys(nested, f"{prefix}{name}.")


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Pydantic models directly in a field's annotation or in its union; not those in lists."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        for argument in typing.get_args(annotation):
            yield from _models_in(argument)
