"""Loads that no package has: load.py sqlite|varmail|append FOLDER SECONDS. The last line is how much was done a second."""

import multiprocessing
import os
import random
import sqlite3
import sys
import time

# As filebench's varmail: the files there are, and the mean size of a file and of what is appended.
FILES = 1000
MEAN_BYTES = 16 << 10
MAILERS = 4


def until(seconds, step):
    """How often `step` could be called, and how long it took."""
    begin = time.monotonic()
    end = begin + seconds
    count = 0
    while (now := time.monotonic()) < end:
        step(count)
        count += 1
    return count, now - begin


def sqlite(folder, seconds):
    """A row a transaction."""
    rows = sqlite3.connect(os.path.join(folder, "bench.db"), isolation_level=None)
    rows.execute("PRAGMA journal_mode=WAL")
    rows.execute("PRAGMA synchronous=FULL")
    rows.execute("CREATE TABLE IF NOT EXISTS t(n INTEGER PRIMARY KEY, x BLOB)")
    value = os.urandom(200)
    count, took = until(seconds, lambda _: rows.execute("INSERT INTO t(x) VALUES(?)", (value,)))
    print(count / took)


def append(folder, seconds):
    """100 bytes at the end of a file, and fsync. Prints how many there were, too."""
    file = os.open(os.path.join(folder, "appended"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    record = b"x" * 100

    def step(_):
        os.write(file, record)
        os.fsync(file)

    count, took = until(seconds, step)
    print(count)
    print(count / took)


def synced(path, flags, data):
    file = os.open(path, os.O_WRONLY | os.O_APPEND | flags, 0o644)
    os.write(file, data)
    os.fsync(file)
    os.close(file)


def mailer(folder, number, seconds, totals):
    """Deletes a mail, delivers one, reads and appends to one, reads one."""
    chance = random.Random(number)
    data = os.urandom(4 * MEAN_BYTES)

    def part():
        return data[: min(len(data), 1 + int(chance.expovariate(1 / MEAN_BYTES)))]

    names = [os.path.join(folder, f"{number}-{mail}") for mail in range(FILES // MAILERS)]
    for name in names:
        synced(name, os.O_CREAT | os.O_TRUNC, part())

    def read(name):
        with open(name, "rb", buffering=0) as file:
            file.read()

    def step(_):
        place = chance.randrange(len(names))
        os.unlink(names[place])
        synced(names[place], os.O_CREAT, part())
        other = chance.choice(names)
        read(other)
        synced(other, 0, part())
        read(chance.choice(names))

    totals.put(until(seconds, step))


def varmail(folder, seconds):
    """Rounds of all mailers together. The files are made before the time begins."""
    folder = os.path.join(folder, "mail")
    os.makedirs(folder, exist_ok=True)
    totals = multiprocessing.Queue()
    mailers = [
        multiprocessing.Process(target=mailer, args=(folder, number, seconds, totals)) for number in range(MAILERS)
    ]
    for process in mailers:
        process.start()
    rates = [count / took for count, took in (totals.get() for _ in mailers)]
    for process in mailers:
        process.join()
    print(sum(rates))


if __name__ == "__main__":
    {"sqlite": sqlite, "append": append, "varmail": varmail}[sys.argv[1]](sys.argv[2], float(sys.argv[3]))
