#!/usr/bin/env bash
# The tests, on all cores. Further arguments go to pytest, for example: bash scripts/test.sh -m "not slow"
# ALFWorld's own engine, which ours is held against, is compiled when it is installed.
for tool in c++ make cmake; do
    if ! command -v "$tool" >/dev/null; then
        echo "the tests need a C++ compiler, make and cmake; $tool is missing. On Debian: apt-get install build-essential cmake" >&2
        exit 1
    fi
done
# The shop's web site is driven through a real browser.
browser="apt-get install -y --no-install-recommends chromium chromium-driver"
if ! command -v chromedriver >/dev/null || ! command -v chromium chromium-browser google-chrome >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing Chromium and its driver (about a minute)"
        { apt-get update -qq && $browser; } >/dev/null || { echo "could not install them: $browser" >&2; exit 1; }
    else
        echo "the tests need Chromium and chromedriver. On Debian: sudo $browser" >&2
        exit 1
    fi
fi
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh" dev
# One thread of linear algebra for each of pytest's workers, which are as many as there are cores.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec .venv/bin/python -m pytest --numprocesses auto --dist worksteal "$@"
