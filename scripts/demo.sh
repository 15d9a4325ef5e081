#!/usr/bin/env bash
# A training that dies and comes back: a small GPT on 2 ranks, one of which is killed, ends bit for bit where an undisturbed
# one ends; its checkpoint is loaded on 3 ranks and listed, and four figures are printed. Everything is written to one
# temporary folder. EVERSTEP_DEMO_SEED chooses who is killed and when.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/python.sh scripts/torch-requirements.txt
scripts/python.sh scripts/python-requirements.txt
scripts/python-package.sh
exec .venv/bin/python scripts/demo.py
