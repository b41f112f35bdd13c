"""Comparisons of trained agents: which trainings a study needs, what is kept of each, and the tables made of that."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from kept_fixtures import STUDY, keep_made_up
from matplotlib.figure import Figure
from matplotlib.image import imread
from paths import ROOT
from rich.console import Console

from crbc_lab.commands.compare import list_studies
from crbc_lab.plan.check import check_run
from crbc_lab.statistics import Estimate
from crbc_lab.studies.comparison import figures
from crbc_lab.studies.comparison.definition import GPUS, TUNING_SEED, load_study
from crbc_lab.studies.comparison.document import MARK, UNFINISHED, rebuilt, section
from crbc_lab.studies.comparison.figures import draw
from crbc_lab.studies.comparison.kept import best_candidates, best_of, find, read, validated
from crbc_lab.studies.comparison.markdown import fine_print, finished, scores, table, tuning_table
from crbc_lab.studies.comparison.markdown import rows as rows_of
from crbc_lab.studies.comparison.plan import check_plan, write_plan
from crbc_lab.studies.comparison.run import Runner
from crbc_lab.studies.comparison.trainings import trainings, tunings
from crbc_rl.errors import ConfigError
from crbc_rl.names import studies

# ---- definition -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", studies())
def test_every_shipped_study_can_be_read_and_names_its_trainings(name):
    study = load_study(name)
    for scale, settings in study.settings.items():
        for env, setting in settings.items():
            wanted = [one for _, _, one in tunings(study, scale, env)]
            wanted += trainings(study, scale, env, setting.seeds, {})
            places = {(one.place, one.digest) for one in wanted}
            assert len({place for place, _ in places}) == len(places), "two trainings have one place"


@pytest.mark.slow
@pytest.mark.parametrize("name", studies())
def test_every_training_at_the_papers_scale_is_sound_on_its_node(name):
    study = load_study(name)
    for env in study.settings.get("paper", {}):
        for config in {one.key: one.config for one in trainings(study, "paper", env, 1, {})}.values():
            check_run(config, gpus=GPUS["paper"])  # raises where it can never work


def test_studies_share_what_they_have_in_common():
    def places(name):
        return {one.place: one.digest for one in trainings(load_study(name), "lab", "sokoban", 3, {})}

    plain = Path("lab/sokoban/crbc/seed1")
    assert places("depth")[plain] == places("beta")[plain] == places("short")[plain]
    assert Path("lab/sokoban/crbc,depth=0/seed2") in places("depth")
    assert Path("lab/sokoban/crbc,beta=0.98/seed0") in places("beta")
    assert Path("lab/sokoban/grpo,rollout.group_size=4,rollout.num_groups=32/seed0") in places("group_size")


def test_the_budget_of_candidates_is_equal():
    wrong = {**STUDY, "variants": {**STUDY["variants"], "crbc": {"label": "CRBC", "candidates": [{}]}}}
    assert_refused(wrong, "an equal budget needs as many for each")
    budgets = {len(variant.candidates) for variant in load_study("main").variants.values()}
    assert budgets == {3}


@pytest.mark.parametrize("name", ["fair", "fair_households"])
def test_nothing_of_the_fair_study_is_one_method_s_alone(name):
    fair = load_study(name)
    assert len({json.dumps(variant.candidates) for variant in fair.variants.values()}) == 1
    assert {key for variant in fair.variants.values() for one in variant.candidates for key in one} == {"optim.lr"}
    for env in fair.settings["lab"]:
        configs = [one.config for one in trainings(fair, "lab", env, 1, {})]
        paid = [
            {key: config.credit.options.get(key) for key in ("invalid_penalty", "invalid_step_penalty", "invalid_cost")}
            for config in configs
        ]
        assert all(one == paid[0] for one in paid) and not paid[0]["invalid_cost"]
        assert len({config.seed for config in configs} | {0}) == 2, "seeds of their own"
        same = [config.model_dump(exclude={"credit": True, "env": {"kwargs": {"anchor"}}}) for config in configs]
        assert all(one == same[0] for one in same)


def test_what_a_plan_states_is_run_and_nothing_else(study, tmp_path):
    def needed(asked):
        return [one for _, _, one in tunings(asked, "lab", "sokoban")]

    check_plan(study, "lab", tmp_path, needed(study))  # none is stated
    path = write_plan(study, "lab", tmp_path)
    assert write_plan(study, "lab", tmp_path) == path
    check_plan(study, "lab", tmp_path, needed(study))
    setting = study.setting("lab", "sokoban")
    for candidates in ({}, {name: variant.candidates[1] for name, variant in study.variants.items()}):
        check_plan(study, "lab", tmp_path, trainings(study, "lab", "sokoban", setting.seeds, candidates))
    with pytest.raises(ConfigError, match="states the seeds 0 to 1 of sokoban, and not 2"):
        check_plan(study, "lab", tmp_path, trainings(study, "lab", "sokoban", 3, {}))
    changed = setting.model_copy(update={"set": {**setting.set, "optim.lr": 1e-5}})
    other = study.model_copy(update={"settings": {"lab": {"sokoban": changed}}})
    fewer = study.model_copy(update={"variants": {n: one for n, one in study.variants.items() if n != "grpo"}})
    tried = {n: one.model_copy(update={"candidates": one.candidates[:1]}) for n, one in study.variants.items()}
    untried = study.model_copy(update={"variants": tried})
    asks = study.model_copy(update={"asks": "another question?"})
    more = study.model_copy(
        update={"settings": {"lab": {"sokoban": setting.model_copy(update={"seeds": setting.seeds + 1})}}}
    )
    for changed, what in (
        (other, "sokoban/crbc"),
        (fewer, "sokoban"),
        (untried, r"sokoban/\S+"),
        (asks, "asks"),
        (more, "sokoban"),
    ):
        for use in (check_plan, write_plan, lambda *given: section(*given[:2], "sokoban", given[2], lambda *how: "")):
            with pytest.raises(ConfigError, match=f"states {what} otherwise: run it as it is stated"):
                use(changed, "lab", tmp_path)
    also = study.model_copy(update={"name": "also", "settings": {"lab": {"sokoban": setting, "old": setting}}})
    write_plan(also, "lab", tmp_path)
    check_plan(study.model_copy(update={"name": "also"}), "lab", tmp_path, needed(study))  # it has dropped a setting


def test_a_run_keeps_to_its_plan(study, tmp_path):
    write_plan(study, "lab", tmp_path)
    for _, _, one in tunings(study, "lab", "sokoban"):
        keep_made_up(one, tmp_path, [1, 0])
    runner = Runner(tmp_path / "runs", tmp_path, 1, Console(quiet=True))
    with pytest.raises(ConfigError, match="states the seeds 0 to 1 of sokoban, and not 2"):
        runner.study(study, "lab", "sokoban", 3)
    assert not (tmp_path / "runs").exists()


def test_what_is_known_already_cannot_be_stated(study, tmp_path):
    finished = next(iter(trainings(study, "lab", "sokoban", 1, {})))
    keep_made_up(finished, tmp_path, [1, 0])
    with pytest.raises(ConfigError, match="is finished in .*: what is known already cannot be stated beforehand"):
        write_plan(study, "lab", tmp_path)


def test_what_another_plan_stated_may_be_stated_again(study, tmp_path):
    write_plan(study, "lab", tmp_path)
    keep_made_up(next(iter(trainings(study, "lab", "sokoban", 1, {}))), tmp_path, [1, 0])
    again = study.model_copy(update={"name": "again", "power": "nine of ten"})
    path = write_plan(again, "lab", tmp_path)
    assert json.loads(path.read_text())["power"] == "nine of ten"


def test_a_plan_at_the_papers_scale_has_no_candidates(tmp_path):
    main = load_study("main")
    write_plan(main, "paper", tmp_path)
    for env in main.settings["paper"]:
        check_plan(main, "paper", tmp_path, trainings(main, "paper", env, 3, {}))


def test_a_panel_may_have_a_task_twice(study, tmp_path):
    """As the paper's panels have. Its two episodes have seeds of their own, so they count as two."""
    write_plan(study, "lab", tmp_path)
    for number, training in enumerate([*(one for _, _, one in tunings(study, "lab", "sokoban"))]):
        keep_made_up(training, tmp_path, [number % 2, 0, 0, 0], tasks=[7, 3, 7, 9])
    chosen = best_candidates(study, "lab", "sokoban", tmp_path)
    for training in trainings(study, "lab", "sokoban", 2, chosen):
        keep_made_up(training, tmp_path, [1, 1, 0, training.seed % 2], tasks=[7, 3, 7, 9])
    shown = section(study, "lab", "sokoban", tmp_path, lambda name, title, draw: "")
    assert "62.5 (" in shown and "3 test tasks" in shown


