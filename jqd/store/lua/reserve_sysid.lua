#!lua flags=allow-oom
-- Takes a seat among the daemons under a new epoch. What earlier epochs hold has lower fences: `give_back` finds it.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, sysid, 1 when the caller knows that no other process lives under this sysid
-- Returns  epoch
-- Errors   JQD_SYSID_TAKEN, JQD_WRONG_TYPE, JQD_BAD_VALUE; none after the first write
-- Cost     O(1)
--@include fail keys now members
local _, now_us = clock(ARGV[1])
local sysid, previous_epoch_dead = ARGV[2], ARGV[3] == '1'

expect('fence', 'members')
local counter, present = member(sysid)
if present and present ~= 0 and not previous_epoch_dead then
  fail('JQD_SYSID_TAKEN', digits(present))
end
local epoch = next_fence(now_us)
set_member(sysid, math.max((counter or 0) + 1, now_us), epoch)
return digits(epoch)
