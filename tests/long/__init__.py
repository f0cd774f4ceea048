"""The long tests in shards that a machine can run one after the other, and their report."""