def test_a_table_of_fewer_seeds_than_are_stated_says_so(study, tmp_path):
    setting = study.setting("lab", "sokoban").model_copy(update={"seeds": 3})
    three = study.model_copy(update={"settings": {"lab": {"sokoban": setting}}})
    write_plan(three, "lab", tmp_path)
    for number, training in enumerate([*(one for _, _, one in tunings(three, "lab", "sokoban"))]):
        keep_made_up(training, tmp_path, [number % 2, 0])
    chosen = best_candidates(three, "lab", "sokoban", tmp_path)
    for training in trainings(three, "lab", "sokoban", 5, chosen):
        if training.seed != 2:
            keep_made_up(training, tmp_path, [training.seed % 2, 1])
    shown = section(three, "lab", "sokoban", tmp_path, lambda name, title, draw: "")
    assert shown.startswith("Not finished, so without verdicts. Of 3 seeds are trained: GRPO 2, CRBC 2.")
    assert "2 seeds (0, 1)" in shown and re.search(r"\| [-+]\d+\.\d \|  \|  \| 30\.0 \|", shown)
    assert "Five points" not in shown
    assert "separated" not in shown, "who looks at every number of seeds finds something by chance"
    lacking = next(one for one in trainings(three, "lab", "sokoban", 3, chosen) if one.seed == 2)
    keep_made_up(lacking, tmp_path, [1, 1])
    for training in trainings(three, "lab", "sokoban", 3, chosen):
        keep_made_up(training, tmp_path, [training.seed % 2, 1])
    shown = section(three, "lab", "sokoban", tmp_path, lambda name, title, draw: "")
    assert "Not finished" not in shown and ", not separated | " in shown and "Five points" in shown


