-- Jobs that workers hold by themselves, all in `held:*`. A *lease* is all that a worker holds of one claim, named by
-- the fence. No clock tells who is silent: a lease is, if its last sign of life has a lower number of the sequence than
-- there was when a daemon looked so many seconds ago, by its own clock.
--
--     leases            hash  fence → "silence told worker": seconds that the worker may be silent, 0 when found
--                             silent; 1 if only a journal told of it and the worker gave no sign since, else 0; its id
--                             "silences" → all silences of leases, with blanks around each
--                             "p<id>" → progress of a job that is in flight, or was when it was cancelled
--     beats:<silence>   zset  fence of a lease → number of its last sign of life
local LEASE_JOBS_MAX = 2000  -- a claim has no more

starts.lease_rows = empty  -- fence → row, as this function found or left it; false: there is none

-- Returns silence, told, worker of a lease; nil: there is none.
function Leases.lease(fence)
  if call.lease_rows[fence] == nil then
    call.lease_rows[fence] = redis.call('HGET', K.leases, digits(fence))
  end
  local silence, told, worker = (call.lease_rows[fence] or ''):match('^(%d+) ([01]) (.*)$')
  return silence, told, worker
end

local function write_lease(fence, row)
  call.lease_rows[fence] = row
  if row then
    redis.call('HSET', K.leases, digits(fence), row)
  else
    redis.call('HDEL', K.leases, digits(fence))
  end
end

function Leases.drop_beat(fence, silence)
  redis.call('ZREM', K.beats .. silence, digits(fence))
  if redis.call('EXISTS', K.beats .. silence) == 0 then
    local known = redis.call('HGET', K.leases, 'silences') or ' '
    local left = known:gsub(' ' .. silence .. ' ', ' ', 1)
    if left == ' ' then
      redis.call('HDEL', K.leases, 'silences')
    else
      redis.call('HSET', K.leases, 'silences', left)
    end
  end
end

-- Notes a sign of life; with silence '0' that the worker was silent for too long.
function Leases.beat(fence, silence, told, worker, now_us)
  call.beat_number = call.beat_number or Members.next_fence(now_us)
  local known = redis.call('HGET', K.leases, 'silences') or ' '
  if not known:find(' ' .. silence .. ' ', 1, true) then
    redis.call('HSET', K.leases, 'silences', known .. silence .. ' ')
  end
  local before = Leases.lease(fence)
  write_lease(fence, silence .. ' ' .. told .. ' ' .. worker)
  redis.call('ZADD', K.beats .. silence, digits(call.beat_number), digits(fence))
  if before and before ~= silence then
    Leases.drop_beat(fence, before)
  end
end

-- Returns the ids of a lease.
function Leases.jobs_of(fence)
  local at = digits(fence)
  return redis.call('ZRANGE', held_key(About.WORKERS), at, at, 'BYSCORE', 'LIMIT', 0, LEASE_JOBS_MAX)
end

-- Ends a lease that has no job left. Otherwise the end of a job is a sign of life, unless now_us is nil.
function Leases.tidy_lease(fence, now_us)
  local silence, _, worker = Leases.lease(fence)
  if not silence then
    return
  elseif redis.call('ZCOUNT', held_key(About.WORKERS), digits(fence), digits(fence)) == 0 then
    write_lease(fence, false)
    Leases.drop_beat(fence, silence)
  elseif silence ~= '0' and now_us then
    Leases.beat(fence, silence, '0', worker, now_us)
  end
end

-- Returns the generation that a worker has of a job, in the form of a row of `generation`, or false; a later content
-- may be here.
function Leases.generation_of(hold) return hold.generation and '0:' .. hold.generation or false end
