#!lua flags=allow-oom
-- Puts held jobs whose rows cannot be read into the dead set, where somebody finds them. A job that has not come
-- yet has no row at all: it stays in hand.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, sysid, epoch, then ids
-- Returns  number of jobs that left the hand
-- Errors   JQD_STALE_OWNER, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(ids · log dead)
--@include fail keys now counts order queues heads members move early permits limits parked
local now_ms, now_us = clock(ARGV[1])
local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')
local FIRST = 4

local held = held_key(sysid)
expect('ended', 'dead', 'members', 'early')
expect_kind(held, 'held')
own(sysid, epoch)

local buried = {}
for at = FIRST, #ARGV do
  local id = ARGV[at]
  if redis.call('ZSCORE', held, id) and not early_holder(id) then
    if not has_ended(id) then
      redis.call('ZADD', K.dead, now_ms, id)
      local row = redis.call('HGET', K.jobs, id)
      if row then
        moved(header(row) or '', 'running', 'failed', id)
      end
    end
    redis.call('ZREM', held, id)
    buried[#buried + 1] = id
  end
end
limits.left(buried, now_us)
write_counts(now_ms)
return #buried
