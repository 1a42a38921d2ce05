"""`python -m gate.schema`: write the schemas again after the types changed."""

from pathlib import Path

from gate.schema import FILES, schema_text

if __name__ == "__main__":
    for file in FILES:
        path = Path(__file__).with_name(file)
        path.write_text(schema_text(file), encoding="utf-8")
        print(f"wrote {path}")
