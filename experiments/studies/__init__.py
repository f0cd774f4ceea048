"""One module or package a study; how to add one is told in `experiments.study`."""
