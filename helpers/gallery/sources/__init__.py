"""Data sets of the hub: competition mathematics and small programs.

table.py says which there are. problems.py and programs.py turn their rows into questions, with parts.py for problems
that ask several things. reading.py reads them and remembers what was read. overlap.py finds problems that two sets
share, plans.py makes the splits of a run of several sets, and preparing.py writes them to a folder.
"""
