-- Jobs that leave a hand untried, or whose date came. Needs keys, heads, counts, move.
-- Gives return_job(id, row, now_ms, from, unsent); note_begun(id, row, fence): a worker may have begun it in the hand that it leaves, so it does not
-- expire any more. A content that came while another was in that hand has not begun.
local function note_begun(id, row, fence)
  local _, _, _, expires_at_ms = header(row or '')
  if (expires_at_ms or 0) == 0 or fence <= (tonumber((redis.call('HGET', K.generation, id) or ''):match(':(%d+)')) or 0) then
    return
  end
  local tries = redis.call('HGET', K.tries, id)
  if not has_begun(tries) then
    redis.call('HSET', K.tries, id, string.rep('\0', 4) .. (tries or ''):sub(9))  -- no failed attempt
  end
end

-- Puts a job that leaves a hand untried where it belongs: ready again, or cancelled if that was asked for meanwhile; its
-- content may have been exchanged meanwhile for one that has a date. A job whose row cannot be read goes to the dead set,
-- where an operator finds it; a job that is gone or has ended goes nowhere. `from`: how it stood. `unsent`: the fence of a claim that nobody was told
-- of: if the instant by which the job must have begun came since that claim, it is dead. A claim that came after it is of a job that had begun. Returns whether the job waits for a date.
local function return_job(id, row, now_ms, from, unsent)
  local function still(otherwise)
    return from == 'running' and waits(id, otherwise) or from == 'retrying' and from or otherwise
  end
  if not row or has_ended(id) then
    return false
  end
  local jobtype, priority, eligible_at_ms, expires_at_ms = header(row)
  local to, MICROS = 'failed', 1000
  if not jobtype then
    redis.call('ZADD', K.dead, now_ms, id)
  elseif redis.call('ZSCORE', K.tomb, 'c' .. id) then
    end_cancelled(id, now_ms)
    to = 'cancelled'
  elseif unsent and expires_at_ms > unsent / MICROS and expires_at_ms <= now_ms and not has_begun(redis.call('HGET', K.tries, id)) then
    redis.call('ZADD', K.dead, now_ms, id)
    redis.call('HSET', K.outcome, id, EXPIRED .. string.format('%.0f', expires_at_ms))
  elseif eligible_at_ms > now_ms then
    redis.call('ZADD', K.later, eligible_at_ms, id)
    to = still('scheduled')
  else
    expect_kind(ready_key(jobtype), 'ready')
    add_ready(jobtype, priority, id, eligible_at_ms)
    to = still('waiting')
  end
  moved(jobtype or '', from, to, id)
  return to ~= 'failed' and to ~= 'cancelled' and eligible_at_ms > now_ms
end
