"""Tables for generated households: furniture and things by room, and which receptacle holds which thing.

Type names, properties and what a receptacle can hold are ALFWorld's interface (Shridhar et al., 2021;
MIT licence, see NOTICE). The numbers of a kind, and the numbers of things in it, were counted in the
3,553 published training games.
"""

from __future__ import annotations

from typing import NamedTuple


class Count(NamedTuple):
    """The number of a kind in a room: with probability `chance` from `low` to `high`, `mean` on average; else 0."""

    chance: float
    low: int
    mean: float
    high: int


def _counts(text: str) -> dict[str, Count]:
    """Counts by kind, from lines of `Kind chance low mean high; ...`."""
    rows = (row.split() for row in text.replace("\n", ";").split(";") if row.strip())
    return {kind: Count(float(p), int(low), float(mean), int(high)) for kind, p, low, mean, high in rows}


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _words(table: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(text.split()) for key, text in table.items()}


ROOMS = ("kitchen", "living room", "bedroom", "bathroom")

FURNITURE: dict[str, dict[str, Count]] = {
    "kitchen": _counts("""
        CounterTop 1 1 2.3 4;  DiningTable .56 1 1.3 3;  SideTable .11 1 1 1;  Fridge 1 1 1 1;  Microwave 1 1 1 1
        SinkBasin 1 1 1 1;  StoveBurner 1 4 4.1 6;  CoffeeMachine 1 1 1 1;  Toaster 1 1 1 1;  Cabinet 1 2 13.7 27
        Drawer .97 1 6 27;  Shelf .2 1 3 4;  Safe .04 1 1 1;  GarbageCan 1 1 1 1
    """),
    "living room": _counts("""
        Sofa 1 1 1.2 2;  ArmChair .92 1 1.4 3;  CoffeeTable .82 1 1.2 2;  DiningTable .48 1 1.1 2
        SideTable .81 1 2 5;  Dresser .39 1 1.1 2;  TVStand .34 1 1.2 2;  Desk .02 1 1 1;  Ottoman .13 1 1 1
        Cabinet .16 1 4.4 8;  Drawer .78 1 5.2 21;  Shelf .38 1 6.2 14;  Safe .02 1 1 1;  GarbageCan 1 1 1 1
    """),
    "bedroom": _counts("""
        Bed 1 1 1.2 2;  Desk .7 1 1.1 2;  SideTable .66 1 1.3 2;  Dresser .45 1 1.1 2;  DiningTable .12 1 1 1
        CounterTop .02 1 1 1;  ArmChair .18 1 1.5 3;  Cabinet .16 1 2.8 4;  Drawer .96 2 6.2 17
        Shelf .7 1 4.4 14;  LaundryHamper .27 1 1 1;  Safe .14 1 1 1;  GarbageCan 1 1 1 1
    """),
    "bathroom": _counts("""
        SinkBasin 1 1 1.5 2;  Toilet 1 1 1 1;  BathtubBasin .69 1 1 1;  CounterTop .87 1 1.2 2;  Cart .09 1 1 1
        SideTable .06 1 1 1;  Dresser .1 1 1 1;  Cabinet .43 2 4.3 9;  Drawer .61 1 4.7 8;  Shelf .28 1 1.9 4
        TowelHolder 1 1 1.3 2;  HandTowelHolder 1 1 1.5 4;  ToiletPaperHanger 1 1 1 1;  GarbageCan 1 1 1 1
    """),
}
"""Receptacles by room, large before small, because a small one may share the place of a large one."""

ESSENTIAL = _words(
    {
        "kitchen": "CounterTop Fridge Microwave SinkBasin",
        "living room": "Sofa SideTable",
        "bedroom": "Bed Desk",
        "bathroom": "SinkBasin Toilet CounterTop",
    }
)
"""Furniture that every room has, also a small one, so that all tasks of the room are possible."""

