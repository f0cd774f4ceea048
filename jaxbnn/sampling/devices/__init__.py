"""Where a run computes: meshes of devices, and the processes that share one."""
