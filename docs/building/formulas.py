"""A hook of mkdocs: formulas become MathML, which browsers draw by themselves."""

import html
import re

from latex2mathml.converter import convert

_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</\1>', re.DOTALL
)


def on_page_content(html_text: str, **_) -> str:
    """Replaces what pymdownx.arithmatex marked."""

    def drawn(match):
        display = "block" if match[1] == "div" else "inline"
        return convert(html.unescape(match[2]).strip(), display=display)

    return _FORMULA.sub(drawn, html_text)
