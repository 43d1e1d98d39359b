"""`ebbtide ls`, `verify`, `export` and `gc`: a store's directory, looked at and looked after from outside.

Each command is a module with a function `command`; `store` reads what is there, `outcome` has the exit codes and says
what was refused, `names` makes anything a history may be called fit to be shown or to be a file's name.
"""
