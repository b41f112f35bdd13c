"""vLLM's queue on an engine that only counts: who waits for whom."""

from __future__ import annotations

from benchmarks.queue_steps import PROMPT, Counting, main, update
from crbc_rl.policies.vllm import Requests

SETTINGS = {"rollouts": 16, "turns": 5, "limit": 9, "tokens": 40, "longest": 99}


def test_a_reply_leaves_at_once_unless_environments_are_slow():
    steps = {waves: [update(waves, 0.1, SETTINGS, seed)[0] for seed in range(9)] for waves in (1, 2)}
    assert sum(steps[1]) < sum(steps[2])
    slow = {waves: [update(waves, 60.0, SETTINGS, seed)[1] for seed in range(9)] for waves in (1, 2)}
    assert sum(slow[1]) > sum(slow[2])


def test_without_waiting_an_update_takes_what_its_longest_rollout_takes():
    """Members that are never kept waiting are independent: the steps are those of the longest alone."""
    lengths = iter([3, 5, 2, 4])
    engine = Counting(1, lengths)
    queue = Requests(engine, 1.0, 9)
    for member in range(2):
        queue.ask(member, PROMPT, 0)
    assert [key for key, _ in queue.ready()] == [0] and engine.steps == 3
    queue.ask(0, PROMPT, 0)
    assert [key for key, _ in queue.ready()] == [1, 0] and engine.steps == 5
    assert queue.waiting == 0 and queue.ready() == []


def test_the_table(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["queue_steps", "--seeds", "1", "--rollouts", "4"])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and all("at once" in line and "an eighth" in line for line in lines[1:])
