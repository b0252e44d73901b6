-- Jobs that workers hold themselves. They lie in one hand, `held:*`, under the fences of their claims: a lease is a
-- fence. Field "<fence>" of `leases`: "silence told worker". For how many seconds the worker may be silent, 0 when that
-- was too long already; 1 when only a journal told of the lease and nothing was heard of its worker since, else 0; the
-- worker's id. Field "silences": the numbers of seconds that leases have, with blanks around each; "p<id>": how far the
-- worker is with that job, which may lie in a daemon's hand, or was when it was cancelled. `beats:<silence>`: fence of
-- each lease by the number of its last sign of life, out of the growing sequence of all fences: no clock says who is
-- silent, but that the sequence was further already when a daemon looked so many seconds ago on its own clock.
local LEASE_JOBS_MAX = 2000  -- a claim has no more

starts.lease_rows = empty  -- of leases, as this function has found or left them; false: there is none

-- A lease: silence, told, worker; nil: there is none.
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

-- A sign of life. Of silence '0': the worker was silent for too long.
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

-- The ids under a lease.
function Leases.jobs_of(fence)
  local at = digits(fence)
  return redis.call('ZRANGE', held_key(About.WORKERS), at, at, 'BYSCORE', 'LIMIT', 0, LEASE_JOBS_MAX)
end

-- Ends a lease that has no job any more; before its last job went this is a sign of life, unless now_us is nil.
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

-- The generation that a worker has of a job, for a later content may be here by now: as a row of `generation`, or
-- false.
function Leases.generation_of(hold) return hold.generation and '0:' .. hold.generation or false end
