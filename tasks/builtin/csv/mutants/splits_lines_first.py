def parse_csv(text):
    """Split into lines, then each line into fields."""
    rows = []
    for line in text.splitlines():
        row = []
        field = ""
        quoted = False
        i = 0
        while i < len(line):
            ch = line[i]
            i += 1
            if quoted and ch == '"' and line[i : i + 1] == '"':
                field += '"'
                i += 1
            elif ch == '"':
                quoted = not quoted
            elif ch == "," and not quoted:
                row.append(field)
                field = ""
            else:
                field += ch
        row.append(field)
        rows.append(row)
    return rows
