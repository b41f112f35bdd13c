"""Text games in an AnchorWrapper: one of our own, and one made with TextWorld's own game maker."""

import gymnasium
import numpy as np
from gymnasium.spaces import Text

from crbc_envs import AnchorWrapper
from crbc_envs.spaces import UnicodeText


class Drawers(gymnasium.Env):
    """A coin lies in one of 40 drawers, some of which are open. Its actions are text, and its info lists them."""

    metadata = {"render_modes": []}  # noqa: RUF012
    action_space = Text(30, charset="abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789")
    observation_space = UnicodeText()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.coin, self.at = (int(n) for n in self.np_random.integers(40, size=2))
        return self._seen(), {"commands": self._commands()}

    def step(self, action):
        assert action in self._commands()  # also in upper and lower case as it was listed
        if action.startswith("Go"):
            self.at = (self.at + (1 if action == "Go Right" else -1)) % 40
        won = action == "Take Coin"
        return self._seen(), np.array([float(won)]), won, False, {} if won else {"commands": self._commands()}

    def _commands(self):
        return ["Go Left", "Go Right", *(["Take Coin"] if self.at == self.coin else [])]

    def _seen(self):
        return f"You stand at drawer {self.at}. The coin is in drawer {self.coin}."


def drawers(**options):
    success = lambda reward, terminated, info: reward > 0  # noqa: E731
    options = {"admissible": "commands", "max_steps": 12, "text": "Take the coin.", **options}
    return AnchorWrapper(Drawers(), lambda env, seen: seen, success=success, **options)


gymnasium.register("Drawers-v0", entry_point=f"{__name__}:drawers")


class TextWorldGame(gymnasium.Env):
    """A game file of TextWorld's, played by its Python engine. A game without a compiled text is told by its facts."""

    action_space = observation_space = UnicodeText()

    def __init__(self, path):
        import textworld

        asked = textworld.EnvInfos(facts=True, admissible_commands=True, won=True, objective=True)
        self.game = textworld.start(path, request_infos=asked)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._told(self.game.reset())

    def step(self, command):
        state, reward, over = self.game.step(command)[:3]
        seen, info = self._told(state)
        return seen, reward, over, False, info

    def _told(self, state):
        return "\n".join(sorted(map(str, state.facts))), {"won": state.won, "commands": state.admissible_commands}


def textworld_game(folder):
    """The path of a game in which an apple is carried from the kitchen to the table in the garden."""
    from textworld.generator.game import Event, Quest
    from textworld.generator.maker import GameMaker

    maker = GameMaker()
    kitchen, garden = maker.new_room("kitchen"), maker.new_room("garden")
    maker.connect(kitchen.east, garden.west)
    maker.set_player(kitchen)
    apple, table = maker.new("o", name="apple"), maker.new("s", name="table")
    kitchen.add(apple)
    garden.add(table)
    maker.quests = [Quest(win_events=[Event(conditions={maker.new_fact("on", apple, table)})])]
    path = str(folder / "apple.json")
    maker.build(validate=False).save(path)
    return path
