"""What a model directory holds, by its files, sizes and graphs: heads that don't belong are refused undecoded.

Graphs are read as a stream, weights only in samples of a few kilobytes: a directory of any size is looked at in seconds
and little memory. May import evals.model_dir, evals.digest and evals.engine.child; nothing here decides a verdict.
"""
