#!lua flags=allow-oom
-- Raises this daemon's heartbeat and shows everybody's.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, sysid, epoch
-- Returns  flat: sysid, "counter:epoch"
-- Errors   JQD_STALE_OWNER, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(members)
--@include fail keys now members
local _, now_us = clock(ARGV[1])
local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')

expect('members')
own(sysid, epoch)
local counter = member(sysid)
set_member(sysid, math.max(counter + 1, now_us), epoch)
return redis.call('HGETALL', K.members)
