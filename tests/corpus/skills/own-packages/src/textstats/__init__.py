"""Counts words."""
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as text:
        print(len(text.read().split()), "words")
