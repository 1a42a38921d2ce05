"""The programs that the sample model learns to write: parsers for CSV and ISO 8601, and a few small ones.

Every program is put together from forks. At a fork the alternatives are equally likely, so that a model that
has learned them well is undecided there: names, comments, ways to write the same thing, and here and there a
way that is worse. A worse branch fails a case of the task it belongs to; which one is said beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

# Comments for each place, equally likely among themselves and with none.
QUOTED = [
    "in a quoted field",
    "inside quotes",
    "quoted text",
    "all but a quote is data",
    "part of the value",
    "up to a quote",
]
DOUBLED = [
    "a doubled quote",
    "two quotes are one",
    "an escaped quote",
    "one quote of the value",
    "not the end yet",
]
FIELD = [
    "end of a field",
    "the next field",
    "a field is done",
    "keep the field",
    "between two fields",
    "more to come",
]
ROW = ["end of a row", "the next row", "a row is done", "keep the row", "between two rows", "CRLF or LF"]
LAST = [
    "the last row",
    "no line end at the end",
    "what is left",
    "anything left over",
    "text may end without one",
]
STATE = [
    "what is read so far",
    "where we are",
    "nothing read yet",
    "the state",
    "start empty",
    "to begin with",
]
LOOP = [
    "one character after the other",
    "go through the text",
    "every character",
    "until the end",
    "look at each one",
]
CLOCK = [
    "24:00:00 ends a day",
    "no such time",
    "check the clock",
    "the end of a day",
    "midnight at the end",
    "hours to seconds",
]
OFFSET = [
    "the offset in minutes",
    "Z or an offset",
    "east of UTC",
    "back to UTC",
    "hours and minutes",
    "the time zone",
]
WEEK = [
    "a week date",
    "year, week, weekday",
    "weeks of the ISO calendar",
    "by week number",
    "Monday is 1",
    "weeks from Monday",
]
DAY = [
    "the calendar date",
    "year, month, day",
    "an ordinary date",
    "by month and day",
    "no week here",
    "check the day too",
]
DONE = ["all in UTC now", "the answer", "ready", "write it out", "in the wanted form", "that is all"]

Lean = Callable[[Random, list[str]], str]
"""Chooses one of the options, leaning to some of them by the wording of the prompt."""


def csv_program(r: Random, lean: Lean) -> str:
    """Return the source of one parse_csv; of ten cases it fails one or two on average, often none."""
    styles = {"index": _csv_index, "flags": _csv_flags, "find": _csv_find, "lines": _csv_lines}
    style = styles[lean(r, [*styles])]
    rows = lean(r, ["rows", "records", "table", "lines", "result", "out", "grid", "data"])
    row = r.choice(["row", "record", "fields", "current", "entry", "parts"])
    field = lean(r, ["field", "cell", "value", "buf", "item", "word"])
    ch = r.choice(["ch", "c", "char", "sign"])
    return respell(r, f"def parse_csv(text):\n{_docstring(r)}" + style(r, rows, row, field, ch))


def respell(r: Random, source: str) -> str:
    """Return the program with each plain string in either kind of quotes, and each += written out or not."""
    lines = []
    for line in source.splitlines():
        if not line.lstrip().startswith(("#", '"""')):
            line = re.sub(
                r"""(?<![\w'"])(['"])((?:[^'"\\\n]|\\[nr])*)\1(?!['"])""",
                lambda m: f"{m[2]}".join([r.choice(["'", '"'])] * 2),
                line,
            )
            if " if " not in line and r.random() < 0.5:
                line = re.sub(r"^( +)(\w+) \+= ", r"\1\2 = \2 + ", line)
            if r.random() < 0.5:
                line = re.sub(r"^( +\w+) = \[\]$", r"\1 = list()", line)
        lines.append(line + "\n")
    return "".join(lines)


