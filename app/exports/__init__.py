"""Files of a plan for other programs: launch scripts, host lists, flags, traces, tables.

Every export is a pure function of the plan and checks the plan's arithmetic before a line leaves.
"""
