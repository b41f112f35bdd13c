"""A page as an HTML document.

The markup is not the original's, which links to style sheets and scripts of other sites. The structure is: the same
texts in the same order, buttons of class `btn`, links of class `product-link`, radio buttons named after their
option group. A parser finds the same texts and clickable elements as in the text modes.
"""

from __future__ import annotations

from html import escape

from crbc_envs.webshop.shop.pages import Node, Page, head


def html(page: Page, instruction: str) -> str:
    """The HTML document of a page, with the task above it."""
    task = "".join(f"<p>{escape(node.text)}</p>" for node in head(page.kind, instruction))
    search = '<input id="search_input" name="search_query" type="text">' if page.kind == "index" else ""
    body = "".join(map(_element, page.nodes))
    return (
        '<!DOCTYPE html><html><head><meta charset="utf-8"></head><body>'
        f'<div id="instruction-text">{task}</div>{search}{body}</body></html>'
    )


def _element(node: Node) -> str:
    text = escape(node.text)
    if node.role == "button":
        return f'<button class="btn" type="submit">{text}</button>'
    if node.role == "link":
        return f'<a class="product-link" href="#{text}">{text}</a>'
    if node.role == "option":
        checked = " checked" if node.clicked else ""
        name = f"{escape(node.group)}: {text}"
        return (
            f'<input type="radio" id="{name}" name="{escape(node.group)}" value="{text}"{checked}>'
            f'<label for="{name}">{text}</label>'
        )
    return f"<p>{text}</p>"