def _docstring(r: Random) -> str:
    verb = r.choice(["Parse", "Read", "Split", "Return", "Take"])
    if verb == "Return":
        what = r.choice(["the rows", "all rows", "the records", "a list of rows", "lists of fields"])
        return f'    """Return {what} of {r.choice(["CSV", "RFC 4180", "the"])} text."""\n'
    kind = r.choice(["RFC 4180", "CSV", "comma separated", "the"])
    return f'    """{verb} {kind} text{r.choice(["", " into rows", " into lists", " by hand"])}."""\n'


def _note(r: Random, indent: int, *notes: str) -> str:
    note = r.choice([*notes, ""])
    return f"{' ' * indent}# {note}\n" if note else ""


def _append(r: Random, row: str, field: str) -> str:
    # The stripped one fails no_trimming.
    even = [f"{row} += [{field}]\n", f"{row}.append({field})\n", f"{row}.append({field}.strip())\n"]
    return r.choices(even, [2, 1, 1])[0]


def _csv_index(r: Random, rows: str, row: str, field: str, ch: str) -> str:
    i = r.choice(["i", "pos", "index", "k", "at"])
    quoted = r.choice(["quoted", "inside", "in_quotes", "opened"])
    started = r.choice(["started", "seen", "pending", "dirty"])
    n = r.choice(["len(text)", "n", "size", "end"])
    ends = r.choices(["flag", "text", "field"], [2, 1, 1])[0]  # "field" fails empty_quoted_fields
    replace = r.choices(["peek", "pass", "replace"], [3, 3, 1])[0]  # "replace" fails embedded_newline
    double = r.choices(["pair", "none", "next", "slice"], [4, 2, 1, 1])[0]  # "none" fails doubled_quote
    lines = []
    add = lines.append
    if replace == "replace":
        add('    text = text.replace("\\r\\n", "\\n")\n')
    setup = [f"    {rows} = []\n", f"    {row} = []\n", f'    {field} = ""\n', f"    {quoted} = False\n"]
    if r.random() < 0.5:
        setup[0:2] = [f"    {rows}, {row} = [], []\n"]
    add(_note(r, 4, *STATE))
    lines += setup
    if ends == "flag":
        add(f"    {started} = False\n")
    add(f"    {i} = 0\n")
    if n != "len(text)":
        add(f"    {n} = len(text)\n")
    mark = f"            {started} = True\n" if ends == "flag" else ""
    add(_note(r, 4, *LOOP))
    add(f"    while {i} < {n}:\n        {ch} = text[{i}]\n")
    add(f"        if {quoted}:\n")
    add(_note(r, 12, *QUOTED))
    add(f"            if {ch} == '\"'")
    if double == "next":
        add(f" and {i} + 1 < {n} and text[{i} + 1] == '\"':\n")
    elif double == "slice":
        add(f" and text[{i} + 1 : {i} + 2] == '\"':\n")
    elif double == "pair":
        lines[-1] = f"            if text[{i} : {i} + 2] == '\"\"':\n"
    if double == "none":
        add(f":\n                {quoted} = False\n")
    else:
        add(_note(r, 16, *DOUBLED))
        add(f"                {field} += '\"'\n                {i} += 1\n")
        add(f"            elif {ch} == '\"':\n                {quoted} = False\n")
    add(f"            else:\n                {field} += {ch}\n")
    add(f"        elif {ch} == '\"':\n            {quoted} = True\n{mark}")
    add(f"        elif {ch} == ',':\n")
    add(_note(r, 12, *FIELD))
    add(f'            {_append(r, row, field)}            {field} = ""\n{mark}')
    if replace == "peek":
        add(f"        elif {ch} == '\\n' or {ch} == '\\r':\n")
        add(_note(r, 12, *ROW))
        add(f"            if text[{i} : {i} + 2] == '\\r\\n':\n                {i} += 1\n")
    elif replace == "pass":
        add(f"        elif {ch} == '\\r':\n            pass\n        elif {ch} == '\\n':\n")
    else:
        add(f"        elif {ch} == '\\n':\n")
    add(f"            {row}.append({field})\n            {rows}.append({row})\n")
    reset = [f"            {row} = []\n", f'            {field} = ""\n']
    if r.random() < 0.5:
        reset.reverse()
    lines += reset
    if ends == "flag":
        add(f"            {started} = False\n")
    add(f"        else:\n            {field} += {ch}\n{mark}")
    add(f"        {i} += 1\n")
    add(_note(r, 4, *LAST))
    test = {"flag": started, "text": "text and text[-1] not in '\\r\\n'", "field": f"{field} or {row}"}[ends]
    add(f"    if {test}:\n        {row}.append({field})\n        {rows}.append({row})\n")
    add(f"    return {rows}\n")
    return "".join(lines)


