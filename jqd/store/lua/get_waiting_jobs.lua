#!lua flags=allow-oom
-- Leases jobs of one jobtype: smallest priority first, then oldest.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, sysid, epoch, jobtype, limit, priority_min, priority_max, bytes_max, identity of the store as the
--          caller knows it: nothing is given while a living member is not through the barrier of that life
-- Returns  fence, then flat: id, row (nil when it is gone: that id was dropped), tries row or nil
-- Errors   JQD_STALE_OWNER, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(members + limit · log waiting), and the bytes
--@include fail keys now members life move
local _, now_us = clock(ARGV[1])
local sysid, epoch, jobtype = ARGV[2], number(ARGV[3], 'epoch'), ARGV[4]
local limit, bytes_max = number(ARGV[5], 'limit'), number(ARGV[8], 'bytes_max')
local priority_min, priority_max = number(ARGV[6], 'priority_min'), number(ARGV[7], 'priority_max')
local identity = ARGV[9]

expect('jobs', 'types', 'tries', 'fence', 'members', 'life')
local held, ready = held_key(sysid), ready_key(jobtype)
expect_kind(held, 'held')
expect_kind(ready, 'ready')
own(sysid, epoch)

if not is_life(identity) or not all_through(identity) then
  return {'0'}
end
local ids = redis.call('ZRANGE', ready, priority_min, priority_max, 'BYSCORE', 'LIMIT', 0, limit)
if #ids == 0 then
  mend_type(jobtype)
  return {'0'}
end
local rows = rows_within(ids, bytes_max)
local tries = {}
if redis.call('EXISTS', K.tries) == 1 then
  tries = redis.call('HMGET', K.tries, unpack(ids, 1, #rows))
end
local fence = next_fence(now_us)
local answer, holds, taken = {digits(fence)}, {}, {}
for position, row in ipairs(rows) do
  local id = ids[position]
  table.insert(answer, id)
  table.insert(answer, row)
  table.insert(answer, tries[position] or false)
  if row then
    table.insert(holds, fence)
    table.insert(holds, id)
  end
  table.insert(taken, id)
end
if #holds > 0 then
  redis.call('ZADD', held, unpack(holds))
end
redis.call('ZREM', ready, unpack(taken))
mend_type(jobtype)
return answer
