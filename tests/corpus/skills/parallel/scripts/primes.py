"""Counts primes with a pool of processes."""
import multiprocessing
import sys


def count(bounds):
    return sum(all(number % other for other in range(2, int(number**0.5) + 1)) for number in range(*bounds))


if __name__ == "__main__":
    most = int(sys.argv[1])
    pieces = [(max(2, start), start + most // 8) for start in range(0, most, most // 8)]
    with multiprocessing.Pool(4) as pool:
        print(sum(pool.map(count, pieces)), "primes")
