#!lua flags=allow-oom
-- Gives jobs back untried: ready at once, or cancelled when that was asked for. One that has
-- not come yet just drops: it is ready when it comes.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, sysid, epoch, then per job: id, fence
-- Returns  number of jobs that left the hand; those not held under that fence are left alone
-- Errors   JQD_STALE_OWNER, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT
-- Cost     O(jobs · log waiting), and the bytes
--@include fail keys now members move early
local now_ms = clock(ARGV[1])
local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')
local FIRST, FIELDS = 4, 2

local held = held_key(sysid)
expect('jobs', 'types', 'ended', 'dead', 'outcome', 'tomb', 'members', 'early')
expect_kind(held, 'held')
own(sysid, epoch)
if (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  fail('JQD_ARGUMENT', 'jobs')
end

local released = 0
for at = FIRST, #ARGV, FIELDS do
  local id, fence = ARGV[at], number(ARGV[at + 1], 'fence')
  if tonumber(redis.call('ZSCORE', held, id) or nil) == fence then
    return_job(id, redis.call('HGET', K.jobs, id), now_ms)
    redis.call('ZREM', held, id)
    drop_early(id)
    released = released + 1
  end
end
return released
