-- Changes as scripts are told of them, one behind the other: revision, generation, two positions as of a copy or nothing, name,
-- digest, id, jobtype, priority, eligible_at_ms, row. Needs fail, order, heads, pages, gone.
-- Gives CHANGE: number of arguments of one; read_change(at, field): what `apply_change` takes, checked, from the argument `at`
-- on; `field` of the position that the journal's lane has.
local CHANGE = 11

local function read_change(at, field)
  local one = {
    revision = number(ARGV[at], 'revision'), generation = number(ARGV[at + 1], 'generation'),
    was_here = was_here(field, ARGV[at + 2], ARGV[at + 3]), name = ARGV[at + 4], digest = ARGV[at + 5], id = ARGV[at + 6],
    jobtype = ARGV[at + 7], priority = ARGV[at + 8], eligible_at_ms = number(ARGV[at + 9], 'eligible_at_ms'), row = ARGV[at + 10],
  }
  number(one.priority, 'priority')
  expect_ready(one.jobtype)
  return one
end
