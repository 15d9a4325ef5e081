#!/usr/bin/env bash
# start-ministack.sh PORT FOLDER: ministack's S3 on 127.0.0.1, in the foreground.
set -euo pipefail
mkdir -p "$2/objects" "$2/tmp"
export GATEWAY_PORT=$1 MINISTACK_HOST=127.0.0.1 BIND_HOST=127.0.0.1 SERVICES=s3 DOCKER_HOST=
export S3_PERSIST=1 S3_DATA_DIR=$2/objects TMPDIR=$2/tmp
exec "$(dirname "$0")/../.venv/bin/ministack"
