#!/usr/bin/env bash
# start-azurite.sh PORT FOLDER: Azurite, a double of Azure's blob store, on 127.0.0.1, in the foreground, in memory.
# Account: AZURE_ACCOUNT, AZURE_KEY (base64).
set -euo pipefail
azurite=$(cd "$(dirname "$0")/.." && pwd)/.cache/azurite/node_modules/azurite/dist/src/blob/main.js
export AZURITE_ACCOUNTS=$AZURE_ACCOUNT:$AZURE_KEY
cd "$2"
exec node "$azurite" --blobHost 127.0.0.1 --blobPort "$1" \
    --inMemoryPersistence --silent --skipApiVersionCheck --disableTelemetry
