"""Numbered records of 4 KiB, each durable when it is acknowledged: records.py write FILE PERIOD_MS | check FILE LAST

`write` prints each number once its record is acknowledged, and reads some back: until it is killed, or fails.
`check` looks whether the records up to LAST are in the file.
"""

import os
import sys
import time

BYTES = 4096


def record(number):
    return b"%08d" % number * (BYTES // 8)


def write(path, period_ms):
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_DSYNC, 0o644)
    number = 0
    while True:
        os.pwrite(file, record(number), number * BYTES)
        print(number, flush=True)
        if number % 8 == 7:
            # Of those before it, some have been flushed.
            earlier = number - number % 97
            assert os.pread(file, BYTES, earlier * BYTES) == record(earlier), f"{earlier} is read wrongly"
        number += 1
        time.sleep(period_ms / 1000)


def check(path, last):
    with open(path, "rb") as file:
        for number in range(last + 1):
            assert file.read(BYTES) == record(number), f"{number} of {last} is gone"


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
