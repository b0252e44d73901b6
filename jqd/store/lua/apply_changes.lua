#!lua flags=allow-oom
-- Brings changes from a journal and moves the position of their lane, in one step. A full store takes them, too: no daemon may
-- claim while an acknowledged change is missing (docs/adr/0010), so no job would end and make room. It gives no new revisions.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, position field, from, to, history_max, then per change: 1 when it follows another content, life of the store that an edit was
--          made in or nothing, revision, generation, two positions as of a copy or nothing, name, digest, id, jobtype, priority, eligible_at_ms,
--          expires_at_ms, row
-- Returns  number of jobs that were new
-- Errors   JQD_POSITION, JQD_STORE_CHANGED, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(changes · (members + log waiting)), and the bytes
--@include fail keys now counts order queues heads pages position holder move stands early gone tries permits limits parked results change expire exchange
local now_ms = clock(ARGV[1])
local field, from, to = ARGV[2], ARGV[3], ARGV[4]
local history_max = number(ARGV[5], 'history_max')
local FIRST, FIELDS = 6, 14

results.expect()
expect('jobs', 'types', 'heads', 'later', 'tries', 'ended', 'dead', 'outcome', 'tomb', 'applied', 'early', 'names', 'generation', 'life', 'fence')
expect_held_keys()
if not at_position(field, from, to) then
  return 0
end
if (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  fail('JQD_ARGUMENT', 'changes')
end
local changes = {}
for at = FIRST, #ARGV, FIELDS do
  local one = {
    follows = ARGV[at] == '1', life = ARGV[at + 1], revision = number(ARGV[at + 2], 'revision'), generation = number(ARGV[at + 3], 'generation'),
    was_here = was_here(field, ARGV[at + 4], ARGV[at + 5]), name = ARGV[at + 6], digest = ARGV[at + 7], id = ARGV[at + 8],
    jobtype = ARGV[at + 9], priority = ARGV[at + 10], eligible_at_ms = number(ARGV[at + 11], 'eligible_at_ms'), expires_at_ms = number(ARGV[at + 12], 'expires_at_ms'), row = ARGV[at + 13],
  }
  number(one.priority, 'priority')
  expect_ready(one.jobtype)
  changes[#changes + 1] = one
end

local added = 0
for _, one in ipairs(changes) do
  added = added + apply_change(one, now_ms, history_max)
end
count_watched()
write_counts(now_ms)
redis.call('HSET', K.applied, field, to)
return added
