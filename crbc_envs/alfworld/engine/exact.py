"""The exact engine: ALFWorld's rules, exactly as TextWorld applies them, on small immutable states.

The rules are those of the game's PDDL domain as fast-downward reads it, including its errors (see `actions`).
The texts are those of its grammar. TextWorld plans and derives; this engine looks up. A state is a tuple of
ints, so copies and snapshots cost nothing and states can be cached. `conformance` compares the two engines.
Rules, grammar and games are ALFWorld's (Shridhar et al., 2021; MIT licence).
"""

from __future__ import annotations

from collections.abc import Iterable

from crbc_envs.alfworld.engine.state import Action, Game, Situation, State, bits

NOTHING_HAPPENS = "Nothing happens."
"""The text for a command that is not admissible."""

WELCOME = "-= Welcome to TextWorld, ALFRED! =-"

MEMO = 1024
"""The number of cached states per game, about 5 kB each. A group of eight visits 400 at most in an update."""


def intro(game: Game) -> str:
    """The text at the start of an episode."""
    return f"{WELCOME}\n\n{look(game, game.start, intro=True)}\n\nYour task is to: {game.task}"


def admissible(game: Game, state: State) -> tuple[str, ...]:
    """The admissible commands, sorted."""
    return situation(game, state).admissible


def won(game: Game, state: State) -> bool:
    return situation(game, state).won


def step(game: Game, state: State, command: str) -> tuple[State, str]:
    """The state after a command, and the game's text. Blanks at the ends of a command are ignored."""
    current = situation(game, state)
    command = command.strip()
    if command not in current.after:
        action = current.actions.get(command)
        if action is None:  # not cached, because the command may be any text
            return state, NOTHING_HAPPENS
        after = _apply(game, state, action)
        current.after[command] = after, _feedback(game, after, action, state.held)
    return current.after[command]


def situation(game: Game, state: State) -> Situation:
    """The results for a state. They are computed on first use and cached in the game."""
    situation = game.situations.get(state)
    if situation is None:
        if len(game.situations) >= MEMO:
            game.situations.clear()
        available = actions(game, state)
        situation = Situation(available, tuple(sorted(available)), game.won(state), {})
        game.situations[state] = situation
    return situation


# ---- admissible commands ---------------------------------------------------------------------------


def actions(game: Game, state: State) -> dict[str, Action]:
    """Every admissible command and its action.

    Two errors of the published domain are kept. First, `go to` is missing for every receptacle at the current
    place, not only for the one the agent went to. Second, `examine` works only on the object in hand: the clause
    for visible objects is typed `?l - location, ?r - receptacle`, and no object has the type `location,`.
    """
    commands = dict(_travel(game, state.place))
    words = game.dialect.command
    for verb in ("inventory", "look", "help"):
        if verb in words:
            commands[words[verb]] = Action(verb)
    for r in game.receptacles_at[state.place]:
        commands[words["examine receptacle"].format(r=game.receptacles[r])] = Action("examine receptacle", -1, r)
        for verb, o in _verbs_at(game, state, r):
            name = game.objects[o] if o >= 0 else ""
            commands[words[verb].format(o=name, r=game.receptacles[r])] = Action(verb, o, r)
    if state.held >= 0:
        held = game.objects[state.held]
        commands[words["examine object"].format(o=held)] = Action("examine object", state.held)
        if game.knives >> state.held & 1:
            for o in bits(state.beside[state.place] & game.sliceable):
                commands[words["slice"].format(o=game.objects[o], k=held)] = Action("slice", o)
    return commands


def _verbs_at(game: Game, state: State, r: int) -> Iterable[tuple[str, int]]:
    """The verbs that apply at receptacle r, and the object of each; -1 stands for r itself."""
    held, closed = state.held, False
    if game.openable >> r & 1:
        closed = not state.opened >> r & 1
        yield ("open" if closed else "close"), -1
    for o in bits(state.inside[r] & game.toggleable):
        yield "use", o
    if held < 0:
        if not closed:
            for o in bits(state.inside[r] & game.pickupable):
                yield "take", o
        return
    if not closed and game.accepts[r] >> held & 1:
        yield "put", held
    for verb, kind, able in (
        ("clean", "sinkbasintype", game.cleanable),
        ("heat", "microwavetype", game.heatable),
        ("cool", "fridgetype", game.coolable),
    ):
        if game.receptacle_types[r] == kind and able >> held & 1:
            yield verb, held


def _travel(game: Game, place: int) -> dict[str, Action]:
    if place not in game.travel:
        words = game.dialect.command["go"]
        game.travel[place] = {
            words.format(r=name): Action("go", -1, r)
            for r, name in enumerate(game.receptacles)
            if game.place_of[r] != place
        }
    return game.travel[place]


