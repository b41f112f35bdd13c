"""Invalid replies by cause, with some of each as they came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from crbc_envs.actions import CAUSES
from crbc_envs.printable import one_line

KEPT = 3
"""Raw replies that are kept for each cause."""
LONGEST = 2_000
"""Characters of a kept reply: the first half of them, and the last."""
QUOTED = 300
"""Characters of a reply that a line shows."""
FIRST, NEARLY_ALL = 32, 0.9
"""After so many replies a warning comes, if so large a share of them was invalid."""


def metric_key(cause: str) -> str:
    """The key of a cause in metrics."""
    return f"invalid/{cause.replace(' ', '_')}"


@dataclass
class InvalidReplies:
    """Counts replies, and the invalid ones among them by cause; keeps the first of each cause."""

    replies: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    kept: dict[str, list[str]] = field(default_factory=dict)

    def add(self, text: str, cause: str) -> bool:
        """Count a reply. Returns whether it is kept."""
        self.replies += 1
        if not cause:
            return False
        self.counts[cause] += 1
        half = LONGEST // 2
        return self.keep(cause, text if len(text) <= LONGEST else f"{text[:half]} [...] {text[-half:]}")

    def keep(self, cause: str, text: str) -> bool:
        """Keep a text of one of the causes, unless there are enough of them. Returns whether it is kept."""
        own = self.kept.setdefault(cause, [])
        if len(own) >= KEPT or text in own:
            return False
        own.append(text)
        return True

    @property
    def invalid(self) -> int:
        return self.counts.total()

    @property
    def share(self) -> float:
        return self.invalid / self.replies if self.replies else 0.0

    def warning(self) -> str:
        """What to say once `FIRST` replies have come, if nearly all of them were invalid; else empty."""
        if self.replies != FIRST or self.share < NEARLY_ALL:
            return ""
        cause = self.counts.most_common(1)[0][0]
        return (
            f"{self.invalid} of the first {self.replies} replies were invalid, most of them {cause!r}. {HELP[cause]} "
            f"One of them, as it came: {one_line(repr(self.kept[cause][0]), QUOTED)}"
        )


HELP = dict(
    zip(
        CAUSES,
        (
            "A prompt that says how to reply, such as env.prompt=text, or a model that follows it, helps.",
            "The model names actions that are not there, or writes more than the action: look at its replies.",
            "The thought does not end within the limit of tokens: raise --max-tokens, or let the server think less.",
            "The reply ends within its action: raise --max-tokens, and leave out a stop text of the server.",
            "There is nothing behind the thought, or no content: does the server's reasoning parser fit the model?",
            "The model or its server refuses to answer.",
        ),
        strict=True,
    )
)
"""What to do about each cause."""


def by_cause(shares: Mapping[str, float]) -> str:
    """The shares of invalid replies by cause in words, the largest first; empty where there is none."""
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{cause} {share:.1%}" for cause, share in ordered if share)


def quotes(kept: Mapping[str, Iterable[str]]) -> list[str]:
    """One raw reply of each cause, a line each."""
    return [f"    {cause}: {one_line(repr(text), QUOTED)}" for cause, texts in kept.items() for text in [*texts][:1]]
