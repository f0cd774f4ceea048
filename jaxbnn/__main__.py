"""`jaxbnn fit DATA.csv --target COLUMN`, `predict FOLDER NEW.csv` or `hosts SCRIPT`."""

import sys

from jaxbnn.cli import main

if __name__ == "__main__":
    sys.exit(main())
