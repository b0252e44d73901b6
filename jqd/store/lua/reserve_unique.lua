#!lua
-- Gives unique keys to jobs that are about to be pushed, unless a job that lives has them.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, ttl_ms: a job that is not here is waited for that long; then per job: key, its id, "waiting": a job that has begun has it no more, or "ended"
-- Returns  per job: the id of the job that has the key
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(jobs · members)
--@include fail keys now counts order queues heads pages members holder move stands early
local now_ms = clock(ARGV[1])
local ttl_ms = number(ARGV[2], 'ttl_ms')
local FIRST, FIELDS = 3, 3
local OVER = {succeeded = true, failed = true, cancelled = true}

expect('unique', 'jobs', 'later', 'ended', 'dead', 'outcome', 'tries', 'tomb')
expect_held_keys()

-- Whether the job that was given the key has it still. One that is not here yet may be on its way.
local function lives(id, given_ms, holds)
  local _, how = how_stands(id)
  if not how then
    return now_ms - given_ms < ttl_ms
  end
  return not OVER[how] and (holds == 'ended' or how ~= 'running')
end

local answer = {}
for at = FIRST, #ARGV, FIELDS do
  local key, id, holds = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local known, given_ms = (redis.call('HGET', K.unique, key) or ''):match('^(%S+) (%d+)$')
  if known and known ~= id and lives(known, tonumber(given_ms), holds) then
    id = known
  else
    redis.call('HSET', K.unique, key, id .. ' ' .. digits(now_ms))
    redis.call('ZADD', K.linked, 0, id)
  end
  answer[#answer + 1] = id
end
return answer