def _csv_flags(r: Random, rows: str, row: str, field: str, ch: str) -> str:
    quoted = r.choice(["quoted", "inside", "in_quotes", "opened"])
    closed = r.choice(["closed", "after", "was_quote", "ended"])
    again = r.choice(["if", "line", "none"])  # "none" fails doubled_quote
    # The last one fails empty_quoted_fields.
    last = r.choices(
        [f"{closed} or {field} or {row}", f"{field} or {row} or {closed}", f"{field} or {row}"], [2, 1, 1]
    )[0]
    lines = [f"    {rows} = []\n", f"    {row} = []\n", f'    {field} = ""\n']
    flags = [f"    {quoted} = False\n", f"    {closed} = False\n"]
    if r.random() < 0.5:
        flags = [f"    {quoted} = {closed} = False\n"]
    lines += flags
    add = lines.append
    add(_note(r, 4, *LOOP))
    add(f"    for {ch} in text:\n        if {quoted}:\n")
    add(_note(r, 12, *QUOTED))
    add(f"            if {ch} == '\"':\n                {quoted} = False\n                {closed} = True\n")
    add(f"            else:\n                {field} += {ch}\n")
    add(f"        elif {ch} == '\"':\n")
    if again == "if":
        add(f"            if {closed}:\n                {field} += '\"'\n")
    elif again == "line":
        add(f"            {field} += '\"' if {closed} else ''\n")
    add(f"            {quoted} = True\n            {closed} = False\n")
    add(f"        elif {ch} == ',':\n")
    add(_note(r, 12, *FIELD))
    add(f'            {_append(r, row, field)}            {field} = ""\n            {closed} = False\n')
    add(f"        elif {ch} == '\\n':\n")
    add(_note(r, 12, *ROW))
    add(f"            {row}.append({field})\n            {rows}.append({row})\n            {row} = []\n")
    add(f'            {field} = ""\n            {closed} = False\n')
    if r.random() < 0.5:
        add(f"        elif {ch} != '\\r':\n            {field} += {ch}\n")
    else:
        add(f"        elif {ch} == '\\r':\n            {r.choice(['pass', 'continue'])}\n")
        add(f"        else:\n            {field} += {ch}\n")
    add(f"    if {last}:\n        {row}.append({field})\n        {rows}.append({row})\n")
    add(f"    return {rows}\n")
    return "".join(lines)


def _csv_find(r: Random, rows: str, row: str, field: str, ch: str) -> str:
    i = r.choice(["i", "pos", "index", "k", "at"])
    j = r.choice(["j", "stop", "close", "to"])
    n = r.choice(["n", "size", "length"])
    lines = [f"    {rows} = []\n", f"    {row} = []\n", f"    {i} = 0\n", f"    {n} = len(text)\n"]
    add = lines.append
    add(_note(r, 4, *LOOP))
    add(f"    while {i} < {n}:\n        if text[{i}] == '\"':\n")
    add(_note(r, 12, *QUOTED))
    add(f"            {i} += 1\n            {field} = ''\n")
    if r.random() < 0.5:  # else it fails doubled_quote
        add(f"            while True:\n                {j} = text.index('\"', {i})\n")
        add(f"                {field} += text[{i}:{j}]\n                {i} = {j} + 1\n")
        add(f"                if text[{i} : {i} + 1] != '\"':\n                    break\n")
        add(_note(r, 16, *DOUBLED))
        add(f"                {field} += '\"'\n                {i} += 1\n")
    else:
        add(f"            {j} = text.index('\"', {i})\n")
        add(f"            {field} = text[{i}:{j}]\n            {i} = {j} + 1\n")
    add(
        f"        else:\n            {j} = {i}\n            while {j} < {n} and text[{j}] not in ',\\r\\n':\n"
    )
    add(f"                {j} += 1\n            {field} = text[{i}:{j}]\n            {i} = {j}\n")
    add(f"        {_append(r, row, field)}")
    add(f"        if text[{i} : {i} + 1] == ',':\n")
    add(_note(r, 12, *FIELD))
    add(f"            {i} += 1\n            continue\n")
    if r.random() < 0.5:
        add(f"        {i} += 2 if text[{i} : {i} + 2] == '\\r\\n' else 1\n")
    else:
        add(f"        if text[{i} : {i} + 2] == '\\r\\n':\n            {i} += 1\n        {i} += 1\n")
    add(_note(r, 8, *ROW))
    add(f"        {rows}.append({row})\n        {row} = []\n    return {rows}\n")
    return "".join(lines)


