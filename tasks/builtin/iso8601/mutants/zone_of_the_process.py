from datetime import datetime, timedelta, timezone
import re

PATTERN = r"(\d{4})-(\d\d-\d\d|W\d\d-\d)T(\d\d):(\d\d):(\d\d)(Z|[+-]\d\d:\d\d)"


def to_utc(text):
    """Return an ISO 8601:2004 date-time in UTC, as YYYY-MM-DDTHH:MM:SSZ."""
    match = re.fullmatch(PATTERN, text, re.ASCII)
    if match is None:
        raise ValueError(text)
    year, day, offset = int(match[1]), match[2], match[6]
    hour, minute, second = int(match[3]), int(match[4]), int(match[5])
    if hour > 24 or minute > 59 or second > 59 or (hour == 24 and minute + second > 0):
        raise ValueError(text)
    if day[0] == "W":
        moment = datetime.fromisocalendar(year, int(day[1:3]), int(day[4]))
    else:
        moment = datetime(year, int(day[:2]), int(day[3:]))
    moment += timedelta(hours=hour, minutes=minute, seconds=second)
    if offset != "Z":
        hours, minutes = int(offset[1:3]), int(offset[4:])
        if hours > 23 or minutes > 59:
            raise ValueError(text)
        shift = timedelta(hours=hours, minutes=minutes)
        moment = moment - shift if offset[0] == "+" else moment + shift
    return moment.astimezone(timezone.utc).replace(tzinfo=None).isoformat() + "Z"
