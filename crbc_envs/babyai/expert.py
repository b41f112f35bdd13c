"""MiniGrid's own bot for BabyAI as an expert."""

from __future__ import annotations

from typing import Any

import numpy as np

from anchors import INVALID
from crbc_envs.actions import tagged
from crbc_envs.core import Expert, Infos

ACTIONS = {"turn left": 0, "turn right": 1, "go forward": 2, "pick up": 3, "drop": 4, "toggle": 5}
"""MiniGrid's number of each action. Its seventh, "done", does nothing."""
MOST_SEARCHES = 50
"""For paths, before one action. In 25 tasks of each of eight hard levels the most was 8."""
MOVES = ("turn left", "turn right", "go forward")


def make_expert(env: Any, rng: np.random.Generator, errs: float = 0.0) -> Expert:
    """The bot for the episode that has just begun in `env`. It sees what the agent has seen so far, and remembers it.

    With probability `errs` a reply is a random move instead. The bot is told what was executed, and plans anew. Where
    it fails, as after a box was opened, another bot starts from there. The expert raises `ValueError` where that fails
    too. Raises `ValueError` for an `errs` outside [0, 1].
    """
    if not 0 <= errs <= 1:
        raise ValueError(f"errs must be in [0, 1], got {errs}")
    from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

    class Bot(BabyAIBot):
        """One that gives up: where two doors wait for each other it plans for ever (UnlockToUnlock)."""

        searches = 0

        def _breadth_first_search(self, *args: Any, **kwargs: Any) -> Any:
            self.searches += 1
            assert self.searches <= MOST_SEARCHES, f"no plan after {MOST_SEARCHES} searches"
            return super()._breadth_first_search(*args, **kwargs)

    lost = (AssertionError, DisappearedBoxError, TypeError)
    names = {number: name for name, number in ACTIONS.items()}
    bot = Bot(env)

    def reply_to(observation: Any, info: Infos) -> str:
        nonlocal bot
        # An invalid reply takes no step inside, so the bot hears of a "done", which does as little.
        done = info.get("action")
        taken = None if done is None else env.unwrapped.actions(6 if done == INVALID else ACTIONS[done])
        bot.searches = 0
        try:
            action = bot.replan(taken)
        except lost:
            bot = Bot(env)
            try:
                action = bot.replan()
            except lost as error:
                raise ValueError(f"the bot is lost: {type(error).__name__} {error}") from error
        if rng.random() < errs:
            return tagged(MOVES[rng.integers(len(MOVES))], "look")
        if int(action) not in names:
            raise ValueError("the bot takes the mission for done")
        return tagged(names[int(action)], "plan")

    return reply_to
