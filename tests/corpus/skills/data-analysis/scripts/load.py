"""Makes a database of sales."""
import sqlite3
import sys

base = sqlite3.connect(sys.argv[1])
base.execute("PRAGMA journal_mode=WAL")
base.execute("CREATE TABLE sales (region TEXT, day INTEGER, amount REAL)")
rows = ((["north", "south", "east", "west"][number % 4], number % 365, number % 7 + 0.5) for number in range(10_000))
with base:
    base.executemany("INSERT INTO sales VALUES (?, ?, ?)", rows)
    base.execute("CREATE INDEX by_region ON sales (region, day)")
print(base.execute("SELECT count(*) FROM sales").fetchone()[0], "rows")
base.close()
