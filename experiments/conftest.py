"""What pytest leaves alone when it looks here for examples."""

collect_ignore = ["guides"]  # scripts: importing them runs them
