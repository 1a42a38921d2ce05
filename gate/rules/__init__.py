"""Rules: what the evidence means. One file a rule, its reason code in its name; `registry` lists them in order.

A rule is a pure function from evidence and policy to findings. To add one, add a file with a `RULE`, a line in
`registry`, and a test.
"""