def _csv_lines(r: Random, rows: str, row: str, field: str, ch: str) -> str:
    # This style fails embedded_newline.
    line = r.choice(["line", "raw", "text_line"])
    quoted = r.choice(["quoted", "inside", "in_quotes", "opened"])
    i = r.choice(["i", "pos", "index", "k"])
    lines = [f"    {rows} = []\n    for {line} in text.splitlines():\n        {row} = []\n"]
    add = lines.append
    add(f'        {field} = ""\n        {quoted} = False\n')
    add(f"        for {i}, {ch} in enumerate({line}):\n            if {ch} == '\"':\n")
    if r.random() < 0.9:  # else it fails doubled_quote
        add(f"                if not {quoted} and {i} and {line}[{i} - 1] == '\"':\n")
        add(f"                    {field} += '\"'\n")
    add(f"                {quoted} = not {quoted}\n")
    add(f"            elif {ch} == ',' and not {quoted}:\n")
    add(_note(r, 16, *FIELD))
    add(f'                {row}.append({field})\n                {field} = ""\n')
    add(f"            else:\n                {field} += {ch}\n")
    add(f"        {row}.append({field})\n        {rows}.append({row})\n    return {rows}\n")
    return "".join(lines)


def iso_program(r: Random, lean: Lean) -> str:
    """Return the source of one to_utc; of eight cases it fails one or two on average, often none."""
    styles = {"slices": _iso_slices, "regex": _iso_regex, "library": _iso_library}
    style = styles[lean(r, [*styles])]
    moment = lean(r, ["moment", "when", "result", "stamp", "base", "value", "dt"])
    return respell(r, style(r, moment))


def _iso_doc(r: Random) -> str:
    verb = r.choice(["Return", "Read", "Convert", "Move", "Take"])
    what = r.choice(["an ISO 8601 date-time", "an ISO 8601:2004 date-time", "a date-time", "the date-time"])
    tail = {"Return": " in UTC", "Read": " and return UTC", "Take": " and give it in UTC"}.get(
        verb, " to UTC"
    )
    return f'    """{verb} {what}{tail}."""\n'


def _iso_week(r: Random, moment: str, year: str, week: str, day: str, indent: str) -> str:
    form = r.choices(["star", "plain", "loose"], [2, 1, 1])[0]
    if form == "star":
        parts = ", ".join(part.removeprefix("int(").removesuffix(")") for part in (year, week, day))
        return f"{indent}{moment} = datetime.fromisocalendar(*map(int, ({parts})))\n"
    if form == "plain":
        return f"{indent}{moment} = datetime.fromisocalendar({year}, {week}, {day})\n"
    # Fails week_53 or week_53_twin: weeks counted from 4 January without asking how many the year has.
    return (
        f"{indent}{moment} = datetime.fromisocalendar({year}, 1, {day})\n"
        f"{indent}{moment} += timedelta(weeks={week} - 1)\n"
    )


