"""Keeps finished episodes: one record each, and the transcript of its trials."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchors import RolloutGroup
from crbc_envs.storage.files import append_line
from crbc_envs.storage.rollouts import read_recording, write_groups
from crbc_lab.agents.episode import Episode, Trial
from crbc_lab.agents.journal import read_journal
from crbc_rl.rollout.invalid import InvalidReplies
from crbc_rl.runs.transcripts import CANDIDATES, FOLDER, Play, chosen, plays_of, write_plays

log = logging.getLogger(__name__)

Record = dict[str, Any]


class Records:
    """The finished episodes of a run folder: `episodes.jsonl`, and a recording each in `rollouts/seedS/TASK.parquet`.

    The recording is written first, so a record always has one. A record stands for its seed and task; where an episode
    was played again, its last record counts. So each episode is counted once.
    """

    def __init__(self, folder: Path, env_id: str, examples: Mapping[str, list[str]] | None = None) -> None:
        self.folder, self.env_id = folder, env_id
        self.examples = {} if examples is None else examples
        """The training tasks of the examples, by kind of task, for as far as they are known."""
        self._path = folder / "episodes.jsonl"
        self.invalid = InvalidReplies()
        """The replies of this start."""
        self.episodes: dict[tuple[int, int], Record] = {}
        for record in read_journal(self._path):
            self.episodes[record["seed"], record["task"]] = record

    def recording(self, seed: int, task: int) -> Path:
        return self.folder / "rollouts" / f"seed{seed}" / f"{task:06d}.parquet"

    def keep(self, episode: Episode) -> None:
        """Keep a finished episode: its recording, then its record."""
        env = episode.chat.env
        task = env.panel[episode.task]
        self._write(episode, task.id)
        record: Record = {
            "seed": episode.seed,
            "task": episode.task,
            "task_id": task.id,
            "kind": task.kind,
            "content": task.digest,
            "solved_at": episode.solved_at,
            "score": episode.trials[-1].score if episode.trials else 0.0,
            "unanswered": episode.unanswered,
            "trials": [_of_trial(trial) for trial in episode.trials],
            "reflections": episode.reflections,
            **_invalid(episode.trials),
            "examples": self.examples.get(task.kind, []),
            "calls": episode.calls,
            "tokens_in": episode.tokens_in,
            "tokens_out": episode.tokens_out,
        }
        for turn in (turn for trial in episode.trials for turn in trial.turns):
            self.invalid.add(turn.reply, turn.cause)
            if warning := self.invalid.warning():
                log.warning(warning)
        append_line(self._path, record)
        self.episodes[episode.seed, episode.task] = record

    def keep_transcripts(self, wanted: int) -> None:
        """Write the recordings of up to `wanted` episodes into one file of transcripts, half of them unsolved."""
        plays, told = list[Play](), dict[str, Any](env_id=self.env_id)
        for (seed, task), record in sorted(self.episodes.items())[: CANDIDATES * wanted]:
            if (path := self.recording(seed, task)).is_file():
                recording = read_recording(path)
                plays += [play._replace(kind=record["kind"]) for play in plays_of(recording)]
                told["anchor"] = recording.anchor
        write_plays(self.folder / FOLDER / "test-000000.parquet", chosen(plays, wanted), **told)

    def _write(self, episode: Episode, task_id: str) -> None:
        """One group, the task, with a rollout for each trial that has a step."""
        trials = [trial for trial in episode.trials if trial.rollout is not None]
        path = self.recording(episode.seed, episode.task)
        if not trials:
            path.unlink(missing_ok=True)  # of an earlier play
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        env = episode.chat.env
        frames = [frame for trial in trials for frame in trial.frames]
        write_groups(
            path,
            [RolloutGroup([trial.rollout for trial in trials if trial.rollout is not None], task_id)],
            env_id=self.env_id,
            turns=[turn for trial in trials for turn in trial.turns],
            frames=frames or None,
            anchor=env.anchor_name,
        )


def _invalid(trials: Sequence[Trial]) -> Record:
    """The numbers of invalid replies by cause, and the first of each as they came."""
    invalid = InvalidReplies()
    for turn in (turn for trial in trials for turn in trial.turns):
        invalid.add(turn.reply, turn.cause)
    return {"invalid_by_cause": dict(invalid.counts), "invalid_replies": invalid.kept}


def _of_trial(trial: Trial) -> Record:
    rollout = trial.rollout
    steps = len(rollout) if rollout is not None else 0
    invalid = rollout.invalid if rollout is not None else 0
    reward = rollout.reward if rollout is not None else 0.0
    numbers = {"steps": steps, "invalid": invalid, "thoughts": trial.thoughts}
    return {"ending": trial.ending, "score": trial.score, "reward": reward, **numbers}
