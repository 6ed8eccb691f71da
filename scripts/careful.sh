#!/bin/sh
# One video under one name: run it as often as you like, you pay once.
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
  echo "It is unknown whether it was accepted. Look at the gateway's console, then: mgw jobs resolve @paper-boat" >&2
fi
exit "$code"
