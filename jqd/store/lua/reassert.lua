#!lua flags=allow-oom
-- Arbitrates what a daemon says it holds, after the store forgot: its again, or out of its hand.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, sysid, epoch, identity of the store as the caller knows it, then per job: id, fence
-- Returns  ids that are out of its hand
-- Errors   JQD_STORE_CHANGED, JQD_STALE_OWNER, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(jobs · (members + log jobs)), and the bytes of those that are ready
--@include fail keys now members life holder move
local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')
local identity = ARGV[4]
local FIRST, FIELDS = 5, 2

expect('jobs', 'types', 'later', 'ended', 'dead', 'tomb', 'early', 'life')
expect_held_keys()
expect_life(identity)
own(sysid, epoch)
if (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  fail('JQD_ARGUMENT', 'jobs')
end
local ids, fences = {}, {}
for at = FIRST, #ARGV, FIELDS do
  table.insert(ids, ARGV[at])
  table.insert(fences, number(ARGV[at + 1], 'fence'))
end

local in_hand = holders(ids)
local lost = {}

local function take(id, fence)
  redis.call('ZADD', held_key(sysid), digits(fence), id)
end

for position, id in ipairs(ids) do
  local fence, hold = fences[position], in_hand[id]
  local row = redis.call('HGET', K.jobs, id)
  if hold then
    if hold.sysid == sysid then
      take(id, fence)
    else
      table.insert(lost, id)
    end
  elseif row then
    local jobtype = header(row)
    if has_ended(id) or not jobtype then
      table.insert(lost, id)
    else
      take(id, fence)
      redis.call('ZREM', K.later, id)
      if redis.call('TYPE', ready_key(jobtype))['ok'] == 'zset' then
        drop_ready(jobtype, id)
      end
    end
  else
    local notes = redis.call('ZMSCORE', K.tomb, 's' .. id, 'd' .. id)
    if notes[1] or notes[2] then
      table.insert(lost, id)
    else
      -- The job itself has not come yet: its hold waits for it here.
      take(id, fence)
      redis.call('HSET', K.early, id, sysid)
    end
  end
end
return lost