def test_candidates_are_shown_as_they_come_and_chosen_when_all_are_tried(study, tmp_path):
    def shown():
        return section(study, "lab", "sokoban", tmp_path, lambda name, title, draw: "")

    assert shown() == "Not run yet."
    needed = [one for _, _, one in tunings(study, "lab", "sokoban")]
    for done, training in enumerate(needed, 1):
        keep_made_up(training, tmp_path, [1, 0], (0.5, 0.25))
        assert shown().startswith(f"Not finished: {done} of 4 candidates are tried.\n\nCandidates")
        assert ("**" in shown()) is (done in (2, 3, 4)) and shown().count("not yet") == 4 - done
    keep_made_up(next(trainings(study, "lab", "sokoban", 1, {})), tmp_path, [1, 0])
    assert shown().startswith("Not finished, so without verdicts. Of 2 seeds are trained: GRPO 1, CRBC 0.")


def test_a_candidate_is_judged_by_its_trained_agents_alone():
    def judged(updates, success):
        return validated(SimpleNamespace(validation={"update": updates, "success": success}))

    assert judged([0, 5], [0.25, 0.75]) == 0.75
    assert judged([0, 4, 8, 12], [0.0, 0.125, 0.25, 0.75]) == 0.5


def test_candidates_that_rounding_alone_tells_apart_are_equal():
    assert best_of([np.mean([0.60833, 0.60833]), np.mean([0.6, 0.61667])]) == 0
    assert best_of([0.402345 - 1e-16, 0.402345]) == 0
    assert best_of([0.6, 0.6 + 1 / 4_096, 0.5]) == 1


