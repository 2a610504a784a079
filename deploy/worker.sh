#!/bin/sh
# The work pool, the deployments of prefect.yaml, and a process that runs one of them at a time.
set -eu
prefect work-pool inspect local >/dev/null 2>&1 || prefect work-pool create local --type process
prefect --no-prompt deploy --all
exec prefect worker start --pool local --limit 1 --with-healthcheck
