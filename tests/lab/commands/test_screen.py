"""What `crbc play` prints: colours, tables that fit the terminal, and lists of actions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from crbc_envs.sokoban.env import SokobanEnv
from crbc_lab.commands import screen

SHOP = [
    ("WebShop",),
    ("Instruction:", "I need a red lamp"),
    ("[back]  [next >]",),
    ("[b01]", "$9.5", "A lamp with a long title that needs more than one line"),
    ("[b02]*", "$10.25", "Another lamp"),
]
ACTIONS = ("click[back]", "click[next >]", "click[b01]", "click[b02]")


def styles(text: Text) -> dict[str, str]:
    """The style of each styled part."""
    return {text.plain[span.start : span.end]: str(span.style) for span in text.spans}


def test_a_board_has_the_symbols_of_the_text_each_in_its_colour():
    board = "# # #\n# @ $\n. * +"
    drawn = screen.picture(board, SokobanEnv.legend)
    assert drawn.plain == board
    assert styles(drawn) == {symbol: SokobanEnv.legend[symbol][1] for symbol in "#@$.*+"}


def test_a_page_is_a_table_that_wraps_beside_its_columns():
    text = screen.page(SHOP, ACTIONS, width=40)
    assert text.plain.splitlines() == [
        "WebShop",
        "Instruction:  I need a red lamp",
        "[back]  [next >]",
        "[b01]   $9.5    A lamp with a long title",
        "                that needs more than one",
        "                line",
        "[b02]*  $10.25  Another lamp",
    ]
    assert styles(text) == {"[back]": "cyan", "[next >]": "cyan", "[b01]": "cyan", "[b02]*": "bold green"}


def test_only_lists_are_cut_and_only_where_the_page_would_scroll():
    assert screen.page(SHOP, ACTIONS, 40, height=7).plain == screen.page(SHOP, ACTIONS, 40).plain
    cut = screen.page([*SHOP, ("size:", "[s] " * 20)], ACTIONS, 40, height=7).plain.splitlines()
    assert cut[3:5] == ["[b01]   $9.5    A lamp with a long ti...", "[b02]*  $10.25  Another lamp"]
    assert "".join(cut[5:]).count("[s]") == 20


cells = st.text("ab [$]", max_size=30)


@given(
    st.lists(st.one_of(st.tuples(cells), st.tuples(cells, cells), st.tuples(cells, cells, cells))), st.integers(40, 90)
)
def test_no_line_of_a_page_is_wider_than_the_terminal(rows, width):
    assert all(len(line) <= width for line in screen.page(rows, (), width).plain.splitlines())


def test_actions_that_begin_alike_are_one_row():
    actions = (
        *(f"go to drawer {n}" for n in (1, 10, 2, 3)),
        "go to bed 1",
        "take egg 1 from bed 1",
        "take mug 1 from bed 1",
        "look",
    )
    assert screen.grouped(actions) == [
        ("go to", "drawer 1-3, drawer 10, bed 1"),
        ("take", "egg 1 from bed 1, mug 1 from bed 1"),
        ("", "look"),
    ]
