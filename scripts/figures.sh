#!/usr/bin/env bash
# Makes the figures of the documents anew, in order: what a changed world, panel or anchor makes out of date. About three
# hours on two cores; each part goes on where it stopped. The pictures need Chromium.
#
#     bash scripts/figures.sh                 # all parts
#     bash scripts/figures.sh main credit     # these parts
#
#   warmstart   warmstarts/: the weights that the three tiny agents begin with; 40 minutes
#   main        README.md (results) and docs/report.png; two more seeds, printed
#   agents      docs/results/short-lab.png and its tables: each agent with CRBC and with GRPO, three seeds
#   credit      docs/credit/accuracy.md (tables) and credit_accuracy.png
#   learning    docs/credit/learning.md and docs/results.md (tables), and learning.png
#   splits      printed, for the tables of docs/sokoban.md
#   sb3         docs/adapters/sb3_credit.jsonl and .png; prints the table of docs/adapters/sb3.md
#   site        docs/webshop_site.png, webshop_phone.png, and docs/pictures/ of every environment
#   front       docs/front.png, from results/, and docs/credit/example.png
#   trl         printed, for the table of docs/adapters/trl.md; needs the environment of `bash scripts/adapter.sh trl`
#
# What is printed is put into its document by hand, with the sentences around it, which may no longer hold.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs=runs/figures

warmstart() {
    local env
    for env in sokoban alfworld webshop; do
        .venv/bin/crbc warmstart "configs/warmstart_$env.yaml"
    done
}

main() {
    local seed
    for seed in 0 1 2; do
        .venv/bin/crbc train configs/sokoban_boxes.yaml --seed "$seed" --run "$runs/main-$seed" --start-or-resume
    done
    .venv/bin/python scripts/figures.py main "$runs/main-0"
}

agents() {
    .venv/bin/crbc study short
    .venv/bin/crbc results rebuild
}

credit() {
    .venv/bin/crbc study credit-accuracy --world all --out "$runs/credit"
    .venv/bin/python scripts/accuracy_figure.py "$runs/credit/credit_accuracy.json" docs/credit/credit_accuracy.png
    .venv/bin/python scripts/figures.py credit "$runs/credit/credit_accuracy.json"
}

learning() {
    local study
    for study in results/learning*/plan.json results/learning_all/*/plan.json; do # each as it was stated
        .venv/bin/crbc study learning --out "$(dirname "$study")"
    done
    .venv/bin/crbc results rebuild
}

splits() {
    .venv/bin/crbc bench splits CRBC-Sokoban-v0 --train-tasks 4800
    .venv/bin/crbc bench splits CRBC-Sokoban-v0 --train-tasks 4800 --set panel=paper || true  # its leak is an error
}

sb3() { .venv/bin/python -m benchmarks.sb3_credit; }

front() { .venv/bin/python scripts/front_picture.py; }

site() {
    .venv/bin/python scripts/site_pictures.py
    .venv/bin/python scripts/environment_pictures.py
}

trl() {
    local seed
    for seed in 0 1 2; do
        .venv-trl/bin/python examples/trl_grpo.py --updates 10 --test 64 --seed "$seed"
    done
}

bash scripts/setup.sh dev
for part in "${@:-warmstart}"; do
    declare -F "$part" > /dev/null || { echo "no part $part: warmstart, main, agents, credit, learning, splits, sb3, site, front, trl" >&2; exit 2; }
done
if [[ $# -eq 0 ]]; then set -- warmstart main agents credit learning splits sb3 site front trl; fi
for part in "$@"; do
    echo "== $part"
    "$part"
done
