#!/usr/bin/env bash
# Installs what the tests run against, once: Ceph's S3 gateway from the system's packages, Azurite from pinned Node
# packages in .cache, the rest from pinned Python packages in .venv. Says nothing when everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
declare -A needs=([radosgw]=radosgw [radosgw-admin]=radosgw [ceph-mon]=ceph-mon [ceph-osd]=ceph-osd [ceph]=ceph-common
    [node]=nodejs [npm]=npm)
for tool in "${!needs[@]}"; do
    command -v "$tool" >/dev/null || missing+=("${needs[$tool]}")
done
if [ ${#missing[@]} -gt 0 ]; then
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    echo "installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" apt-get install -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null
fi
scripts/python.sh scripts/requirements.txt
scripts/node.sh scripts/azurite
