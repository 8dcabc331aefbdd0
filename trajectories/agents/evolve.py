"""EvolveAgent: evolutionary search over pass folders (robust-kbench, Algorithm 1; BIEvolve's Evolve Agent by context).

    translate (until something is correct) -> generations: propose N -> rules and votes -> judge N* -> archive

The archive is in the record, so a resume goes on inside a generation and the viewer shows where each candidate is from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajectories.agents import AttemptSetup
from trajectories.agents.archive import Archive, ArchiveEntry, choose_context, is_correct
from trajectories.agents.evolve_config import EvolveConfig
from trajectories.agents.requests import REQUEST_VERSION, render_request
from trajectories.agents.screening import BatchInvarianceAdapter, ask_verifiers, check_statically, rank
from trajectories.agents.search_agent import SearchAgent
from trajectories.agents.search_attempt import SearchAttempt, SearchEnded
from trajectories.agents.search_text import render_files
from trajectories.record import StopReason

EvolveAgentConfig = EvolveConfig
_FAILURE_CHARS = 300


class EvolveAgent(SearchAgent):
    """Thread-safe; see Agent."""

    def __init__(self, config: EvolveConfig, setup: AttemptSetup) -> None:
        super().__init__(setup)
        self.config = config
        self.policy_overrides = config.ensemble
        self.num_policies = len(config.ensemble)

    def search(self, attempt: SearchAttempt) -> None:
        _Evolution(self.config, attempt).run()

    def describe(self) -> dict[str, Any]:
        settings = self.config.model_dump(mode="json")
        return {"kind": "evolve", "request_version": REQUEST_VERSION, **settings}


class _Evolution:
    """One attempt's search."""

    def __init__(self, config: EvolveConfig, attempt: SearchAttempt) -> None:
        self.config, self.attempt = config, attempt
        self.archive = Archive(attempt.trajectory)
        self.adapter = BatchInvarianceAdapter(attempt.task, attempt.setup.protocol)

    def run(self) -> None:
        """Raises SearchEnded at a limit, PolicyError, HarnessError."""
        self._translate()
        for generation in range(1, self.config.generations + 1):
            self._evolve(generation)

    # ---- translation

    def _translate(self) -> None:
        """Ask for something correct, each time with what was wrong with the last try."""
        failed: dict[str, Any] | None = None
        start: Mapping[str, str] | None = None
        for _ in range(self.config.translation_rounds):
            files = self.attempt.write(render_request("translate", failed=failed), start=start)
            if files is None:
                continue
            entry = self._entered(files, generation=0, parents=[failed["id"]] if failed else [])
            self._judge([entry])
            verdict = self.archive.verdict(entry)
            if verdict is not None and is_correct(verdict):
                return
            start = dict(files)
            failed = {"id": entry.id, "files": render_files(files), "why": self._why(entry)}

    def _why(self, entry: ArchiveEntry) -> str:
        """What was wrong, in a model's words if so configured."""
        told = self._told(entry, self.config.feedback_chars)
        if not self.config.summarise_errors:
            return told
        files = render_files(self.archive.files(entry))
        return self.attempt.say(render_request("summarise", files=files, feedback=told)).strip() or told

    # ---- generations

    def _evolve(self, generation: int) -> None:
        proposals: list[ArchiveEntry] = []
        try:
            for number in range(self.config.num_proposals):
                if (entry := self._propose(generation, number)) is not None:
                    proposals.append(entry)
        except SearchEnded as ended:
            if ended.reason is not StopReason.BUDGET_LIMIT:  # a resume goes on there; elsewhere they are paid for
                self._judge([entry for entry in proposals if not entry.stage][: self.config.num_evaluated])
            raise
        waiting = [entry for entry in proposals if not entry.stage]
        if self.config.verifier is not None and len(waiting) > self.config.num_evaluated:
            for entry in waiting:
                entry.votes = ask_verifiers(self.attempt, entry.files, self.config.verifier)
            waiting.sort(key=lambda entry: rank(entry.votes), reverse=True)  # stable: equals stay in their order
        for place, entry in enumerate(waiting[self.config.num_evaluated :], start=self.config.num_evaluated + 1):
            entry.stage, entry.rejected = "ranked", f"place {place} of {len(waiting)}"
        self._judge(waiting[: self.config.num_evaluated])

    def _propose(self, generation: int, number: int) -> ArchiveEntry | None:
        config, rng = self.config, self.attempt.rng(generation, number)
        member = rng.randrange(len(config.ensemble))
        recommendation = rng.choice(config.recommendations) if config.recommendations else ""
        chosen = choose_context(self.archive, config.context, config.context_size, rng, num_recent=config.num_recent)
        parents = self._fitting(chosen)
        request = render_request(
            "improve",
            recommendation=recommendation,
            candidates=[self._shown(entry) for entry in parents],
            failures=[f"{entry.id}: {self._told(entry, _FAILURE_CHARS)}" for entry in self._failures()],
        )
        start = self.archive.files(parents[-1]) if parents else None
        files = self.attempt.write(request, member=member, start=start)
        if files is None:
            return None
        return self._entered(
            files,
            generation=generation,
            member=member,
            parents=[entry.id for entry in parents],
            recommendation=recommendation,
        )

    def _fitting(self, chosen: Sequence[ArchiveEntry]) -> list[ArchiveEntry]:
        """The fastest of them that fit a request's length; the fastest always."""
        kept: list[ArchiveEntry] = []
        room = self.config.max_context_chars
        for entry in reversed(chosen):
            room -= len(render_files(self.archive.files(entry)))
            if room < 0 and kept:
                break
            kept.insert(0, entry)
        return kept

    def _failures(self) -> list[ArchiveEntry]:
        return self.archive.failures(self.config.num_failures)

    def _shown(self, entry: ArchiveEntry) -> dict[str, Any]:
        assert entry.evaluation is not None
        covered, score = self.archive.score(entry)
        return {
            "id": entry.id,
            "score": f"AS {score:.3f}, covered {covered:.3f}",
            "files": render_files(self.archive.files(entry)),
            "feedback": self.attempt.feedback(entry.evaluation, self.config.feedback_chars),
        }

    # ---- both

    def _entered(self, files: Mapping[str, str], **fields: Any) -> ArchiveEntry:
        """A new entry, rejected already if rules or an equal candidate say so."""
        entry = self.archive.add(turn=self.attempt.turn, files=dict(files), **fields)
        equal = next((e for e in self.archive.entries[:-1] if dict(self.archive.files(e)) == entry.files), None)
        if equal is not None:
            entry.stage, entry.rejected = "duplicate", f"the same files as candidate {equal.id}"
        else:
            stage, why = check_statically(files, self.adapter, self.attempt.setup.protocol)
            entry.stage, entry.rejected = stage, why
        self.archive.save()
        return entry

    def _judge(self, entries: Sequence[ArchiveEntry]) -> None:
        waiting = [entry for entry in entries if not entry.stage]
        try:
            found = self.attempt.evaluate([(entry.files, entry.turn) for entry in waiting])
            for entry, index in zip(waiting, found, strict=True):
                if isinstance(index, int):
                    entry.evaluation, entry.files = index, {}
                else:
                    entry.stage, entry.rejected = "budget", index
        finally:
            self.archive.save()
        self.attempt.keep()

    def _told(self, entry: ArchiveEntry, max_chars: int) -> str:
        """What is known against a candidate."""
        if entry.evaluation is None:
            return entry.rejected[:max_chars]
        return self.attempt.feedback(entry.evaluation, max(max_chars, 200))
