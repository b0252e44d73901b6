#!lua flags=no-writes
-- What waits before a job that is ready.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, id, pages that are looked into at most, jobtypes that are named at most
-- Returns  nothing when it is not ready; else number of jobs of its queue before it; 1 when that is exact, else there may be fewer; deaths of daemons it
--          was in hand at; 1 when it may only run alone; number of other jobtypes whose best job is better; flat: some of those, number ready of each;
--          the bucket of a constraint that its queue waits for or nothing, when (ms) that is looked at again or 0, some ids that it has in a hand
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(pages + jobtypes + (log waiting)²)
--@include fail keys order heads pages move deaths
local id, pages_max, types_max = ARGV[2], number(ARGV[3], 'pages'), number(ARGV[4], 'types')
local PAGE = 100  -- ids of a page at most

expect('jobs', 'types', 'heads', 'deaths', 'parked', 'due')
local row = redis.call('HGET', K.jobs, id)
local jobtype, priority = header(row or '')
if not jobtype then
  return {}
end
expect_ready(jobtype)
if not place_of(jobtype, priority, id) then
  return {}
end

local ahead, exact = rank_of(ready_key(jobtype), priority, id), 1
if paged_of(jobtype) > 0 then
  local backlog = backlog_key(jobtype)
  local rank = rank_of(backlog, priority, id, true)
  local looked = math.min(rank, pages_max)
  for _, first in ipairs(looked > 0 and redis.call('ZRANGE', backlog, rank - looked, rank - 1) or {}) do
    local page = page_key(first, jobtype)
    expect_kind(page, 'page')
    local at = redis.call('LPOS', page, id)
    ahead = ahead + (at or redis.call('LLEN', page))
  end
  if rank > looked then
    ahead, exact = ahead + (rank - looked) * PAGE, 0
  end
end
local better = redis.call('ZCOUNT', K.types, '-inf', '(' .. priority)
local own_type = keyed.type_of(jobtype)
local own = tonumber(redis.call('ZSCORE', K.types, own_type) or nil)
if own and own < priority then
  better = better - 1
end
local named = {}
for _, other in ipairs(redis.call('ZRANGE', K.types, '-inf', '(' .. priority, 'BYSCORE', 'LIMIT', 0, types_max + 1)) do
  if other ~= own_type and #named < 2 * types_max then
    expect_ready(other)
    named[#named + 1], named[#named + 2] = other, waiting_of(other)
  end
end
local HELD = 5  -- ids in a hand that are named
local bucket = keyed.is(jobtype) and (redis.call('HGET', K.parked, jobtype) or ''):match('^%S+ (.*)$')
local looked_at, holds = '0', {}
if bucket then
  expect_kind(K.busy .. bucket, 'busy')
  holds = redis.call('ZRANGE', K.busy .. bucket, 0, HELD - 1)
  looked_at = #holds == 0 and redis.call('ZSCORE', K.due, bucket) or '0'  -- else when one of these leaves
end
return {ahead, exact, (deaths_of(id)), is_suspect(id) and 1 or 0, better, named, bucket or '', looked_at, holds}
