-- Jobs that leave a hand untried, or whose date came. Needs keys, heads, counts, move.
-- Gives return_job(id, row, now_ms, from).
-- Puts a job that leaves a hand untried where it belongs: ready again, or cancelled if that was asked for meanwhile; its
-- content may have been exchanged meanwhile for one that has a date. A job whose row cannot be read goes to the dead set,
-- where an operator finds it; a job that is gone or has ended goes nowhere. `from`: how it stood. Returns whether the job waits for a date.
local function return_job(id, row, now_ms, from)
  local function still(otherwise)
    return from == 'running' and waits(id, otherwise) or from == 'retrying' and from or otherwise
  end
  if not row or has_ended(id) then
    return false
  end
  local jobtype, priority, eligible_at_ms = header(row)
  local to = 'failed'
  if not jobtype then
    redis.call('ZADD', K.dead, now_ms, id)
  elseif redis.call('ZSCORE', K.tomb, 'c' .. id) then
    end_cancelled(id, now_ms)
    to = 'cancelled'
  elseif eligible_at_ms > now_ms then
    redis.call('ZADD', K.later, eligible_at_ms, id)
    to = still('scheduled')
  else
    expect_kind(ready_key(jobtype), 'ready')
    add_ready(jobtype, priority, id)
    to = still('waiting')
  end
  moved(jobtype or '', from, to, id)
  return jobtype ~= nil and to ~= 'cancelled' and eligible_at_ms > now_ms
end