def _iso_check(r: Random, hour: str, minute: str, second: str) -> str:
    late = f"{minute} > 59 or {second} > 59"
    form = r.choices(["tuple", "strict", "and", "loose"], [4, 2, 1, 1])[0]
    test = {
        "and": f"{hour} > 24 or {late} or {hour} == 24 and {minute} + {second} > 0",
        "tuple": f"({hour}, {minute}, {second}) > (24, 0, 0) or {late}",
        "loose": f"{hour} > 24 or {late}",  # fails hour_24_twin
        "strict": f"{hour} > 23 or {late}",  # fails hour_24
    }[form]
    note = _note(r, 4, *CLOCK)
    return f"{note}    if {test}:\n        raise ValueError({r.choice(['text', repr('time'), repr('bad time')])})\n"


def _iso_slices(r: Random, moment: str) -> str:
    day = r.choice(["day", "date", "left", "d"])
    clock = r.choice(["clock", "time", "right", "rest"])
    shift = r.choice(["shift", "offset", "delta", "zone"])
    a, b, c = r.choice([("hour", "minute", "second"), ("h", "m", "s"), ("hours", "minutes", "seconds")])
    out = ["from datetime import datetime, timedelta\n\n\n", "def to_utc(text):\n", _iso_doc(r)]
    add = out.append
    if r.random() < 0.5:
        add(f'    {day}, {clock} = text.split("T")\n')
    else:
        add(f'    {day}, _, {clock} = text.partition("T")\n')
    add(_note(r, 4, *OFFSET))
    add(f'    {shift} = 0\n    if {clock}.endswith("Z"):\n        {clock} = {clock}[:-1]\n    else:\n')
    form = r.choices(["sign", "times", "int"], [2, 1, 1])[0]  # "int" fails negative_offset
    if form == "int":
        add(f"        {shift} = int({clock}[-6:-3]) * 60 + int({clock}[-2:])\n")
    elif form == "times":
        add(f"        {shift} = int({clock}[-5:-3]) * 60 + int({clock}[-2:])\n")
        add(f'        {shift} *= -1 if {clock}[-6] == "-" else 1\n')
    else:
        add(f'        sign = 1 if {clock}[-6] == "+" else -1\n')
        add(f"        {shift} = sign * (int({clock}[-5:-3]) * 60 + int({clock}[-2:]))\n")
    add(f"        {clock} = {clock}[:-6]\n")
    if r.random() < 0.5:
        add(f'    {a}, {b}, {c} = map(int, {clock}.split(":"))\n')
    else:
        add(f'    {a}, {b}, {c} = [int(p) for p in {clock}.split(":")]\n')
    add(_iso_check(r, a, b, c))
    year, week, number = r.choice([("y", "w", "n"), ("year", "week", "weekday"), ("year", "week", "number")])
    add(f'    if "W" in {day}:\n')
    add(_note(r, 8, *WEEK))
    add(f'        {year}, {week}, {number} = {day}.split("-")\n')
    add(_iso_week(r, moment, f"int({year})", f"int({week}[1:])", f"int({number})", " " * 8))
    add("    else:\n")
    add(_note(r, 8, *DAY))
    add(f'        {moment} = datetime(*map(int, {day}.split("-")))\n')
    if r.random() < 0.5:
        add(f"    {moment} += timedelta(hours={a}, minutes={b} - {shift}, seconds={c})\n")
    else:
        add(f"    {moment} += timedelta(hours={a}, minutes={b}, seconds={c})\n")
        add(f"    {moment} -= timedelta(minutes={shift})\n")
    add(_iso_return(r, moment))
    return "".join(out)


def _iso_return(r: Random, moment: str) -> str:
    note = _note(r, 4, *DONE)
    form = r.choice(["strftime", "isoformat", "fstring"])
    if form == "isoformat":
        return f'{note}    return {moment}.isoformat() + "Z"\n'
    if form == "strftime":
        return f'{note}    return {moment}.strftime("%Y-%m-%dT%H:%M:%SZ")\n'
    return f'{note}    return f"{{{moment}:%Y-%m-%dT%H:%M:%SZ}}"\n'


