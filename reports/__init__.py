"""What is shown: the HTML report, the terminal table, and other renderings of a finished run.

May import the data types of `evals` and `gate`. Shows, never decides.
"""
