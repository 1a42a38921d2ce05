"""What happened: model directories, arms, decoding, records, diff, margins, grading, speed, statistics.

May import `tasks` and `sandbox`. Decides nothing: what a fact means is `gate`'s to say.
"""
