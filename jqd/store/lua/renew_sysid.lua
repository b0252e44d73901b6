#!lua flags=allow-oom
-- Raises this daemon's heartbeat and shows everybody's.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, sysid, epoch, identity of the store as the caller knows it, 1 when it is through the barrier of that
--          life, 1 to note that all are, if so
-- Returns  1 when this life is settled, then flat: sysid, "counter:epoch:identity"
-- Errors   JQD_STORE_CHANGED, JQD_STALE_OWNER, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(members)
--@include fail keys now members life
local _, now_us = clock(ARGV[1])
local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')
local identity, through, settle = ARGV[4], ARGV[5] == '1', ARGV[6] == '1'

expect('members', 'life')
-- First: an owner that an emptied store does not know was not burnt by anybody.
expect_life(identity)
own(sysid, epoch)
local counter = member(sysid)
set_member(sysid, math.max(counter + 1, now_us), epoch, through and identity or '')
if settle and all_through(identity) then
  redis.call('HSET', K.life, 'settled', identity)
end
local settled = redis.call('HGET', K.life, 'settled') == identity
return {settled and 1 or 0, unpack(redis.call('HGETALL', K.members))}
