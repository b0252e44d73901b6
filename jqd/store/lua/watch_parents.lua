#!lua flags=allow-oom
-- A job waits for others: it is told when they end.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, child, its tenant, then per parent: "=" and its pusher's own id, or its id; last field
--          of the journal that made it, or nothing
-- Returns  per parent, flat: its id, nothing for an own id that nobody has; how it ended: '' for not yet, '?' where no such job of that tenant is here; the last id
--          applied of its journal, or nothing
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(parents · log children)
--@include fail keys now counts order queues heads pages members holder move stands early life tries links
local child, tenant = ARGV[3], ARGV[4]
local FIRST, FIELDS = 5, 2

expect('linked', 'names', 'jobs', 'later', 'ended', 'dead', 'outcome', 'tries', 'tomb', 'early', 'applied', 'life')
expect_held_keys()
expect_life(ARGV[2])

for at = FIRST, #ARGV, FIELDS do
  if ARGV[at]:sub(1, 1) ~= '=' then
    expect_kind(children_key(ARGV[at]), 'children')
  end
end

local function parent_id(given)
  local name = given:match('^=(.*)$')
  return name and ((redis.call('HGET', K.names, name) or ''):match('^%d+ (%S+) ') or '') or not name and given
end

local answer = {}
for at = FIRST, #ARGV, FIELDS do
  local id, how = parent_id(ARGV[at]), '?'
  local row = id ~= '' and redis.call('HGET', K.jobs, id)
  local jobtype, stands = '', nil
  if row then
    jobtype, stands = how_stands(id)
  end
  if row and (jobtype:match('^(.-)\31') or '') == tenant then
    local has_ended = stands == 'succeeded' or stands == 'failed' or stands == 'cancelled'
    how = has_ended and stands or ''
    redis.call('ZADD', children_key(id), has_ended and 1 or 0, child)
    redis.call('ZADD', K.linked, 0, id)
  end
  answer[#answer + 1], answer[#answer + 2] = id, how
  answer[#answer + 1] = redis.call('HGET', K.applied, ARGV[at + 1]) or ''
end
return answer
