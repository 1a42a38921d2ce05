"""The child that turns a GGUF file into a model directory: `python -P -m evals.engine.convert FILE DIRECTORY`.

The file is others' bytes and the reader is native code, so it runs apart. openvino-genai saves graphs and tokenizer;
the files that other libraries read the tokenizer from (tokenizer.json and its configurations) are written from what
openvino-genai's own tokenizer says of its vocabulary, and from the graph that it saved of it: merges and the patterns
that split a text. Where those don't split a text as openvino-genai does, they are left out, and the files can show
tokens, not make them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from evals.engine.childside import die_with_parent
from evals.tokens import character_of_byte

PROBE = (
    "Notes from an archive. It's 1,234.5 km,  they'll say\n\n\tdef parse(line: str) -> list[str]:\n        return []\n"
    "naïve café, Straße, 東京 😀 — “quoted”; x2=3**4 HTTPServer_v10 ... !!!\r\n  end "
)
"""A text that most ways of splitting split differently."""


def main() -> None:
    """Convert, or end with a code other than 0 and the reason as the last words."""
    die_with_parent()
    source, directory = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        write_tokenizer(_converted(source, directory), directory)
    except Exception as error:  # the bindings raise RuntimeError, ValueError, TypeError and others alike
        print(error, flush=True)
        sys.exit(1)


def _converted(source: Path, directory: Path) -> Any:
    """openvino-genai writes beside the file that it was given, so it is given a link in the directory."""
    import openvino_genai

    link = directory / "model.gguf"
    link.symlink_to(source)
    try:
        pipeline = openvino_genai.LLMPipeline(str(link), "CPU", enable_save_ov_model=True)
        return pipeline.get_tokenizer()
    finally:
        link.unlink()


def write_tokenizer(tokenizer: Any, directory: Path) -> None:
    """Vocabulary, control tokens, end of sequence and chat template in the files that transformers reads."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    alphabet = character_of_byte()
    vocabulary = {"".join(alphabet[b] for b in token): i for token, i in tokenizer.get_vocab().items()}
    ids = sorted(vocabulary.values())
    said = tokenizer.decode([[i] for i in ids], skip_special_tokens=True)
    whole = tokenizer.decode([[i] for i in ids], skip_special_tokens=False)
    control = [full for shown, full in zip(said, whole, strict=True) if not shown and full]
    merges, patterns = _splitting(directory / "openvino_tokenizer.xml", alphabet)
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    made.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(False, use_regex=False)])
    if list(tokenizer.encode(PROBE, add_special_tokens=False).input_ids.data[0]) != made.encode(PROBE).ids:
        made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control])
    made.save(str(directory / "tokenizer.json"))
    stop = tokenizer.get_eos_token_id()
    _write(directory / "generation_config.json", {"eos_token_id": stop} if stop >= 0 else {})
    named = {"eos_token": tokenizer.get_eos_token(), "bos_token": tokenizer.get_bos_token()}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **{k: v for k, v in named.items() if v}}
    _write(directory / "tokenizer_config.json", settings)
    if tokenizer.chat_template:
        (directory / "chat_template.jinja").write_text(tokenizer.chat_template, encoding="utf-8")


def _splitting(graph: Path, alphabet: tuple[str, ...]) -> tuple[list[tuple[str, str]], list[str]]:
    """(merges, patterns) of a tokenizer's graph; ([], []) where it isn't byte-level BPE with its merges in pairs."""
    import openvino
    import openvino_tokenizers  # noqa: F401  (registers its operations)

    operations = openvino.Core().read_model(graph).get_ordered_ops()
    splits, pairs = (
        [operation for operation in operations if operation.get_type_name() == kind]
        for kind in ("RegexSplit", "BPETokenizer")
    )
    if len(pairs) != 1 or pairs[0].get_input_size() < 14:
        return [], []
    halves = (["".join(alphabet[b] for b in half) for half in _strings(pairs[0], first)] for first in (8, 11))
    patterns = [bytes(_constant(split, split.get_input_size() - 1)).decode() for split in splits]
    return list(zip(*halves, strict=True)), patterns


def _strings(operation: Any, first: int) -> list[bytes]:
    """Strings packed in three constants: where each begins, where it ends, and all characters."""
    begins, ends, characters = (_constant(operation, first + i) for i in range(3))
    data = bytes(characters)
    return [data[begin:end] for begin, end in zip(begins, ends, strict=True)]


def _constant(operation: Any, place: int) -> Any:
    return operation.input_value(place).get_node().data


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    main()
