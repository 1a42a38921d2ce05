"""Where programs run: one contract (`sandbox.contract`), one file a backend.

A program that a model wrote is untrusted. It runs with no network, no writable mounts, bounded
resources and a seccomp filter, and it never grades itself. This package imports nothing of ours.
"""
