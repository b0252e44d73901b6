#!lua flags=allow-oom
-- Cancels jobs from a journal and moves its position, in one step.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, position field, from, to, then ids
-- Returns  number of jobs that ended by it
-- Errors   JQD_POSITION, JQD_WRONG_TYPE, JQD_BAD_VALUE; none after the first write
-- Cost     O(ids · members · log jobs), and the bytes of those that are ready
--@include fail keys now position holder move
local now_ms = clock(ARGV[1])
local field, from, to = ARGV[2], ARGV[3], ARGV[4]
local FIRST = 5

expect('jobs', 'types', 'later', 'ended', 'dead', 'outcome', 'tomb', 'applied')
expect_held_keys()
if not at_position(field, from, to) then
  return 0
end

local function cancel(id)
  if redis.call('HEXISTS', K.jobs, id) == 0 or holder(id) then
    redis.call('ZADD', K.tomb, now_ms, 'c' .. id)
    return 0
  elseif has_ended(id) then
    return 0
  elseif redis.call('ZSCORE', K.later, id) then
    end_cancelled(id, now_ms)
    redis.call('ZREM', K.later, id)
    return 1
  end
  local jobtype = header(redis.call('HGET', K.jobs, id))
  end_cancelled(id, now_ms)
  -- An unreadable one stays where it waits; whoever claims it finds out and takes it away.
  if jobtype and redis.call('TYPE', ready_key(jobtype))['ok'] == 'zset' then
    drop_ready(jobtype, id)
  end
  return 1
end

local cancelled = 0
for at = FIRST, #ARGV do
  cancelled = cancelled + cancel(ARGV[at])
end
redis.call('HSET', K.applied, field, to)
return cancelled
