"""`python -m regnexe` does what `regnexe` does."""

from __future__ import annotations

from regnexe.cli import main

if __name__ == "__main__":
    main(prog_name="regnexe")
