#!/bin/sh
# Makes one video under one key. However often you run this script, you pay once.
#   mgw sandbox exec --verify --fault chaos@20% -- scripts/careful.sh boat.mp4
set -u
file=${1:-boat.mp4}

for try in 1 2 3 4 5; do
  mgw video c submit --model vendor-h3-mini --prompt "a paper boat at sea" --duration 5 \
    --key paper-boat -o "$file" --timeout 20m
  code=$?
  case $code in
    6 | 8) ;; # never accepted, or not finished: the same command continues
    *) break ;;
  esac
done

if [ "$code" = 7 ]; then
  echo "It is unknown whether the gateway accepted the job. Check the gateway's console, then run: mgw jobs resolve @paper-boat" >&2
fi
exit "$code"