def test_the_leads_of_one_setting_are_set_against_those_of_another(study, tmp_path):
    """CRBC leads by half of the tasks in one, and by a quarter in the other, which has one more seed."""
    alone = study.setting("lab", "sokoban").model_copy(update={"seeds": 3})
    charged = alone.model_copy(update={"seeds": 2, "less": "sokoban", "set": {"updates": 9}})
    both = study.model_copy(update={"settings": {"lab": {"sokoban": alone, "charged": charged}}})

    def shown():
        return section(both, "lab", "charged", tmp_path, lambda name, title, draw: "")

    for env, crbc, seeds in (("charged", [1, 1, 0, 0], 2), ("sokoban", [1, 0, 0, 0], 3)):
        for _, _, training in tunings(both, "lab", env):
            keep_made_up(training, tmp_path, [1, 0, 0, 0])
        for training in trainings(both, "lab", env, seeds, best_candidates(both, "lab", env, tmp_path)):
            assert "less that" not in shown(), "both are finished first"
            method, seed = training.config.credit.method, training.seed
            keep_made_up(training, tmp_path, crbc if method == "crbc" else [0, 0, 0, int(seed == 2)])
    assert "| method | difference, less that in sokoban |" in shown()
    assert "\n| GRPO | -25.0 (" in shown() and "Over the 2 seeds that both have" in shown()
    assert "less that" not in section(both, "lab", "sokoban", tmp_path, lambda name, title, draw: "")


def test_the_seeds_of_a_table_are_not_those_of_the_candidates():
    wrong = {"lab": {"sokoban": {**STUDY["settings"]["lab"]["sokoban"], "first_seed": 990, "seeds": 11}}}
    assert_refused({**STUDY, "settings": wrong}, "above 1000, the seed that candidates are chosen with")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reference": "grbc"}, "did you mean 'crbc'"),
        (
            {
                "variants": {**STUDY["variants"], "a": {"label": "A", "reference": "grpo"}},
                "settings": {"lab": {"x": {"config": "x", "variants": ["crbc", "a"]}}},
            },
            "variant 'a' is compared with 'grpo', which must be another of",
        ),
        ({"settings": {"labs": {}}}, "settings.labs"),
        ({"settings": {"lab": {"x": {"config": "x", "less": "y"}}}}, "less: 'y' is no other setting of this scale"),
        ({"settings": {"lab": {"x": {"config": "x", "less": "x"}}}}, "less: 'x' is no other setting of this scale"),
        (
            {"settings": {"lab": {"x": {"config": "x", "less": "y"}, "y": {"config": "x", "first_seed": 2}}}},
            "less: 'y' is no other setting of this scale with two seeds of 'x'",
        ),
        ({"settings": {"lab": {"x": {"config": "x", "variants": []}}}}, "variants"),
    ],
)
def test_a_wrong_study_is_one_line_that_names_the_key(change, said):
    assert_refused({**STUDY, **change}, said)


def test_a_study_s_name_is_that_of_its_files(tmp_path):
    (file := tmp_path / "fair.v2.yaml").write_text(yaml.safe_dump(STUDY))
    with pytest.raises(ConfigError, match="a study's name has letters, digits, - and _; rename the file"):
        load_study(str(file))


def test_no_training_has_the_seed_that_candidates_are_chosen_with(study):
    late = study.setting("lab", "sokoban").model_copy(update={"first_seed": 998, "seeds": 2})
    late = study.model_copy(update={"settings": {"lab": {"sokoban": late}}})
    assert {one.seed for one in trainings(late, "lab", "sokoban", 20, {})} == {998, 999}


def assert_refused(data, said):
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder, "wrong.yaml")).write_text(yaml.safe_dump(data))
        with pytest.raises(ConfigError, match=said) as caught:
            load_study(str(file))
    assert "wrong.yaml" in str(caught.value) and "\n" not in str(caught.value)


# ---- what determines a training --------------------------------------------------------------------


def test_the_digest_is_of_what_is_learned(study):
    one, other = list(trainings(study, "lab", "sokoban", 2, {}))[1::2]
    assert one.seed == 0 and other.seed == 1 and one.digest != other.digest
    named = one.config.model_copy(update={"name": "other", "save_every": 7})
    assert type(one)("lab", "sokoban", "crbc", named).digest == one.digest
    longer = one.config.model_copy(update={"updates": 3})
    assert type(one)("lab", "sokoban", "crbc", longer).digest != one.digest


