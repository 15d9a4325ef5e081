"""Patterns of names (page 03): who reads uses none, but a broken one damages a repository."""

import re

from everstep_reader.objects import require

ONE = r"(?:\\.|[^\\\]])"
ITEMS = rf"(?:\\.|[^\\])(?:-{ONE})?+(?:{ONE}(?:-{ONE})?+)*+"  # of a class: the first may begin with a "]"
TOKEN = re.compile(rf"[^\\\[]|\\.|\[[!^]?+(?P<items>{ITEMS})\]", re.DOTALL)
ITEM = re.compile(rf"(?P<first>\\.|.)(?:-(?P<last>{ONE}))?+", re.DOTALL)


def check(configuration):
    for override in configuration["chunking"].get("overrides", ()):
        pattern = override["pattern"]
        require(not is_broken(pattern), "everstep.json", f"the pattern {pattern[:80]!r} is broken")


def is_broken(pattern):
    """Whether it is not of the grammar: with an open class, a range backwards, or a backslash at the end."""
    at = 0
    while token := TOKEN.match(pattern, at):
        at = token.end()
        for item in ITEM.finditer(token["items"] or ""):
            if item["last"] and item["first"][-1] > item["last"][-1]:
                return True
    return at < len(pattern)
