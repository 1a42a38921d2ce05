def parse_csv(text):
    """Return the rows of RFC 4180 text, each a list of its fields."""
    rows = []
    row = []
    field = ""
    quoted = False
    started = False
    i = 0
    while i < len(text):
        ch = text[i]
        i += 1
        if quoted:
            if ch != '"':
                field += ch
            elif text[i : i + 1] == '"':
                field += '"'
                i += 1
            else:
                quoted = False
        elif ch == '"':
            quoted = True
            started = True
        elif ch == ",":
            row.append(field)
            field = ""
            started = True
        elif ch == "\n" or ch == "\r":
            if ch == "\r" and text[i : i + 1] == "\n":
                i += 1
            row.append(field)
            rows.append(row)
            row = []
            field = ""
            started = False
        else:
            field += ch
            started = True
    if field or row:
        row.append(field)
        rows.append(row)
    return rows
