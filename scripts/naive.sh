#!/bin/sh
# What not to do: if the response to a submission is lost, this script pays again.
#   mgw sandbox exec --verify --fault submit-reply-lostx1 -- scripts/naive.sh
set -u

submit() {
  curl --silent --show-error --fail --max-time 20 \
    -H "Authorization: Bearer $MGW_API_KEY" -H 'Content-Type: application/json' \
    -d '{"model":"vendor-h3-mini","prompt":"a paper boat at sea","duration":5}' \
    "$MGW_BASE_URL/v1/video/generations"
}

submit || submit || submit
