#!lua flags=allow-oom
-- Jobs wait for others: they are told when these end.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, then per pair: child, its tenant, "=" and the parent's own id, or its id; last field
--          of the journal that made it, or nothing
-- Returns  per pair, flat: id of the parent, nothing for an own id that nobody has; how it ended: '' for not yet, '?' where no such job of that tenant is here;
--          the last id applied of its journal, or nothing
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(pairs · log children)
--@include fail keys now counts order queues heads pages members holder move stands early life tries links
local FIRST, FIELDS = 3, 4
local OVER = {succeeded = true, failed = true, cancelled = true}

expect('linked', 'names', 'jobs', 'later', 'ended', 'dead', 'outcome', 'tries', 'tomb', 'early', 'applied', 'life')
expect_held_keys()
expect_life(ARGV[2])

local function parent_id(given)
  local name = given:match('^=(.*)$')
  return name and ((redis.call('HGET', K.names, name) or ''):match('^%d+ (%S+) ') or '') or not name and given
end

local pairs_of = {}
for at = FIRST, #ARGV, FIELDS do
  local one = {child = ARGV[at], tenant = ARGV[at + 1], id = parent_id(ARGV[at + 2]), last_field = ARGV[at + 3]}
  if one.id ~= '' then
    expect_kind(children_key(one.id), 'children')
  end
  pairs_of[#pairs_of + 1] = one
end

local answer = {}
for _, one in ipairs(pairs_of) do
  local jobtype, how = nil, '?'
  if one.id ~= '' then
    jobtype, how = how_stands(one.id)
  end
  if jobtype and (jobtype:match('^(.-)\31') or '') == one.tenant then
    how = OVER[how] and how or ''
    redis.call('ZADD', children_key(one.id), how == '' and 0 or 1, one.child)
    redis.call('ZADD', K.linked, 0, one.id)
  else
    how = '?'
  end
  answer[#answer + 1], answer[#answer + 2] = one.id, how
  answer[#answer + 1] = redis.call('HGET', K.applied, one.last_field) or ''
end
return answer
