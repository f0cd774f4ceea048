"""From arrays of inputs and targets to draws and a verdict, for the command and the estimators.

Nothing is imported here: the command tells that it has begun before JAX is loaded.
"""
