"""What a reader of Markdown does not see: comments, definitions of links, struck out and hidden elements."""

import re

#: HTML's comments. One runs to the end of the text where nothing closes it, and so does a struck out element.
HTML_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
#: Elements whose content no reader sees, or sees struck out.
UNSEEN_ELEMENTS = frozenset("del head noscript s script strike style template title".split())
_UNSEEN_ELEMENT = re.compile(
    rf"<(?P<name>{'|'.join(sorted(UNSEEN_ELEMENTS))})(?:\s*|\s[^<>=]*=[^<>]*)>.*?(?:</(?P=name)>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
#: A target, and a title perhaps: a line with more words is text.
LINK_DEFINITION = re.compile(
    r"""^ {0,3}\[[^\]\n]*\]:[ \t]*\S+[ \t]*(?:"[^"\n]*"|'[^'\n]*'|\([^)\n]*\))?[ \t]*$""", re.MULTILINE
)
_LINK_TARGET = re.compile(r"\]\([^()\n]*\)")
TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*)((?:\s[^<>]*)?)/?>")
_TAG_WITH_ATTRIBUTES = re.compile(r"<[A-Za-z][A-Za-z0-9]*\s[^<>]*>")
#: The attribute `hidden` outside quotes, and styles that hide.
_HIDDEN_ATTRIBUTE = re.compile(r"(?<![\w-])hidden(?![\w-])", re.I)
_HIDING_STYLE = re.compile(
    r"style\s*=.*?(?:display\s*:\s*none|visibility\s*:\s*hidden|(?:font-size|opacity|width|height)\s*:\s*0(?![.\d])"
    r"|(?<!-)color\s*:\s*(?:white|transparent|#f{3}(?:f{3})?\b))",
    re.IGNORECASE | re.DOTALL,
)
LONGEST_ATTRIBUTES = 500  # characters
_QUOTED = re.compile(r""""[^"]*"|'[^']*'""")


def without_hidden(text: str) -> str:
    """Return a text without what its Markdown hides: comments, link targets, struck out and hidden elements, tags."""
    text = LINK_DEFINITION.sub("", HTML_COMMENT.sub("", text))
    text = _LINK_TARGET.sub("]", _UNSEEN_ELEMENT.sub("", text))
    for tag in TAG.finditer(text):
        if not tag[1] and hides(tag[3]):
            text = text[: tag.start()]
            break
    return _TAG_WITH_ATTRIBUTES.sub("", text)


def hides(attributes: str) -> bool:
    """Tell whether the attributes of an element hide it. Very long ones do, as nobody reads them."""
    if len(attributes) > LONGEST_ATTRIBUTES:
        return True
    is_hidden = _HIDDEN_ATTRIBUTE.search(_QUOTED.sub("", attributes))
    return bool(is_hidden or _HIDING_STYLE.search(attributes))
