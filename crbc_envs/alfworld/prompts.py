"""Prompts of ALFWorld (paper, appendix "Prompt Templates")."""

from __future__ import annotations

from collections.abc import Mapping

from crbc_envs.alfworld import observation as household
from crbc_envs.prompts import Template, View

_ALFWORLD_TURN = """
Now it is your turn to take an action. First reason step by step about the current situation. This reasoning process \
MUST be enclosed within <think>...</think>. Once you have finished your reasoning, choose an admissible action for the \
current step and present it within <action>...</action>."""


def alfworld_text(view: View) -> str:
    """The paper's prompt. At the first step it has no sentences about earlier steps. `help` is not listed.

    A record has the game's text only; the current observation also has the added lines.
    """
    lines = [
        "You are an expert agent operating in the ALFRED embodied environment. "
        f"Your task is to: {view.task.removesuffix('.')}."
    ]
    if view.step:
        first = view.step - len(view.history) + 1
        records = "\n".join(
            f"[Observation {k}: '{household.game_text(seen)}', Action {k}: '{action}']"
            for k, (seen, action) in enumerate(view.history, first)
        )
        lines.append(
            f"Prior to this step, you have already taken {view.step} step(s). Below are the most recent "
            f"{len(view.history)} observations and the corresponding actions you took:\n{records}"
        )
    actions = ",\n".join(f"'{action}'" for action in view.admissible if action != "help")
    lines.append(
        f"You are now at step {view.step + 1} and your current observation is: "
        f"{household.without_admissible(view.observation)}\n"
        f"Your admissible actions for the current situation are: [{actions}]."
    )
    return "\n".join(lines) + "\n" + _ALFWORLD_TURN


def alfworld_compact(view: View) -> str:
    """A short prompt of about 150 tokens: task, game text, location, item in hand and actions.

    Actions stand there as a reply writes them, so that a small model can copy them. Below "Been there:" are those that
    go to receptacles that its records went to, so that a search need not compare two lists. "Done" is what was done
    with items. `help`, `look`, `inventory` and `examine` are left out.
    """
    seen = household.game_text(view.observation) if view.step else "start"
    lines = (household.LOCATION, household.HOLDING, household.HISTORY)
    at, held, done = (household.added_line(view.observation, name) for name in lines)
    been = {action for _, action in view.history if action.startswith("go to ")}
    do = [action for action in view.admissible if action.split()[0] not in ("help", "look", "inventory", "examine")]
    new, again = ([action for action in do if (action in been) == known] for known in (False, True))
    memory = [f"Done: {done}"] * (done not in ("none", household.CUT_OFF))
    again = ["Been there:"] * bool(again) + again
    return "\n".join(
        [f"Task: {view.task}", *memory, seen, f"At: {at}", f"Holding: {held}", *new, *again, "Your action?"]
    )


def alfworld_transcript(view: View) -> str:
    """An observation as a line of a ReAct transcript: the game's text, without the title above the first one."""
    text = household.game_text(view.observation)
    return text.partition(" =-\n\n")[2] or text if view.step == 0 else text


TEMPLATES: Mapping[str, Template] = {
    "text": alfworld_text,
    "compact": alfworld_compact,
    "transcript": alfworld_transcript,
}
"""By style."""
