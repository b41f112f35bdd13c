"""The corridor of toy_env.py, broken in one place each: what `check_anchor_env` must find."""

from __future__ import annotations

import itertools
import sys
import weakref

import numpy as np
from toy_env import TEXT, CorridorEnv, Corridors

from anchors import INVALID, anchor_key
from crbc_envs.tasks import Task, TaskPanel


class ResetReturnsTheObservationAlone(CorridorEnv):
    def reset(self, **kwargs):
        return super().reset(**kwargs)[0]


class NoAnchorInInfo(CorridorEnv):
    def _info(self):
        info = super()._info()
        del info["anchor"]
        return info


class AnchorIsTheLabel(CorridorEnv):
    def _anchor(self):
        return self._label()


class AnchorInCapitals(CorridorEnv):
    def _anchor(self):
        return super()._anchor().upper()


class StepCountsByTwo(CorridorEnv):
    def _info(self):
        return super()._info() | {"step": 2 * self._steps}


class ScoreAboveOne(CorridorEnv):
    def _score(self):
        return 10.0


class NothingIsAdmissible(CorridorEnv):
    def _admissible(self):
        return () if self.cell == 2 else super()._admissible()


class AdmissibleButNeverRead(CorridorEnv):
    """No reply is read beyond a thousand characters, so a longer action can never be asked for."""

    def _admissible(self):
        return (*super()._admissible(), "take key" + " now" * 400)


class NeverEnds(CorridorEnv):
    def __init__(self, **kwargs):
        super().__init__(max_steps=10**9, **kwargs)

    def _admissible(self):
        return ("left",) if self.cell else ("right",)


class AnchorIsDrawnWhenAsked(CorridorEnv):
    """Each question has its own answer; equal seeds and questions have equal ones, as Gymnasium checks."""

    def _begin(self, task):
        super()._begin(task)
        self.questions = itertools.count()

    def _anchor(self):
        return anchor_key(f"{self._label()} {next(self.questions)}")


class RenderingMoves(CorridorEnv):
    def render(self):
        self.cell = 0
        return super().render()


class AnchorFromAnAddress(CorridorEnv):
    def _anchor(self):
        return anchor_key(f"{self._label()} {id(self)}")


class RewardOfNoSeed(CorridorEnv):
    """Only later in the episode, where one look at the first step does not find it."""

    def _execute(self, action):
        reward = super()._execute(action)
        return reward if self._steps < 5 else reward + float(np.random.default_rng().random())


class MemoryOfEarlierEpisodes(CorridorEnv):
    episodes = 0

    def _begin(self, task):
        super()._begin(task)
        self.episodes += 1

    def _observation(self):
        return f"{super()._observation()} {self.episodes if self._steps > 3 else ''}"


class AnchorCountsSteps(CorridorEnv):
    def _anchor(self):
        return anchor_key(f"{self._label()} {self._steps}")


class AnchorForgetsTheKey(CorridorEnv):
    def _anchor(self):
        return anchor_key(f"cell {self.cell}")


class OneListForAllSteps(CorridorEnv):
    """A list is not among what Gymnasium's own check compares."""

    def _info(self):
        self.listed = getattr(self, "listed", ["a"])
        return super()._info() | {"notes": self.listed}


class ViewsOfOneBuffer(CorridorEnv):
    """Every sixth step writes where an earlier one still reads, later than Gymnasium's check looks."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.buffer = itertools.cycle(np.zeros((6, 2)))

    def _info(self):
        row = next(self.buffer)
        row[:] = self.cell, self.held
        return super()._info() | {"features": row[:]}


class PlaysWhatItHandsOut(CorridorEnv):
    """A new list each time, from which the next step reads where the agent is."""

    def _info(self):
        self.place = [self.cell]
        return super()._info() | {"place": self.place}

    def _execute(self, action):
        self.cell = self.place[0] if self.place else 0
        return super()._execute(action)


class InvalidMoves(CorridorEnv):
    def _execute(self, action):
        if action == INVALID:
            self.cell = (self.cell + 1) % 5
        return super()._execute(action)


class InvalidHasAnEffectLater(CorridorEnv):
    """The anchor does not see at once what a malformed reply has done."""

    def _begin(self, task):
        super()._begin(task)
        self.confused = False

    def _execute(self, action):
        self.confused |= action == INVALID
        if self.confused and action == "right":
            action = INVALID
        return super()._execute(action)


class InvalidIsFree(CorridorEnv):
    def step(self, action):
        returned = super().step(action)
        if not returned[-1]["valid"]:
            self._steps -= 1
            returned[-1]["step"] -= 1
        return returned


class InvalidIsNotCounted(CorridorEnv):
    """It shows as a step, and is left out of the episode's budget of them."""

    def step(self, action):
        *rest, truncated, info = super().step(action)
        if not info["valid"]:
            truncated = self._over = False
        return *rest, truncated, info


