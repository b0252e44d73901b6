"""The checker of flows finds what it is for: each rule is given a history with one thing wrong, and what is well or
excused it leaves alone."""

import random
from collections.abc import Callable

import pytest

from tests.chaos.flow_check import FLOW_RULES, check
from tests.chaos.flow_history import AWAY, OPEN, TWICE, UNLINKED, UNTOLD
from tests.chaos.flow_plan import Planner
from tests.chaos.flow_story import FlowStory, verdict


def innocent(s: FlowStory) -> None:
    by = s.chain(wants="in")
    s.ends(2, 11.0, got=[{"of": 1, "by": by}])
    s.node(3, "then", [1], wants="in")
    s.ends(3, 10.5, job="f3", got={"of": 1, "by": by})
    s.group()
    s.closing()
    s.node(7, plan="failed")
    s.push(7, 20.0, plan="failed")
    s.ends(7, 21.0, "failed")
    s.node(8, "after", [7], policy="run", wants="in")
    s.push(8, 20.1)
    s.ends(8, 22.0, got=[None])
    for n, policy, state in ((9, "fail", "failed"), (10, "cancel", "cancelled")):
        s.node(n, "after", [7], policy=policy)
        s.push(n, 20.2)
        s.stands(n, state, "j0007" if state == "failed" else "")
    s.node(11, "after", [10], policy="run")  # its parent ended without having run
    s.push(11, 20.3)
    s.ends(11, 23.0)
    s.node(12, plan="late", flow=3)  # tried anew it does well, and so does what had failed for it
    s.node(13, "after", [12], flow=3)
    s.push(12, 30.0, plan="late")
    s.push(13, 30.1)
    s.ends(12, 31.0, "failed")
    s.act("flow_retry", 82.0, flow=3, final=True)
    s.ends(12, 83.0)
    s.ends(13, 84.0)


def test_a_history_without_trouble_is_well() -> None:
    assert verdict(innocent).violations == {}
    assert not verdict(innocent).excused


def blocked_for_ever(s: FlowStory) -> None:
    s.chain()
    s.stands(2, "blocked")


def gone(s: FlowStory) -> None:
    s.chain()


def follower_never_came(s: FlowStory) -> None:
    s.node(1)
    s.push(1, 9.0)
    s.ends(1, 10.0)
    s.node(3, "then", [1])


def group_never_goes_on(s: FlowStory) -> None:
    s.group()


def follower_is_two_jobs(s: FlowStory) -> None:
    follower_never_came(s)
    s.ends(3, 10.5, job="f3")
    s.ends(3, 12.5, job="f33")


def closing_is_two_jobs(s: FlowStory) -> None:
    s.group()
    s.closing()
    s.ends(6, 14.0, job="again")


def child_runs_again(s: FlowStory) -> None:
    s.chain()
    s.ends(2, 11.0)
    s.ends(2, 13.0)


def nobody_made_it(s: FlowStory) -> None:
    s.ends(99, 10.0)


def before_its_parent(s: FlowStory) -> None:
    s.chain()
    s.ends(2, 10.05)


def before_one_of_two(s: FlowStory) -> None:
    s.node(3)
    s.push(3, 9.0)
    s.chain()
    s.node(2, "after", [1, 3])
    s.ends(2, 10.5)
    s.ends(3, 11.0)


def after_an_end_that_was_void(s: FlowStory) -> None:
    """The end at 10.1 was told too late: the job was another's by then, and ends at 12.1."""
    s.node(1)
    s.node(2, "after", [1])
    s.push(1, 9.0)
    s.push(2, 9.1)
    s.fault(10.02, 11.0, "stop", "daemon-0")
    s.run("j0001", 10.0)
    s.settle("j0001", 11.1, s.claim("j0001", 9.99), void=True)
    s.ends(1, 12.0, daemon="d0")
    s.ends(2, 11.5)


def follows_no_success(s: FlowStory) -> None:
    s.node(1, plan="failed")
    s.push(1, 9.0, plan="failed")
    s.ends(1, 10.0, "failed")
    s.node(3, "then", [1])
    s.ends(3, 10.5, job="f3")


def before_a_member(s: FlowStory) -> None:
    s.group()
    s.closing(11.05)


def other_result(s: FlowStory) -> None:
    s.chain(wants="in")
    s.ends(2, 11.0, got=[{"of": 1, "by": 999}])


def no_result(s: FlowStory) -> None:
    s.chain(wants="in")
    s.ends(2, 11.0, got=[None])


def results_in_another_order(s: FlowStory) -> None:
    s.node(3)
    s.push(3, 9.0)
    first, second = s.chain(), s.ends(3, 10.1)
    s.node(2, "after", [1, 3], wants="all")
    s.ends(2, 11.0, got=[{"of": 3, "by": second}, {"of": 1, "by": first}])


