#!/usr/bin/env bash
# start-rclone.sh PORT FOLDER: rclone's S3 server on 127.0.0.1, in the foreground. It ignores If-None-Match.
# Keys: S3_ACCESS_KEY, S3_SECRET_KEY.
set -euo pipefail
mkdir -p "$2/objects"
export RCLONE_CONFIG=$2/rclone.conf
touch "$RCLONE_CONFIG"
exec "$(dirname "$0")/../.venv/bin/rclone" serve s3 --addr "127.0.0.1:$1" --auth-key "$S3_ACCESS_KEY,$S3_SECRET_KEY" \
    --log-level ERROR "$2/objects"
