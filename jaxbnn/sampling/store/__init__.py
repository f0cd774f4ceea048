"""What reaches the disk: whole files, the draws of each chunk, the state of a run."""