def list_of_one(s: FlowStory) -> None:
    by = s.chain(wants="in", one=True)
    s.ends(2, 11.0, got=[{"of": 1, "by": by}])


def member_without_its_result(s: FlowStory) -> None:
    s.group(wants="all")
    s.closing(got=[])


def ran_all_the_same(s: FlowStory) -> None:
    follows_no_success(s)
    s.node(3, "after", [1])
    s.push(3, 9.1)


def cancelled_instead_of_failed(s: FlowStory) -> None:
    ran_all_the_same(s)
    s.events = [e for e in s.events if e.get("job") != "f3" and e.get("job_id") != "f3"]
    s.events = [e for e in s.events if e.get("e") != "exec_end" or e["t"] < 10.5]
    s.stands(3, "cancelled")


def failed_for_nobody(s: FlowStory) -> None:
    s.chain()
    s.stands(2, "failed", "j0001")


def cancelled_for_nobody(s: FlowStory) -> None:
    s.chain()
    s.stands(2, "cancelled")


def not_tried_anew(s: FlowStory) -> None:
    s.node(1, plan="late")
    s.push(1, 9.0, plan="late")
    s.ends(1, 10.0, "failed")
    s.act("flow_retry", 82.0, final=True)


def taken_when_closed(s: FlowStory, wiped: bool = False) -> None:
    s.group(closed_t=10.2)
    s.closing()
    if wiped:
        s.fault(12.5, 13.0, "wipe", "store")
    s.node(14, flow=2, group="g2")
    s._counts += 1
    job = {"n": 14, "sha": "", "name": "step", "plan": "ok", "delay_s": 0, "priority": 1}
    s.add("push_invoke", 14.0, push=s._counts, daemon="daemon-0", jobs=[job], group="g2")
    s.add("push_ok", 14.1, push=s._counts, ids=["j0014"])
    s.ends(14, 15.0)


def never_at_rest(s: FlowStory) -> None:
    s.add("push_invoke", 50.0, push=500, daemon="daemon-1", jobs=[])


@pytest.mark.parametrize(
    ("plant", "broken"),
    [
        (blocked_for_ever, {"F1"}),
        (gone, {"F1"}),
        (follower_never_came, {"F1"}),
        (group_never_goes_on, {"F1"}),
        (follower_is_two_jobs, {"F2"}),
        (closing_is_two_jobs, {"F2"}),
        (nobody_made_it, {"F2"}),
        (child_runs_again, {"C4"}),
        (before_its_parent, {"F3"}),
        (before_one_of_two, {"F3"}),
        (after_an_end_that_was_void, {"F3"}),
        (follows_no_success, {"F3"}),
        (before_a_member, {"F4"}),
        (other_result, {"F5"}),
        (no_result, {"F5"}),
        (results_in_another_order, {"F5"}),
        (list_of_one, {"F5"}),
        (member_without_its_result, {"F5"}),
        (ran_all_the_same, {"F6"}),
        (cancelled_instead_of_failed, {"F6"}),
        (failed_for_nobody, {"F6"}),
        (cancelled_for_nobody, {"F6"}),
        (not_tried_anew, {"F6"}),
        (taken_when_closed, {"F7"}),
        (never_at_rest, {"F8"}),
    ],
)
def test_each_rule_finds_what_breaks_it_and_no_other_says_a_word(
    plant: Callable[[FlowStory], None], broken: set[str]
) -> None:
    found = verdict(plant)
    assert set(found.violations) == broken, found.text()


def test_every_rule_is_broken_above() -> None:
    assert set(FLOW_RULES) == {"F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8"}


def test_what_takes_too_long_to_rest_is_said() -> None:
    story = FlowStory()
    story.add("healed", 70.0)
    assert set(check(story.events).violations) == {"F8"}


# ------------------------------------------------------------ excuses, each where it ends


def test_a_parent_whose_journal_was_away_after_a_loss_may_be_taken_for_ended() -> None:
    def lost(s: FlowStory, *, away: bool) -> None:
        before_its_parent(s)
        s.fault(8.0, 8.5, "wipe", "store")
        if away:
            s.fault(9.5, 11.0, "kill", "daemon-0")

    told = verdict(lambda s: lost(s, away=True))
    assert (told.violations, told.excused) == ({}, {AWAY: 1})
    assert f"excused 1 times: {AWAY}" in told.text()
    assert set(verdict(lambda s: lost(s, away=False)).violations) == {"F3"}


def test_a_follower_may_come_twice_after_a_loss_alone() -> None:
    def lost(s: FlowStory) -> None:
        follower_is_two_jobs(s)
        s.fault(11.0, 11.5, "wipe", "store")

    told = verdict(lost)
    assert (told.violations, told.excused) == ({}, {TWICE: 1})