def _apply(game: Game, state: State, action: Action) -> State:
    verb, o, r = action
    bit, place = 1 << max(o, 0), state.place
    match verb:
        case "go":
            return state._replace(place=game.place_of[r])
        case "open" | "close":
            return state._replace(opened=state.opened ^ 1 << r)
        case "take":
            return state._replace(
                held=o,
                inside=_put(state.inside, r, state.inside[r] & ~bit),
                beside=_put(state.beside, place, state.beside[place] & ~bit),
                taken=_put(state.taken, r, state.taken[r] | bit),
            )
        case "put":
            return state._replace(
                held=-1,
                inside=_put(state.inside, r, state.inside[r] | bit),
                beside=_put(state.beside, place, state.beside[place] | bit),
                taken=_put(state.taken, r, state.taken[r] & ~bit),
            )
        case "clean":
            return state._replace(clean=state.clean | bit)
        case "heat":
            return state._replace(hot=state.hot | bit, cool=state.cool & ~bit)
        case "cool":
            return state._replace(cool=state.cool | bit, hot=state.hot & ~bit)
        case "use":
            return state._replace(toggled=state.toggled | bit)
        case "slice":
            return state._replace(sliced=state.sliced | bit)
    return state


def _put(row: tuple[int, ...], n: int, value: int) -> tuple[int, ...]:
    return (*row[:n], value, *row[n + 1 :])


# ---- the game's text -------------------------------------------------------------------------------


def _feedback(game: Game, state: State, action: Action, held: int) -> str:
    """The text after an action that led to `state`. `held` is the object in hand before it."""
    verb, o, r = action
    match verb:
        case "look":
            return look(game, state)
        case "inventory" if state.held < 0:
            return "You are not carrying anything."
        case "inventory":
            return f"You are carrying: a {game.objects[state.held]}."
        case "help":
            return game.dialect.help or ""
        case "examine receptacle":
            return view(game, state, r)
        case "examine object":
            return _examine(game, state, o)
    return game.dialect.feedback[verb].format(
        o=game.objects[o],
        r=game.receptacles[r],
        k=game.objects[held],
        l=game.places[state.place],
        view=view(game, state, r) if verb in ("go", "open") else "",
    )


def look(game: Game, state: State, intro: bool = False) -> str:
    """The text of `look`. Away from all receptacles, only the intro lists them."""
    here = game.receptacles_at[state.place]
    if not here:
        seen = _listing(f"a {name}" for name in game.receptacles) if intro else "nothing"
        return f"You are in the middle of a room. Looking quickly around you, you see {seen}."
    facing = _listing(game.receptacles[r] for r in here)
    # TextWorld lists an object next to a receptacle only after it was taken out of it.
    near = _listing(
        f"a {game.objects[o]}" for o in bits(state.beside[state.place]) for r in here if state.taken[r] >> o & 1
    )
    return f"You are facing the {facing}. Next to it, you see {near}."


def view(game: Game, state: State, r: int) -> str:
    """The text that describes a receptacle."""
    name = game.receptacles[r]
    seen = _listing(f"a {game.objects[o]}" for o in bits(state.inside[r]))
    if not game.openable >> r & 1:
        return f"On the {name}, you see {seen}."
    if state.opened >> r & 1:
        return f"The {name} is open. In it, you see {seen}."
    return f"The {name} is closed."


def _examine(game: Game, state: State, o: int) -> str:
    name = game.objects[o]
    if game.containers >> o & 1:
        return (
            f"This is a normal {name}. In it, you see {_listing(f'a {game.objects[i]}' for i in bits(game.within[o]))}."
        )
    clean, hot, cool, toggled, sliced = (part >> o & 1 for part in state[-5:])
    temperature = "hot" if hot else "cool" if cool else ""
    if sliced and (clean or temperature):
        words = " and ".join(filter(None, (temperature, "clean" * clean)))
        return f"This is a {words} sliced {name}."
    if clean and temperature:
        return f"This is a {temperature} and clean {name}."
    if temperature or clean:
        return f"This is a {'hot' if hot else 'clean' if clean else 'cold'} {name}."
    if toggled and game.toggleable >> o & 1:
        return f"This {name} is on."
    if sliced and game.sliceable >> o & 1:
        return f"This is a sliced {name}."
    return f"There's nothing special about {name}."


def _listing(names: Iterable[str]) -> str:
    """ "a cup 1, a mug 2, and a pan 1". Two names have the comma too; no name gives "nothing"."""
    *others, last = list(names) or ["nothing"]
    return f"{', '.join(others)}, and {last}" if others else last
