def parse_csv(text):
    """Split on line ends and commas."""
    rows = []
    for line in text.replace("\r\n", "\n").split("\n"):
        if line:
            rows.append(line.split(","))
    return rows
