"""What tasks have in common whose answer is a program: one judge, one verdict, one table of rewards."""

from pathlib import Path

#: The file with the scan, for a driver.
SCAN = Path(__file__).parent / "scan.py"