def test_seeds_come_before_variants_so_that_an_early_end_has_all_of_them(study):
    assert [(one.seed, one.config.credit.method) for one in trainings(study, "lab", "sokoban", 2, {})] == [
        (0, "grpo"),
        (0, "crbc"),
        (1, "grpo"),
        (1, "crbc"),
    ]


def test_candidates_are_chosen_by_validation_and_seeds_of_their_own(study, tmp_path):
    for name, number, training in tunings(study, "lab", "sokoban"):
        assert training.seed == TUNING_SEED and training.config.updates == 1
        # GRPO's candidates are equal at the end: the first wins. CRBC's second is better in the last two alone.
        better = (0.0, 0.5, 0.7) if (name, number) == ("crbc", 1) else (0.9, 0.4, 0.4)
        keep_made_up(training, tmp_path, [1, 0], better)
    assert best_candidates(study, "lab", "sokoban", tmp_path) == {"grpo": {}, "crbc": {}}
    assert "**`crbc` 60.0**" in tuning_table(study, "lab", "sokoban", tmp_path)


def test_the_list_counts_the_trainings_of_the_candidates_that_won(study, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("crbc_lab.commands.compare.studies", lambda: [str(study.file)])

    def finished():
        list_studies(tmp_path, Console(width=200))
        return int(re.search(r"lab +│ sokoban +│ 8 +│ (\d) ", capsys.readouterr().out)[1])

    for _, number, training in tunings(study, "lab", "sokoban"):
        keep_made_up(training, tmp_path, [1, 0], (0.5, 0.5 + 0.1 * number))
    chosen = best_candidates(study, "lab", "sokoban", tmp_path)
    assert chosen["grpo"] == {"optim.lr": 1e-4}, "not its own default"
    for done, training in enumerate(trainings(study, "lab", "sokoban", 2, chosen), 4):
        assert finished() == done
        keep_made_up(training, tmp_path, [1, 0])
    assert finished() == 8


def test_missing_candidates_are_no_choice(study, tmp_path):
    with pytest.raises(ConfigError, match="run its study again"):
        best_candidates(study, "lab", "sokoban", tmp_path)
    assert rows(study, "lab", "sokoban", tmp_path) == []


def rows(study, scale, env, results):
    return rows_of(study, finished(study, scale, env, results))


# ---- tables ---------------------------------------------------------------------------------------


@pytest.fixture
def played(study, tmp_path):
    """Results in which CRBC wins 3 of 4 tasks, and GRPO 1 or 2, with two seeds."""
    for _, _, training in tunings(study, "lab", "sokoban"):
        keep_made_up(training, tmp_path, [1, 0, 0, 0])
    won = {("grpo", 0): [1, 0, 0, 0], ("grpo", 1): [1, 1, 0, 0], ("crbc", 0): [1, 1, 1, 0], ("crbc", 1): [1, 1, 0, 1]}
    chosen = best_candidates(study, "lab", "sokoban", tmp_path)
    for training in trainings(study, "lab", "sokoban", 2, chosen):
        keep_made_up(training, tmp_path, won[training.config.credit.method, training.seed])
    return tmp_path


def test_rows_are_paired_by_seed_and_task(study, played):
    grpo, crbc = rows(study, "lab", "sokoban", played)
    assert (grpo.label, crbc.label, crbc.beside) == ("GRPO", "CRBC", None)
    assert grpo.success.value == pytest.approx(3 / 8) and crbc.success.value == pytest.approx(6 / 8)
    assert grpo.beside.difference.value == pytest.approx(-3 / 8)
    assert not grpo.beside.separated  # four tasks and two seeds tell nothing
    assert (grpo.area, grpo.start) == pytest.approx((0.3, 0.25))  # validation goes from 0.2 to 0.4 in one step


def test_a_table_has_the_figures_of_its_rows(study, played):
    """With p-values on either side of 0.001, and corrected ones above those that they correct."""
    row, reference = rows(study, "lab", "sokoban", played)
    difference = Estimate(-0.125, -0.25, 0.0125)
    beside = replace(row.beside, difference=difference, p=0.03, corrected=0.06, smallest=0.415)
    row = replace(row, success=Estimate(0.375, 0.1, 0.7), area=0.321, beside=beside)
    sure = replace(row, beside=replace(beside, p=0.0004, corrected=0.0008, smallest=0.125))
    assert table([row, sure]).splitlines()[2:] == [
        f"| GRPO | 37.5 (10.0 to 70.0) | -12.5 (-25.0 to +1.2){verdict} | 32.1 |"
        for verdict in (", not separated | 0.060 | 41.5", " | < 0.001 | 12.5")
    ]
    for kept, minutes in zip([*row.kept, *reference.kept], (1.0, 2.0, 4.0, 40.0), strict=True):
        kept.manifest["minutes"].update(training=minutes, evaluation=1.0)
    reference.kept[1].manifest["commit"] = ""  # of a run that was begun before crbc wrote it down
    row.kept[0].panel.update(content=["a", "b", "c", "c"], cluster=["x", "x", "y", "y"])
    row = replace(row, beside=replace(beside, error=0.05 / 2.8, freedom=1e9))  # found in four of five, alone
    assert fine_print([row, reference]) == (
        "2 seeds (0, 1); 4 test tasks, 3 of them different, in 2 clusters (panel `made`); before training 25.0 %; a "
        "training took 4 minutes (median; at most 41), side by side with others. Five points would be found in 80 "
        "of 100 such studies. Commits: abc, not known."
    )
    assert "found in 71 of" in fine_print([row, row, reference])  # by two methods, each at 2.5 %


def test_rows_may_have_references_of_their_own(study, played):
    """Both variants of CRBC are compared: each with the row that it names, by p-values corrected for both."""
    path = played / "own.yaml"
    again = {"again": {"label": "CRBC again", "reference": "grpo", "candidates": [{"credit.crbc.beta": 0.95}, {}]}}
    path.write_text(yaml.safe_dump({**STUDY, "variants": STUDY["variants"] | again}, sort_keys=False))
    own = load_study(str(path))
    found = {row.name: row for row in rows(own, "lab", "sokoban", played)}
    assert {name: row.reference for name, row in found.items()} == {"grpo": "CRBC", "crbc": "", "again": "GRPO"}
    grpo, same = found["grpo"].beside, found["again"].beside
    assert same.difference.value == -grpo.difference.value == pytest.approx(3 / 8)
    assert same.p == grpo.p and same.corrected == pytest.approx(min(1.0, 2 * same.p))
    assert " from GRPO, not separated |" in table(list(found.values()))
    assert " from " not in table(rows(study, "lab", "sokoban", played))


def test_scores_are_means_over_the_seeds(study, played):
    found = rows(study, "lab", "sokoban", played)
    found[1].kept[0].end.update({"success/heat": 0.5})
    found[1].kept[1].end.update({"success/heat": 0.25})
    assert scores(found[1:]).splitlines()[0::2] == [
        "| method | return | return by step | heat, % |",
        "| CRBC | 7.50 | 2.00 | 37.5 |",
    ]


def test_a_seed_that_only_one_method_has_is_left_out(study, played):
    chosen = best_candidates(study, "lab", "sokoban", played)
    last = list(trainings(study, "lab", "sokoban", 2, chosen))[-1]
    (played / last.place).with_suffix(".json").unlink()
    assert rows(study, "lab", "sokoban", played) == []  # one shared seed is no comparison


def test_a_method_with_one_seed_is_left_out_until_it_has_two(study, played):
    third = {"gigpo": {"label": "GiGPO", "set": {"credit.method": "gigpo"}}}
    (path := played / "three.yaml").write_text(yaml.safe_dump({**STUDY, "variants": STUDY["variants"] | third}))
    three = load_study(str(path))
    chosen = best_candidates(three, "lab", "sokoban", played)
    for training in trainings(three, "lab", "sokoban", 2, chosen):
        if training.config.credit.method == "gigpo":
            assert [row.name for row in rows(three, "lab", "sokoban", played)] == ["crbc", "grpo"]
            keep_made_up(training, played, [1, 0, 0, 0])
    assert [row.name for row in rows(three, "lab", "sokoban", played)] == ["crbc", "gigpo", "grpo"]


def test_results_of_other_settings_do_not_count(study, played):
    training = next(trainings(study, "lab", "sokoban", 1, best_candidates(study, "lab", "sokoban", played)))
    path = (played / training.place).with_suffix(".json")
    path.write_text(path.read_text().replace(training.digest, "0" * 64))
    assert find(training, played) is None


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"success": "10"}'])
def test_a_damaged_file_is_named(study, played, damage):
    training = next(trainings(study, "lab", "sokoban", 1, best_candidates(study, "lab", "sokoban", played)))
    path = (played / training.place).with_suffix(".json")
    path.write_text(damage)
    with pytest.raises(ConfigError, match="seed0.json"):
        read(path)


