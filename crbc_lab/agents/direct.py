"""`direct`: the model is asked for every step by the environment's own prompt.

These are the rows of the paper's tables that bear the name of a model alone: the prompts of training, without training.
"""

from __future__ import annotations

from crbc_lab.agents.episode import Asking, Episode


def direct(episode: Episode) -> Asking:
    """Each reply must have its tags, as in training: <think>...</think><action>...</action>."""
    trial = episode.begin()
    while not trial.over:
        prompt = trial.chat.prompt
        said = yield prompt
        trial.act(said, prompt, said)
