-- Puts jobs where they belong that lose their holder untried, or whose date came: to ready, to their date, among the
-- ended if they were cancelled, or among the dead if it is too late to begin.
local MICROS = 1000

-- Returns whether the content in the store came while an earlier one was held: nobody began this one.
local function came_later(id, fence)
  return fence <= (tonumber((redis.call('HGET', K.generation, id) or ''):match(':(%d+)')) or 0)
end

-- Notes that a worker may have begun the job, so that it does not expire any more.
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

-- Returns whether the job expired while it was held, where nobody looks, and was not begun. If it was claimed after it
-- had to begin, it had begun before; a fence in the future says nothing, as the clock was set back.
local function is_late(id, expires_at_ms, now_ms, fence)
  local claimed_ms = fence / MICROS
  return expires_at_ms > 0 and expires_at_ms <= now_ms and not Move.has_begun(redis.call('HGET', K.tries, id))
    and (expires_at_ms > claimed_ms or claimed_ms > now_ms or came_later(id, fence))
end

-- Puts a job back. Returns its state, its queue, and whether it waits for a date; nil if it is gone or has ended.
-- `from`: its state before; `fence`: of the claim that ends. The date may be that of a content that came meanwhile. A
-- job whose row cannot be read goes among the dead, where an operator finds it.
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
  elseif redis.call('ZSCORE', K.tombstones, 'c' .. id) then
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

-- Puts a job back and counts that. Returns whether it waits for a date.
function Back.return_job(id, row, now_ms, from, fence)
  local to, jobtype, is_dated = Back.put_back(id, row, now_ms, from, fence)
  if to then
    Counts.moved(jobtype, from, to, id)
  end
  return is_dated
end

-- Takes a job from its holder and puts it back. `is_unsent`: no worker can have begun it. To be followed by `finish`.
function Back.give_back(id, hold, row, now_ms, is_unsent)
  if not is_unsent then
    Back.note_begun(id, row, hold.fence)
  end
  Back.return_job(id, row, now_ms, 'running', hold.fence)
  About.leave(id, hold)
end

-- Writes what jobs left their holders, these ids among them.
function Back.finish(ids, now_ms, now_us)
  About.write()
  Move.forget_progress(ids)
  Parked.left(now_us)
  Counts.write_counts(now_ms)
end
