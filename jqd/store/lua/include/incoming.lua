-- Changes as scripts are told of them, one behind the other: life of the store that an edit was made in or nothing, revision, generation, two positions as of a copy or nothing, name,
-- digest, id, jobtype, priority, eligible_at_ms, row. Needs fail, order, heads, pages, gone.
-- Gives CHANGE: number of arguments of one; read_change(at, field): what `apply_change` takes, checked, from the argument `at`
-- on; `field` of the position that the journal's lane has.
local CHANGE = 12

local function read_change(at, field)
  local one = {
    life = ARGV[at], revision = number(ARGV[at + 1], 'revision'), generation = number(ARGV[at + 2], 'generation'),
    was_here = was_here(field, ARGV[at + 3], ARGV[at + 4]), name = ARGV[at + 5], digest = ARGV[at + 6], id = ARGV[at + 7],
    jobtype = ARGV[at + 8], priority = ARGV[at + 9], eligible_at_ms = number(ARGV[at + 10], 'eligible_at_ms'), row = ARGV[at + 11],
  }
  number(one.priority, 'priority')
  expect_ready(one.jobtype)
  return one
end
