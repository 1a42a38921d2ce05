"""Rules: pure functions from evidence and policy to findings, one file a rule (see `gate.rules.registry`)."""
