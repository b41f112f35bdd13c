"""The exact state in words: the payload of the anchor "state"."""

from __future__ import annotations

from crbc_envs.alfworld.engine.exact import MEMO
from crbc_envs.alfworld.engine.state import Game, State, bits


def describe(game: Game, state: State) -> str:
    """Everything that a state has, one line each; empty sets are left out. Two states of a game have two texts."""
    known = game.descriptions.get(state)
    if known is None:
        if len(game.descriptions) >= MEMO:
            game.descriptions.clear()
        known = game.descriptions[state] = _described(game, state)
    return known


def _described(game: Game, state: State) -> str:
    def names(mask: int) -> str:
        return ", ".join(game.objects[o] for o in bits(mask))

    here = ", ".join(game.receptacles[r] for r in game.receptacles_at[state.place])
    lines = [
        f"Place: {here or game.places[state.place]}",
        f"Holding: {game.objects[state.held] if state.held >= 0 else 'nothing'}",
        f"Open: {', '.join(game.receptacles[r] for r in bits(state.opened)) or 'nothing'}",
    ]
    for title, owners, masks in (
        ("In", game.receptacles, state.inside),
        ("At", game.places, state.beside),
        ("Taken from", game.receptacles, state.taken),
    ):
        lines += [f"{title} {owner}: {names(mask)}" for owner, mask in zip(owners, masks, strict=True) if mask]
    for word in ("clean", "hot", "cool", "toggled", "sliced"):
        if mask := getattr(state, word):
            lines.append(f"{word.capitalize()}: {names(mask)}")
    return "\n".join(lines)
