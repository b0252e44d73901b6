#!lua flags=allow-oom
-- Takes a seat among the daemons under a new epoch. What earlier epochs hold has lower fences: `give_back` finds it.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, sysid, 1 when the caller knows that no other process lives under this sysid, identity of the store as
--          the caller knows it, 1 when it is through the barrier of that life: else nobody is settled any more
-- Returns  epoch, 1 when an earlier one was not burnt: whoever sat there died without leaving
-- Errors   JQD_STORE_CHANGED, JQD_SYSID_TAKEN, JQD_WRONG_TYPE, JQD_BAD_VALUE; none after the first write
-- Cost     O(1)
--@include fail keys now members life deaths
local _, now_us = clock(ARGV[1])
local sysid, previous_epoch_dead = ARGV[2], ARGV[3] == '1'
local identity, through = ARGV[4], ARGV[5] == '1'

expect('fence', 'members', 'life', 'deaths')
expect_life(identity)
local counter, present = member(sysid)
if present and present ~= 0 and not previous_epoch_dead then
  fail('JQD_SYSID_TAKEN', digits(present))
end
local epoch = next_fence(now_us)
if not through then
  redis.call('HDEL', K.life, 'settled')
  forget_hand(sysid)
end
set_member(sysid, math.max((counter or 0) + 1, now_us), epoch, through and identity or '')
return {digits(epoch), present and present ~= 0 and 1 or 0}