THINGS: dict[str, dict[str, Count]] = {
    "kitchen": _counts("""
        Apple 1 1 2 4;  Bowl 1 1 1.9 4;  Bread 1 1 1.6 4;  ButterKnife .96 1 1.9 4;  Cup 1 1 2 4;  DishSponge 1 1 2 4
        Egg 1 1 2.1 4;  Fork 1 1 2 4;  Knife 1 1 2 3;  Lettuce 1 1 1.8 4;  Mug 1 1 2 4;  Pan 1 1 1.3 3
        PepperShaker 1 1 2.1 4;  Plate 1 1 1.9 4;  Pot 1 1 1.6 3;  Potato 1 1 2 4;  SaltShaker 1 1 1.9 4
        SoapBottle 1 1 2 3;  Spatula 1 1 1.9 4;  Spoon 1 1 2 4;  Tomato 1 1 2 4;  Kettle .51 1 1.8 4
        WineBottle .43 1 2 4;  Ladle .36 1 2 4;  Glassbottle .23 1 2.1 4;  Statue .15 1 1.8 3;  Vase .15 1 2.5 3
        Book .1 1 1.5 3;  CellPhone .1 1 1.7 3;  CreditCard .09 1 2 3;  Pen .07 1 2.2 3;  Pencil .07 1 1.8 3
        SprayBottle .07 1 1.9 3;  PaperTowelRoll .35 1 1 1;  HousePlant .36 1 1.1 2;  Chair .84 1 1.5 5
        Sink 1 1 1 1;  StoveKnob 1 4 4.1 6;  LightSwitch 1 1 1 1;  Window .89 1 1.4 3;  Blinds .2 1 1 1
        Curtains .07 1 1 1;  Mirror .09 1 1 1
    """),
    "living room": _counts("""
        Box 1 1 1.4 3;  CreditCard 1 1 2.2 4;  KeyChain 1 1 1.9 4;  Laptop 1 1 1.3 3;  Pillow 1 1 1.1 3
        RemoteControl 1 1 2.1 4;  Statue .96 1 2.3 7;  Newspaper .6 1 2 4;  Vase .56 1 2.8 6;  Watch .5 1 2.2 4
        WateringCan .5 1 1.1 3;  Plate .34 1 1.8 3;  TissueBox .34 1 2 4;  Book .26 1 1.7 3;  CellPhone .22 1 1.9 3
        Pen .19 1 2 3;  Pencil .17 1 2 4;  Bowl .1 1 1.9 4;  Candle .09 1 2.6 3;  Boots .2 1 1 1
        DeskLamp .25 1 1 1;  FloorLamp 1 1 1 1;  HousePlant 1 1 1.1 2;  Television 1 1 1 1;  Painting 1 1 1.9 4
        LightSwitch 1 1 1 1;  Chair .72 1 3.8 8;  Window .96 1 2.8 8;  Curtains .33 1 1.4 3;  Mirror .1 1 1 1
    """),
    "bedroom": _counts("""
        AlarmClock 1 1 1.8 4;  Book 1 1 1.9 4;  CD 1 1 2.1 4;  CellPhone 1 1 2.1 4;  CreditCard 1 1 2 4
        KeyChain 1 1 2 4;  Laptop 1 1 1.6 4;  Pen 1 1 2.1 4;  Pencil 1 1 2 4;  Pillow 1 1 1.7 4;  Mug .5 1 1.9 3
        Box .47 1 1 1;  Bowl .45 1 1.4 4;  BaseballBat .43 1 1.1 2;  TennisRacket .4 1 1 1;  BasketBall .38 1 1 1
        TeddyBear .35 1 1 1;  Cloth .2 1 1.9 3;  Statue .15 1 1.5 3;  TissueBox .15 1 1.9 4;  RemoteControl .12 1 2 3
        Watch .08 1 1.9 3;  Vase .06 1 1.9 3;  Boots .11 1 1 1;  DeskLamp .7 1 1.1 2;  HousePlant .26 1 1 1
        Television .12 1 1 1;  Mirror 1 1 1 1;  Window 1 1 1.5 4;  Blinds .9 1 1.5 4;  Chair .78 1 1.3 3
        LightSwitch 1 1 1 1;  Painting .41 1 1.5 3;  Poster .25 1 1.5 4;  LaundryHamperLid .27 1 1 1
        Curtains .07 1 1.6 2;  Footstool .04 1 1 1
    """),
    "bathroom": _counts("""
        Candle 1 1 2.1 4;  Cloth 1 1 1.9 4;  HandTowel 1 1 1.2 3;  SoapBar 1 1 2 4;  SoapBottle 1 1 2 4
        SprayBottle 1 1 2 4;  ToiletPaper 1 2 2.4 4;  TissueBox .28 1 1.9 4;  DishSponge .25 1 2.2 4;  Towel 1 1 1.1 2
        PaperTowelRoll .16 1 1 1;  Plunger 1 1 1 1;  ScrubBrush 1 1 1 1;  Sink 1 1 1.4 2;  Bathtub .72 1 1 1
        ShowerDoor .57 1 1 1;  ShowerGlass .41 1 1 1;  Mirror 1 1 1 2;  LightSwitch 1 1 1 1;  Window .65 1 1.5 4
        Footstool .06 1 1 1;  Painting .05 1 1 1;  HousePlant .03 1 1 1
    """),
}
"""Objects by room, including those that cannot be picked up."""

