-- Jobs that leave a hand untried, or whose date came.
local MICROS = 1000

-- Whether the content that is here came while another was in that hand: nobody began it there.
local function came_later(id, fence)
  return fence <= (tonumber((redis.call('HGET', K.generation, id) or ''):match(':(%d+)')) or 0)
end

-- A worker may have begun that job in the hand that it leaves, so it does not expire any more.
function Back.note_begun(id, row, fence)
  local _, _, _, expires_at_ms = Move.header(row or '')
  if (expires_at_ms or 0) == 0 or Move.has_ended(id) or came_later(id, fence) then
    return
  end
  local tries = redis.call('HGET', K.tries, id)
  if not Move.has_begun(tries) then
    redis.call('HSET', K.tries, id, string.rep('\0', 4) .. (tries or ''):sub(9))  -- no failed attempt
  end
end

-- Whether the instant by which it must have begun came while it was in that hand, where nobody looks at it, and nobody
-- has begun it. A claim that came after the instant is of a job that had begun; where the clock was set back, a fence
-- that is ahead of it tells nothing.
local function is_late(id, expires_at_ms, now_ms, fence)
  local claimed_ms = fence / MICROS
  return expires_at_ms > 0 and expires_at_ms <= now_ms and not Move.has_begun(redis.call('HGET', K.tries, id))
    and (expires_at_ms > claimed_ms or claimed_ms > now_ms or came_later(id, fence))
end

-- Where a job belongs that leaves a hand: how it stands now, its queue; and whether it waits for a date. `from`: how it
-- stood; `fence`: of the hand that it leaves. It is ready again, or cancelled if that was asked for meanwhile, or dead
-- if it was to begin by now; its content may have been exchanged meanwhile for one that has a date. A job whose row
-- cannot be read goes to the dead set, where an operator finds it; a job that is gone or has ended goes nowhere: nil.
function Back.put_back(id, row, now_ms, from, fence)
  local function still(at_ms) return from == 'retrying' and from or Counts.waits(id, at_ms) end
  if not row or Move.has_ended(id) then
    return nil
  end
  local jobtype, priority, eligible_at_ms, expires_at_ms = Move.header(row)
  if not jobtype then
    redis.call('ZADD', K.dead, now_ms, id)
    Counts.died('')
    return 'failed', ''
  elseif redis.call('ZSCORE', K.tomb, 'c' .. id) then
    Move.end_cancelled(id, now_ms)
    return 'cancelled', jobtype
  elseif fence and is_late(id, expires_at_ms, now_ms, fence) then
    Expire.end_expired(id, expires_at_ms, jobtype, now_ms)
    return 'failed', jobtype
  elseif eligible_at_ms > now_ms then
    redis.call('ZADD', K.later, eligible_at_ms, id)
    Counts.note_blocked(id, eligible_at_ms, now_ms)
    return still(eligible_at_ms), jobtype, true
  end
  Move.add_ready(jobtype, priority, id, eligible_at_ms)
  return still(), jobtype, false
end

-- The same, and it is counted.
function Back.return_job(id, row, now_ms, from, fence)
  local to, jobtype, is_dated = Back.put_back(id, row, now_ms, from, fence)
  if to then
    Counts.moved(jobtype, from, to, id)
  end
  return is_dated
end

-- A job leaves a hand untried; `is_unsent`: no worker can have begun it there. `finish` writes it, of these and of
-- others.
function Back.give_back(id, hold, row, now_ms, is_unsent)
  if not is_unsent then
    Back.note_begun(id, row, hold.fence)
  end
  Back.return_job(id, row, now_ms, 'running', hold.fence)
  About.leave(id, hold)
end

-- Writes what left hands, these ids among it.
function Back.finish(ids, now_ms, now_us)
  About.write()
  Move.forget_progress(ids)
  Parked.left(now_us)
  Counts.write_counts(now_ms)
end
