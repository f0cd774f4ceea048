"""`python -m jaxbnn fit DATA.csv --target COLUMN` and `python -m jaxbnn predict FOLDER NEW.csv`."""

import sys

from jaxbnn.cli import main

if __name__ == "__main__":
    sys.exit(main())
