"""What is decided: policy, rules, verdict, and the command line that wires them.

May import `evals`, `tasks` and `sandbox`; `gate.cli` alone may also import `reports`.
"""

__version__ = "0.1.0"
