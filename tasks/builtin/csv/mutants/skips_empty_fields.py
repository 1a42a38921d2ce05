def parse_csv(text):
    """Split on commas and line ends, outside quotes."""
    rows = []
    row = []
    field = ""
    quoted = False
    i = 0
    while i < len(text):
        ch = text[i]
        i += 1
        if quoted and ch == '"' and text[i : i + 1] == '"':
            field += '"'
            i += 1
        elif ch == '"':
            quoted = not quoted
        elif not quoted and ch in ",\r\n":
            if field:
                row.append(field)
            field = ""
            if ch == "\n":
                rows.append(row)
                row = []
        else:
            field += ch
    if field or row:
        row.append(field)
        rows.append(row)
    return rows
