"""A checkpoint exported by optimum-intel, in an environment of its own, and looked at before it counts as one.

The exporter pins another transformers than the base install and brings torch, so it is run, never imported. May import
evals.headbuild, evals.inspection and evals.new_dir.
"""