def test_a_picture_has_every_row_and_returns_where_all_have_them(study, played, tmp_path):
    found = rows(study, "lab", "sokoban", played)
    draw(found, "two", tmp_path / "made/two.png")
    assert (tmp_path / "made/two.png").stat().st_size > 5_000
    older = imread(tmp_path / "made/two.png")
    for kept in (kept for row in found for kept in row.kept):
        kept.validation["reward_by_step"] = [1.0] * len(kept.validation["update"])
    draw(found, "two", tmp_path / "made/two.png")
    returned = imread(tmp_path / "made/two.png")
    assert older.min() == 0 and returned.shape[1] == 1800 and older.shape[1] == 1400


@pytest.mark.parametrize(("seeds", "bands"), [(2, 0), (3, 1)])
def test_a_curve_is_the_mean_and_its_band_needs_three_seeds(seeds, bands):
    ax = Figure().subplots()
    figures._curve(ax, [([0, 5], [0.1 * seed**2, 0.5]) for seed in range(seeds)], "CRBC", "black")
    (line,) = ax.lines
    assert line.get_ydata().tolist() == pytest.approx([{2: 0.05, 3: 0.5 / 3}[seeds], 0.5])
    assert len(ax.collections) == bands


def test_labels_of_an_axis_are_its_ticks() -> None:
    ax = Figure().subplots()
    ax.set_ylim(0.484, 0.69)  # where matplotlib's own ticks are 2.5 points apart
    figures._in_percent(ax.yaxis)
    labels = [f"{100 * tick:g}%" for tick in ax.get_yticks()]
    assert len(labels) > 3 and ax.yaxis.get_major_formatter().format_ticks(ax.get_yticks()) == labels