class InvalidHasItsOwnName(CorridorEnv):
    def step(self, action):
        returned = super().step(action)
        if not returned[-1]["valid"]:
            returned[-1].update(action=f"<invalid: {action[:10]}>")
        return returned


class InvalidIsWaiting(CorridorEnv):
    """It changes nothing, and is taken for an action all the same."""

    def step(self, action):
        returned = super().step(action)
        if not returned[-1]["valid"]:
            returned[-1].update(action="wait", valid=True)
        return returned


class InvalidEnds(CorridorEnv):
    def _execute(self, action):
        self.failed = action == INVALID
        return super()._execute(action)

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        self._over |= self.failed
        return obs, reward, terminated or self.failed, truncated, info


class InvalidRaises(CorridorEnv):
    def _execute(self, action):
        if action == INVALID and self._steps > 2:  # later than Gymnasium's check looks
            raise KeyError("no such action")
        return super()._execute(action)


class SurrogatesRaise(CorridorEnv):
    def step(self, action):
        action.encode()
        return super().step(action)


class MembersShareTheirState(CorridorEnv):
    """State on the class: harmless alone, wrong in a group."""

    where = {}  # noqa: RUF012

    @property
    def cell(self):
        return self.where["cell"]

    @cell.setter
    def cell(self, value):
        self.where["cell"] = value


class MembersStartApart(CorridorEnv):
    """One starting place for one agent: who begins while another plays the task starts further on."""

    instances = weakref.WeakSet()  # noqa: RUF012

    def _begin(self, task):
        self.instances.add(self)
        others = [env for env in self.instances if env is not self and not env._over and env._task == self._task]
        super()._begin(((task[0] + len(others)) % 5, task[1]))


class HashedPanel(Corridors):
    def _task(self, index):
        task = super()._task(index)
        task_of = (hash(f"corridor {index}") % 5, task.content[1])
        return type(task)(task.id, task.text, task_of, task.digest)


class TasksByHash(CorridorEnv):
    """Strings hash differently in every process."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.panel = HashedPanel(self.panel.split, len(self.panel))


class OnlyHere(CorridorEnv):
    """It leans on something this process happens to have loaded."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        sys.modules["pytest"].__name__  # noqa: B018


class PromptRaises(CorridorEnv):
    templates = {"odd": lambda view: view.nothing}  # noqa: RUF012


class PromptIsEmpty(CorridorEnv):
    templates = {"odd": lambda view: "go on" * (not view.history)}  # noqa: RUF012


class SameInEverySplit(Corridors):
    def _task(self, index):
        start, third = divmod(index, 3)
        return Task(f"corridor/{self.split}/{index}", TEXT, (start, 3 * third), f"{start}{3 * third}")


class OneTaskInTwoSplits(CorridorEnv):
    tasks, size = SameInEverySplit, 27

    def __init__(self, split="train", **kwargs):
        super().__init__(split, **kwargs)
        self.panel = self.tasks(split, size=self.size)


class SlipsWithoutSayingSo(CorridorEnv):
    def _execute(self, action):
        slips = action != INVALID and self.np_random.random() < 0.4
        return super()._execute(INVALID if slips else action)


class StartsBySeed(CorridorEnv):
    def _begin(self, task):
        super()._begin((int(self.np_random.integers(5)), task[1]))


class ShowsMoreThanItDeclares(CorridorEnv):
    def _observation(self):
        return super()._observation() + " and so on" * (10 * (self._steps > 3))


class OneIdForAllTasks(CorridorEnv):
    def _info(self):
        return super()._info() | {"task_id": "corridor"}


class OneTaskCannotBePlayed(CorridorEnv):
    """A test task, which no walk of the check but its comparison of splits begins."""

    fault = KeyError("the file is damaged")

    def _begin(self, task):
        super()._begin(task)
        if self._task.id == "corridor/test/20":
            raise self.fault


class OneTaskIsOutOfBounds(OneTaskCannotBePlayed):
    fault = ValueError("the file is damaged")


class OneTaskNeverEnds(CorridorEnv):
    """A train task that seed 0 does not draw."""

    odd = "corridor/train/2"

    def _execute(self, action):
        if self._task.id == self.odd:
            self._steps = 1
        return super()._execute(action) if self._task.id != self.odd else 0.0


class OneTaskIsStuck(OneTaskNeverEnds):
    def _admissible(self):
        return () if self._task.id == self.odd else super()._admissible()


class ExpertRaises(CorridorEnv):
    def expert(self, rng, **options):
        raise KeyError("no such plan")


class Same(TaskPanel):
    def _task(self, index):
        return Task(f"corridor/{self.split}/{index}", TEXT, (index % 8, index % 9), f"{index}")


class MuchInEverySplit(OneTaskInTwoSplits):
    """So many tasks that no random train task is among the first of another split."""

    tasks, size = Same, 10_000