HOLDS = _words(
    {
        "ArmChair": "Book Box CellPhone Cloth CreditCard KeyChain Laptop Newspaper Pillow RemoteControl",
        "BathtubBasin": "Cloth DishSponge HandTowel SoapBar",
        "Bed": "BaseballBat BasketBall Book CellPhone Laptop Pillow TennisRacket",
        "Cabinet": """Book Bowl Box CD Candle Cloth Cup DishSponge Glassbottle HandTowel Kettle Ladle Mug Newspaper Pan
            PepperShaker Plate Plunger Pot SaltShaker SoapBar SoapBottle SprayBottle TissueBox ToiletPaper Vase
            WateringCan WineBottle""",
        "Cart": "Candle Cloth DishSponge HandTowel Plunger SoapBar SoapBottle SprayBottle TissueBox ToiletPaper",
        "CoffeeMachine": "Mug",
        "CoffeeTable": """Book Bowl Box Candle CellPhone CreditCard KeyChain Laptop Newspaper Pen Pencil Plate
            RemoteControl Statue TissueBox Vase Watch WateringCan""",
        "CounterTop": """AlarmClock Apple Book Bowl Bread ButterKnife CD Candle CellPhone Cloth CreditCard Cup
            DishSponge Egg Fork Glassbottle HandTowel Kettle KeyChain Knife Ladle Laptop Lettuce Mug Pan Pen Pencil
            PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon SprayBottle Statue
            TissueBox ToiletPaper Tomato Vase WineBottle""",
        "Desk": """AlarmClock BasketBall Book Bowl Box CD CellPhone Cloth CreditCard KeyChain Laptop Mug Pen Pencil
            RemoteControl Statue TennisRacket TissueBox Vase Watch WateringCan""",
        "DiningTable": """AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle CellPhone
            Cloth CreditCard Cup DishSponge Egg Fork Glassbottle Kettle KeyChain Knife Ladle Laptop Lettuce Mug
            Newspaper Pan Pen Pencil PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBottle Spatula Spoon
            SprayBottle Statue TennisRacket TissueBox Tomato Vase Watch WateringCan WineBottle""",
        "Drawer": """Book ButterKnife CD Candle CellPhone Cloth CreditCard DishSponge Fork HandTowel KeyChain Knife
            Ladle Newspaper Pen Pencil PepperShaker RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon
            SprayBottle TissueBox ToiletPaper Watch WateringCan""",
        "Dresser": """AlarmClock BasketBall Book Bowl Box CD Candle CellPhone Cloth CreditCard KeyChain Laptop Mug
            Newspaper Pen Pencil Plate RemoteControl SprayBottle Statue TennisRacket TissueBox ToiletPaper Vase Watch
            WateringCan""",
        "Fridge": "Apple Bowl Bread Cup Egg Glassbottle Lettuce Mug Pan Plate Pot Potato Tomato WineBottle",
        "GarbageCan": """Apple Bread CD Cloth DishSponge Egg HandTowel Lettuce Newspaper Pen Pencil Potato SoapBar
            SoapBottle SprayBottle TissueBox ToiletPaper Tomato WineBottle""",
        "HandTowelHolder": "HandTowel",
        "LaundryHamper": "Cloth",
        "Microwave": "Apple Bowl Bread Cup Egg Glassbottle Mug Plate Potato Tomato",
        "Ottoman": "Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl",
        "Safe": "CD CellPhone CreditCard KeyChain Statue Vase",
        "Shelf": """AlarmClock Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup DishSponge Glassbottle HandTowel
            Kettle KeyChain Mug Newspaper Pen Pencil PepperShaker Plate Pot RemoteControl SaltShaker SoapBar SoapBottle
            SprayBottle Statue TissueBox ToiletPaper Vase Watch WateringCan WineBottle""",
        "SideTable": """AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle CellPhone
            Cloth CreditCard Cup DishSponge Egg Fork HandTowel Kettle KeyChain Knife Laptop Lettuce Mug Newspaper Pan
            Pen Pencil PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon
            SprayBottle Statue TennisRacket TissueBox ToiletPaper Tomato Vase Watch WateringCan WineBottle""",
        "SinkBasin": """Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Glassbottle HandTowel Kettle Knife Ladle
            Lettuce Mug Pan Plate Pot Potato SoapBar Spatula Spoon Tomato""",
        "Sofa": "Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl",
        "StoveBurner": "Kettle Pan Pot",
        "TVStand": "TissueBox",
        "Toaster": "",
        "Toilet": "Candle Cloth DishSponge HandTowel SoapBar SoapBottle SprayBottle TissueBox ToiletPaper",
        "ToiletPaperHanger": "ToiletPaper",
        "TowelHolder": "Towel",
    }
)
"""The things that may be put in or on a receptacle (`canContain` in the problems)."""

