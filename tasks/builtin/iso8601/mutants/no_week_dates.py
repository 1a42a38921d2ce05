from datetime import datetime, timezone


def to_utc(text):
    """Let strptime read it."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
