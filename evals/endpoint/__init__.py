"""Served arms: any OpenAI-compatible server asked over HTTP, with the same surface as an engine's process.

The HTTP client is loaded when the first is asked. Imports of `evals` its types and its engines' vocabulary.
"""
