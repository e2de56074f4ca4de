#!/bin/bash
# Makes an episode: two seconds of a tone, one of silence.
set -euo pipefail
mkdir -p "$1"
cd "$1"
quiet=(-hide_banner -loglevel error -y)
ffmpeg "${quiet[@]}" -f lavfi -i sine=frequency=440:duration=2 tone.wav
ffmpeg "${quiet[@]}" -f lavfi -i anullsrc=r=44100:cl=mono -t 1 silence.wav
printf "file '%s'\n" tone.wav silence.wav > parts.txt
ffmpeg "${quiet[@]}" -f concat -i parts.txt -c copy episode.wav
ffmpeg "${quiet[@]}" -i episode.wav -metadata title=Episode -b:a 64k episode.mp3
ffprobe -v error -show_entries format=duration -of csv=p=0 episode.wav
