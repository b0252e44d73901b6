-- Changes as scripts are told of them, one behind the other: 1 when it follows another content, life of the store that an edit was
-- made in or nothing, revision, generation, two positions as of a copy or nothing, name, digest, id, jobtype, priority, eligible_at_ms,
-- expires_at_ms, row. Needs fail, order, heads, pages, gone.
-- Gives CHANGE: number of arguments of one; read_change(at, field): what `apply_change` takes, checked, from the argument `at`
-- on; `field` of the position that the journal's lane has.
local CHANGE = 14

local function read_change(at, field)
  local one = {
    follows = ARGV[at] == '1', life = ARGV[at + 1], revision = number(ARGV[at + 2], 'revision'), generation = number(ARGV[at + 3], 'generation'),
    was_here = was_here(field, ARGV[at + 4], ARGV[at + 5]), name = ARGV[at + 6], digest = ARGV[at + 7], id = ARGV[at + 8],
    jobtype = ARGV[at + 9], priority = ARGV[at + 10], eligible_at_ms = number(ARGV[at + 11], 'eligible_at_ms'), expires_at_ms = number(ARGV[at + 12], 'expires_at_ms'), row = ARGV[at + 13],
  }
  number(one.priority, 'priority')
  expect_ready(one.jobtype)
  return one
end