def test_what_was_pushed_again_while_its_journal_was_away_after_a_loss_may_be_two_jobs() -> None:
    def pushed_again(s: FlowStory, *, ran: bool, away: bool = False) -> None:
        s.node(1, key="flow-1")
        s.push(1, 9.0, key="flow-1")
        s.ends(1, 10.0)
        s.ends(1, 12.0, job="x1") if ran else s.stands(1, "cancelled", job="x1")
        if away:
            s.fault(9.0, 9.2, "wipe", "store")
            s.fault(9.5, 11.0, "kill", "daemon-0")

    assert "F2" in verdict(lambda s: pushed_again(s, ran=True)).violations
    told = verdict(lambda s: pushed_again(s, ran=True, away=True))
    assert (told.violations, told.excused) == ({}, {UNTOLD: 1})
    told = verdict(lambda s: pushed_again(s, ran=False))
    assert (told.violations, told.excused) == ({}, {})


def test_results_are_gone_with_a_journal_that_was_away_after_a_loss_alone() -> None:
    def results_gone(s: FlowStory, *, away: bool) -> None:
        s.chain()
        s.stands(2, "failed", "gone")
        if away:
            s.fault(9.0, 9.2, "wipe", "store")
            s.fault(9.5, 11.0, "kill", "daemon-0")

    assert set(verdict(lambda s: results_gone(s, away=False)).violations) == {"F6"}
    told = verdict(lambda s: results_gone(s, away=True))
    assert (told.violations, told.excused) == ({}, {AWAY: 1})


def test_what_a_success_made_is_not_found_from_it_after_a_loss() -> None:
    def not_found(s: FlowStory, *, wiped: bool) -> None:
        s.node(1)
        s.push(1, 9.0)
        s.ends(1, 10.0)
        s.node(3, "then", [1], plan="late")
        s.ends(3, 10.5, "failed", job="f3")
        s.act("flow_retry", 82.0, final=True)
        if wiped:
            s.fault(11.0, 11.5, "wipe", "store")

    assert set(verdict(lambda s: not_found(s, wiped=False)).violations) == {"F6"}
    told = verdict(lambda s: not_found(s, wiped=True))
    assert (told.violations, told.excused) == ({}, {UNLINKED: 1})


def test_a_store_that_lost_everything_may_open_a_group() -> None:
    told = verdict(lambda s: taken_when_closed(s, wiped=True))
    assert (told.violations, told.excused) == ({}, {OPEN: 1})


def test_who_is_cancelled_ends_as_it_likes_and_its_children_may_go_on() -> None:
    def cancel(s: FlowStory) -> None:
        s.chain(policy="run")
        s.stands(1, "cancelled")
        s.events = [e for e in s.events if not str(e.get("e")).startswith("exec")]
        s.act("flow_cancel", 9.5)
        s.ends(2, 9.8)

    assert verdict(cancel).violations == {}


def test_a_job_that_knows_its_parents_results_alone_is_known_by_its_key() -> None:
    def bare(s: FlowStory) -> None:
        by = s.chain(key="flow-2", wants="all")
        s.events = [e for e in s.events if e.get("e") != "push_invoke" or e["t"] < 9.1]
        job = {"n": 2, "sha": "", "name": "step", "plan": "ok", "delay_s": 0, "priority": 1, "key": "flow-2"}
        s.add("push_invoke", 9.1, push=2, daemon="daemon-0", jobs=[job])
        s.run("x2", 11.0, n=0, got=[{"of": 1, "by": by}])
        s.settle("x2", 11.2, s.claim("x2", 10.99))
        s.stands(0, "succeeded", job="x2", key="flow-2")

    assert verdict(bare).violations == {}


# ------------------------------------------------------------ the plans


def test_a_seed_gives_the_same_flows_and_everything_has_its_turn() -> None:
    def some(seed: int) -> list[str]:
        planner = Planner(random.Random(seed))
        return [str(planner.flow()) for _ in range(200)]

    assert some(3) == some(3)
    assert some(3) != some(4)
    planner = Planner(random.Random(3))
    flows = [planner.flow() for _ in range(300)]
    nodes = [node for flow in flows for node in flow.nodes()]
    assert {node.how for node in nodes} == {"root", "after", "then", "made", "group"}
    assert {node.policy for node in nodes} == {"fail", "cancel", "run"}
    assert {node.plan for node in nodes} == {"ok", "retry", "failed", "late"}
    assert {node.wants for node in nodes} == {"", "in", "all"}
    acts = {flow.act for flow in flows}
    assert acts == {"", "cancel", "flow_cancel", "group_cancel", "retry", "flow_retry", "group_retry"}
    assert any(len(node.parents) > 3 for node in nodes if node.how == "after")
    assert any(child.then for node in nodes for child in node.then), "chains are nested"
    assert any(flow.closed_twice for flow in flows)
