#!lua flags=allow-oom
-- Makes jobs ready that earlier epochs of this owner hold: their fences are lower than its epoch.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, sysid, epoch, limit, bytes_max, crash_limit: 0 when nobody died
-- Returns  number of jobs that left the hand; 0 when none is left
-- Errors   JQD_STALE_OWNER, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT
-- Cost     O(limit · log waiting), and the bytes
--@include fail keys now counts order queues heads members move back early deaths limits parked giveback
local now_ms = clock(ARGV[1])
local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')
local limit, bytes_max, crash_limit = number(ARGV[4], 'limit'), number(ARGV[5], 'bytes_max'), number(ARGV[6], 'crash_limit')

expect_hand(sysid)
own(sysid, epoch)
return give_back(sysid, digits(epoch), limit, bytes_max, now_ms, crash_limit)
