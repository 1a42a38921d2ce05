"""What runs inside a sandbox on our behalf: one driver a language for function mode, and the self-test's probes.

These files are copied into the sandbox and know no answers. They run under the interpreter of the sandbox, which
may be older than ours.
"""