def _iso_regex(r: Random, moment: str) -> str:
    m = r.choice(["m", "match", "found", "hit"])
    a, b, c = r.choice([("hour", "minute", "second"), ("h", "mi", "s"), ("hours", "minutes", "seconds")])
    shift = r.choice(["shift", "offset", "delta", "zone"])
    day = r.choice(["day", "date", "rest", "d"])
    imports = ["import re\n", "from datetime import datetime, timedelta\n"]
    if r.random() < 0.5:
        imports.reverse()
    out = [*imports, "\n\ndef to_utc(text):\n", _iso_doc(r)]
    add = out.append
    add(f'    {m} = re.fullmatch(r"(\\d{{4}})-(\\d\\d-\\d\\d|W\\d\\d-\\d)T(\\d\\d):(\\d\\d):(\\d\\d)')
    add('(Z|[+-]\\d\\d:\\d\\d)", text)\n')
    test = r.choice([f"not {m}", f"{m} is None"])
    add(f"    if {test}:\n        raise ValueError({r.choice(['text', repr('bad input')])})\n")
    add(f"    year, {day}, {shift} = int({m}[1]), {m}[2], {m}[6]\n")
    add(f"    {a}, {b}, {c} = int({m}[3]), int({m}[4]), int({m}[5])\n")
    add(_iso_check(r, a, b, c))
    add(f'    if {day}[0] == "W":\n')
    add(_note(r, 8, *WEEK))
    add(_iso_week(r, moment, "year", f"int({day}[1:3])", f"int({day}[4])", " " * 8))
    add("    else:\n")
    add(_note(r, 8, *DAY))
    add(f"        {moment} = datetime(year, int({day}[:2]), int({day}[3:]))\n")
    add(f"    {moment} += timedelta(hours={a}, minutes={b}, seconds={c})\n")
    form = r.choice(["minus", "sign", "int"])  # "int" fails negative_offset
    add(f'    if {shift} != "Z":\n')
    add(_note(r, 8, *OFFSET))
    if form == "int":
        add(f"        {moment} -= timedelta(hours=int({shift}[:3]), minutes=int({shift}[4:]))\n")
    elif form == "minus":
        add(f"        by = timedelta(hours=int({shift}[1:3]), minutes=int({shift}[4:]))\n")
        add(f'        {moment} += by if {shift}[0] == "-" else -by\n')
    else:
        add(f'        sign = -1 if {shift}[0] == "+" else 1\n')
        add(f"        {moment} += sign * timedelta(hours=int({shift}[1:3]), minutes=int({shift}[4:]))\n")
    add(_iso_return(r, moment))
    return "".join(out)


def _iso_library(r: Random, moment: str) -> str:
    extra = r.choice(["extra", "late", "add", "more", "days"])
    out = ["from datetime import datetime, timedelta, timezone\n\n\ndef to_utc(text):\n", _iso_doc(r)]
    add = out.append
    form = r.choice(["exact", "loose", "none"])
    if form != "none":  # "none" fails hour_24 before Python 3.14
        add(_note(r, 4, *CLOCK))
        add(f"    {extra} = 0\n")
        if form == "exact":
            add('    if text[10:19] == "T24:00:00":\n        text = text[:10] + "T00:00:00" + text[19:]\n')
        else:  # fails hour_24_twin
            add('    if "T24:" in text:\n        text = text.replace("T24:", "T00:")\n')
        add(f"        {extra} = 1\n")
    if r.random() < 0.5:
        add(_note(r, 4, "week dates too", "the library knows weeks", "raises ValueError"))
    add(f"    {moment} = datetime.fromisoformat(text)\n")
    if r.random() < 0.5:
        add(
            f"    if {moment}.tzinfo is None:\n        raise ValueError({r.choice(['text', repr('no offset')])})\n"
        )
    add(f"    {moment} = {moment}.astimezone(timezone.utc)\n")
    if form != "none":
        add(f"    {moment} += timedelta(days={extra})\n")
    form = r.choice(["strftime", "fstring"])
    if form == "strftime":
        add(f'    return {moment}.strftime("%Y-%m-%dT%H:%M:%SZ")\n')
    else:
        add(f'    return f"{{{moment}:%Y-%m-%dT%H:%M:%SZ}}"\n')
    return "".join(out)
