#!lua flags=allow-oom
-- Leases jobs of one jobtype: smallest priority first, then oldest.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, sysid, epoch, jobtype, limit, priority_min, priority_max, bytes_max, identity of the store as the
--          caller knows it: nothing is given while a living member is not through the barrier of that life; alone_ms: how
--          long a suspect runs alone, a job that was in hand when daemons died; how suspects are taken: alone (by an empty
--          hand), company (by any), none
-- Returns  fence, then flat: id, row (nil when it is gone: that id was dropped), tries row or nil, row of `generation` or nil
-- Errors   JQD_STALE_OWNER, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(members + (limit + suspects, PASSED at most) · log waiting), and the bytes
--@include fail keys now counts order heads pages members life move deaths
local now_ms, now_us = clock(ARGV[1])
local sysid, epoch, jobtype = ARGV[2], number(ARGV[3], 'epoch'), ARGV[4]
local limit, bytes_max = number(ARGV[5], 'limit'), number(ARGV[8], 'bytes_max')
local priority_min, priority_max = number(ARGV[6], 'priority_min'), number(ARGV[7], 'priority_max')
local identity, alone_ms, suspects = ARGV[9], number(ARGV[10], 'alone_ms'), ARGV[11]

expect('jobs', 'types', 'heads', 'tries', 'fence', 'members', 'life', 'deaths', 'generation')
local held = held_key(sysid)
expect_kind(held, 'held')
expect_ready(jobtype)
own(sysid, epoch)

if not is_life(identity) or not all_through(identity) or runs_alone(sysid, now_ms) then
  return {'0'}
end
local PASSED = 500  -- suspects that are passed over, or a claim of one job would find nothing behind a single one
local passed = has_deaths and math.min(PASSED, redis.call('HLEN', K.deaths)) or 0
local ids, where, heads = first_of(jobtype, limit + passed, priority_min, priority_max)
if #ids == 0 then
  mend_type(jobtype)
  return {'0'}
end
-- A suspect is taken alone; a daemon that may not take it takes the jobs behind it meanwhile.
local may = suspects == 'company' or suspects == 'alone' and redis.call('ZCARD', held) == 0
local alone = has_deaths and may and is_suspect(ids[1])
if alone then
  ids = {ids[1]}
elseif has_deaths then
  local innocent = {}
  for _, id in ipairs(ids) do
    if #innocent < limit and not is_suspect(id) then
      table.insert(innocent, id)
    end
  end
  ids = innocent
end
if #ids == 0 then
  return {'0'}
end
local rows = rows_within(ids, bytes_max)
local function of(key)
  return redis.call('EXISTS', key) == 1 and redis.call('HMGET', key, unpack(ids, 1, #rows)) or {}
end

local tries, generations = of(K.tries), of(K.generation)
local fence = next_fence(now_us)
local answer, holds, taken, told, held_ids = {digits(fence)}, {}, {}, 1, 0
local first, again = {}, {}  -- that never failed, and that did
for position, row in ipairs(rows) do
  local id = ids[position]
  answer[told + 1], answer[told + 2] = id, row
  answer[told + 3], answer[told + 4] = tries[position] or false, generations[position] or false
  told = told + 4
  if row then
    holds[held_ids + 1], holds[held_ids + 2] = digits(fence), id
    held_ids = held_ids + 2
    table.insert(have_failed(tries[position]) and again or first, id)
  end
  taken[position] = id
end
if #holds > 0 then
  redis.call('ZADD', held, unpack(holds))
  if alone and suspects == 'alone' then
    alone_until(sysid, ids[1], now_ms + alone_ms)
  end
end
take(jobtype, taken, where, heads)
mend_type(jobtype)
moved(jobtype, 'waiting', 'running', first)
moved(jobtype, 'retrying', 'running', again)
write_counts(now_ms)
return answer
