"""One way to check fields, wherever they come from: JSON, rows of an index, or binary structures."""

import re
import struct

from .errors import known, limit, require
from .tables import TEXT, U64


def check(key, at, value, rule):
    """Refuses a value that its rule does not allow.

    A rule is {field: rule} for an object, where `field?` may be absent; [rule, most] for a list; a range for a number;
    the most bytes of a text, or a regular expression for one; the set of possible values; or a tuple of the values that
    this version knows."""
    if isinstance(rule, dict):
        require(isinstance(value, dict), key, f"{at} is not a JSON object")
        for name, inner in rule.items():
            field = name.rstrip("?")
            require(field not in getattr(value, "repeated", ()), key, f"field {field} of {at} is repeated")
            require(field in value or field != name, key, f"{field} of {at} is missing")
            if field in value:
                check(key, f"{field} of {at}", value[field], inner)
    elif isinstance(rule, list):
        require(isinstance(value, list), key, f"{at} is not a list")
        limit(len(value), rule[1], key, f"items of {at}")
        for item in value:
            check(key, at, item, rule[0])
    elif isinstance(rule, tuple):
        check(key, at, value, U64 if isinstance(rule[0], int) else TEXT)
        known(value in rule, key, f"{str(value)[:80]!r} as {at}")
    elif isinstance(rule, set):
        require(value in list(rule), key, f"{at} cannot be {str(value)[:80]!r}")
    elif isinstance(rule, range):
        fits = type(value) is int and (value in rule or value >= rule.stop)
        require(fits, key, f"{at} cannot be {str(value)[:80]!r}")
        limit(value, rule.stop - 1, key, at)
    else:
        fits = isinstance(value, str) and (isinstance(rule, int) or re.fullmatch(rule, value))
        require(fits, key, f"{at} cannot be {str(value)[:80]!r}")
        limit(len(value.encode()), rule if isinstance(rule, int) else TEXT, key, f"bytes of {at}")


def unpack(key, at, form, data, rule):
    """The fields of a little-endian structure, whose form is that of `struct`; bytes become hex."""
    form = struct.Struct(f"<{form}")
    require(len(data) == form.size, key, f"{at} is cut short")
    fields = dict(zip(rule, (one.hex() if isinstance(one, bytes) else one for one in form.unpack(data))))
    check(key, at, fields, rule)
    return fields