def test_a_document_is_made_anew_between_its_marks(tmp_path):
    text = "before\n<!-- results: main/lab/sokoban -->\nold\n<!-- end -->\nafter\n"
    made = rebuilt(text, tmp_path, lambda name, title, draw: name)
    assert made == text.replace("old", UNFINISHED)
    assert rebuilt(made, tmp_path, lambda name, title, draw: name) == made
    with pytest.raises(ConfigError, match="a scale is one of"):
        rebuilt(text.replace("lab", "lap"), tmp_path, lambda name, title, draw: name)


SHOWN = ("short/lab/all", "short/lab/sokoban", "coverage/lab/sokoban", "runtime/lab/sokoban")
"""Marks of the document of each kind: an overview, a comparison, a coverage and a runtime."""


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        pytest.param("results.md", SHOWN, id="each kind"),
        pytest.param("agents.md", (), id="agents"),
        pytest.param("results.md", (), id="all", marks=pytest.mark.full),
    ],
)
def test_a_document_of_results_is_what_the_results_make(name, marks):
    path = ROOT / "docs" / name
    shown = []

    def picture(name, title, draw):
        shown.append(name)
        return f"![{title}]({path.stem}/{name}.png)"

    text = path.read_text()
    if marks:
        text = "\n".join(part[0] for part in MARK.finditer(text) if "/".join(part.groups()) in marks)
    assert rebuilt(text, ROOT / "results", picture) == text, "run: crbc results rebuild"
    assert shown and all((path.with_suffix("") / f"{name}.png").is_file() for name in shown)


def test_every_kept_result_can_be_read_and_says_how_it_was_made():
    found = [read(path) for path in sorted((ROOT / "results").rglob("seed*.json"))]
    assert found
    for kept in found:
        assert {"crbc", "commit", "processor", "cores", "revision", "config", "minutes"} <= kept.manifest.keys()
        assert kept.end["success"] == pytest.approx(kept.success.mean(), abs=1e-4)
        assert "/" not in kept.manifest["config"]["model"], "no path of a machine"
