#!/usr/bin/env bash
# Makes the documentation a site, site/index.html, which opens without a server: mkdocs in an environment of its own,
# .venv-docs, a minute the first time. A broken link or anchor is an error. Further arguments go to `mkdocs build`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh docs
export NO_MKDOCS_2_WARNING=1  # an announcement of the theme's authors
.venv-docs/bin/mkdocs build --strict "$@"  # with --quiet no warning would be an error
echo "open site/index.html"
