"""What became of the passes in a model: sites applied and left alone, overlaps, rules that match nowhere; as text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class SiteReport:
    """One place where a rule matched."""

    graph: int
    """Number of the captured graph, in the order of compilation."""
    folder: str
    rule: str
    nodes: list[str]
    reason: str
    """Why it was left as it was; empty where it was replaced."""


@dataclass
class ApplyReport:
    """Of one backend, over all graphs that it was given."""

    rules: list[tuple[str, str]] = field(default_factory=list)
    """(folder, rule), in the order in which they are tried."""
    num_graphs: int = 0
    num_nodes: int = 0
    """Calls in all graphs."""
    sites: list[SiteReport] = field(default_factory=list)
    overlaps: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(folder, rule) -> matches that an earlier rule had taken."""
    misses: dict[tuple[str, str], str] = field(default_factory=dict)
    """(folder, rule) that matched nowhere -> the nearest miss."""
    left: list[str] = field(default_factory=list)
    """Why whole graphs were left as they were."""

    @property
    def num_applied(self) -> int:
        return sum(not site.reason for site in self.sites)

    @property
    def num_replaced_nodes(self) -> int:
        return sum(len(site.nodes) for site in self.sites if not site.reason)

    def render(self) -> str:
        """For a reader."""
        lines = [
            f"{self.num_applied} sites replaced in {self.num_graphs} graphs "
            f"({self.num_replaced_nodes} of {self.num_nodes} calls)"
        ]
        for folder, rule in self.rules:
            mine = [site for site in self.sites if (site.folder, site.rule) == (folder, rule)]
            applied = sum(not site.reason for site in mine)
            text = f"  {folder} {rule}: {applied} replaced"
            if overlapping := self.overlaps[folder, rule]:
                text += f", {overlapping} taken by an earlier rule"
            lines.append(text)
            for reason, count in Counter(site.reason for site in mine if site.reason).items():
                lines.append(f"    {count} left as they were: {reason}")
            if not mine and (miss := self.misses.get((folder, rule))):
                lines.append(f"    matches nowhere; {miss}")
        lines += [f"  left as it was: {reason}" for reason in dict.fromkeys(self.left)]
        return "\n".join(lines)
