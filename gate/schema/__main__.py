"""`python -m gate.schema`: write the schema again after the types changed."""

from pathlib import Path

from gate.schema import FILE, schema_text

if __name__ == "__main__":
    path = Path(__file__).with_name(FILE)
    path.write_text(schema_text(), encoding="utf-8")
    print(f"wrote {path}")