STANDS = _words(
    {
        "Bed": "TeddyBear",
        "CoffeeTable": "DeskLamp HousePlant Television",
        "CounterTop": "HousePlant PaperTowelRoll",
        "Desk": "DeskLamp HousePlant",
        "DiningTable": "HousePlant PaperTowelRoll",
        "Dresser": "DeskLamp HousePlant Television",
        "GarbageCan": "Glassbottle PaperTowelRoll",
        "Shelf": "DeskLamp HousePlant PaperTowelRoll",
        "SideTable": "DeskLamp HousePlant Television",
        "Toilet": "PaperTowelRoll",
        "TVStand": "CreditCard HousePlant KeyChain Laptop RemoteControl Statue Television Watch",
    }
)
"""Things that a receptacle has at the start, although they could not be put back."""

CROWD = {
    "CounterTop": 6.5, "DiningTable": 8.0, "Desk": 6.0, "Dresser": 4.0, "Fridge": 4.4, "Bed": 4.0, "CoffeeTable": 4.3,
    "SideTable": 3.0, "TVStand": 3.4, "Cart": 2.8, "Toilet": 2.5, "Sofa": 2.4, "SinkBasin": 1.8, "BathtubBasin": 1.4,
    "Ottoman": 1.2, "GarbageCan": 1.0, "Microwave": 1.0, "Shelf": 1.0, "TowelHolder": 0.9, "ArmChair": 0.9,
    "HandTowelHolder": 0.8, "StoveBurner": 0.65, "Safe": 0.6, "Drawer": 0.5, "Cabinet": 0.45, "CoffeeMachine": 0.36,
    "ToiletPaperHanger": 0.2, "LaundryHamper": 0.2, "Toaster": 0.0,
}  # fmt: skip
"""The average number of things in a receptacle of a kind."""

OPENABLE = {"Fridge": 1.0, "Microwave": 1.0, "Drawer": 0.84, "Cabinet": 0.83, "Safe": 0.85}
"""The probability that a receptacle of a kind can be opened. Such a receptacle is closed at the start."""

BESIDE: dict[str, tuple[float, tuple[str, ...]]] = {
    "StoveBurner": (0.5, ("StoveBurner",)),
    "Toaster": (0.25, ("CounterTop",)),
    "CoffeeMachine": (0.22, ("CounterTop",)),
    "Cabinet": (0.18, ("Cabinet", "Cabinet", "StoveBurner")),
    "Drawer": (0.3, ("Drawer", "Drawer", "Cabinet", "Desk", "Dresser", "SideTable", "SinkBasin")),
    "Shelf": (0.2, ("Shelf", "TVStand")),
    "HandTowelHolder": (0.1, ("TowelHolder",)),
    "GarbageCan": (0.1, ("Cabinet", "StoveBurner", "ToiletPaperHanger", "TVStand")),
}
"""The probability that a receptacle shares its place with one of the named kinds."""

ALSO_IN: dict[tuple[str, str], tuple[float, tuple[str, ...]]] = {
    ("Mug", "CoffeeMachine"): (0.9, ("CounterTop", "DiningTable")),
    ("Pot", "StoveBurner"): (0.45, ("StoveBurner", "StoveBurner", "CounterTop")),
    ("Pan", "StoveBurner"): (0.6, ("StoveBurner", "CounterTop")),
}
"""The probability that a thing in one receptacle is also in one of other kinds, as in the published games."""

FIXED = _set(
    """Bathtub Blinds Chair Curtains DeskLamp FloorLamp Footstool HousePlant LaundryHamperLid LightSwitch Mirror
    Painting Poster ShowerDoor ShowerGlass Sink StoveKnob Television Window"""
)
"""Things that cannot be picked up."""

PROPERTIES: dict[str, frozenset[str]] = {
    name: frozenset(kinds)
    for name, kinds in _words(
        {
            "isReceptacleObject": "Bowl Box Cup Mug Pan Plate Pot",
            "cleanable": """Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Kettle Knife Ladle Lettuce Mug Pan
                Plate Pot Potato SoapBar Spatula Spoon Tomato""",
            "heatable": "Apple Bread Cup Egg Mug Plate Potato Tomato",
            "coolable": "Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato WineBottle",
            "toggleable": "DeskLamp FloorLamp",
            "sliceable": "Apple Bread Egg Lettuce Potato Tomato",
        }
    ).items()
}
"""Object kinds by predicate."""

NESTS = _set("ButterKnife CellPhone Fork Knife Ladle Pen Pencil Spatula Spoon")
"""Things that sometimes lie in a bowl, mug or plate."""
