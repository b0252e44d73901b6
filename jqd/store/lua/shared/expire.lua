-- Jobs that must have begun by some instant. A job that waits after it, and never began, is dead.
--
--     expiring   zset  id → the instant (ms); the row stays until the instant, or until the job has ended (counts)
function starts.has_expiring() return is_here('expiring') end

-- Notes that jobs expire at that instant; 0: never.
function Expire.note_expiry(ids, at_ms)
  local rows = {}
  for at, id in ipairs(at_ms > 0 and ids or {}) do
    rows[2 * at - 1], rows[2 * at] = string.format('%.0f', at_ms), id
  end
  if #rows > 0 then
    redis.call('ZADD', K.expiring, unpack(rows))
    call.has_expiring = true
  end
end

-- Notes that a job does not expire any more.
function Expire.forget_expiry(id)
  if call.has_expiring then
    redis.call('ZREM', K.expiring, id)
  end
end

-- Ends a job that did not begin in time. The caller counts from which state.
function Expire.end_expired(id, at_ms, queue, now_ms)
  redis.call('ZADD', K.dead, now_ms, id)
  redis.call('HSET', K.outcome, id, Move.EXPIRED .. digits(at_ms))
  Counts.died(queue)
end

-- Ends those of these jobs that did not begin in time. Returns how many, and how many were looked at, the first ones:
-- as many as BYTES_MAX of rows allow.
local BYTES_MAX = 2 * 1024 * 1024
local function expire_all(ids, dates, now_ms)
  local dead, rows = 0, Move.rows_within(ids, BYTES_MAX)
  for at, row in ipairs(rows) do
    local id, queue = ids[at], Move.header(row or '')
    if queue and not Move.has_ended(id) and not Move.has_begun(redis.call('HGET', K.tries, id))
        and not About.hold(id) then
      Expire.end_expired(id, dates[at], queue, now_ms)
      local _, date_ms = Move.stop_waiting(id, row)
      Counts.moved(queue, Counts.waits(id, date_ms), 'failed', id)
      dead = dead + 1
    end
  end
  if #rows > 0 then
    redis.call('ZREM', K.expiring, unpack(ids, 1, #rows))
  end
  return dead, #rows
end

-- Looks at jobs whose instant has come. Those that are held, or were tried, began in time. Returns how many were looked
-- at, and whether there may be more.
function Expire.expire_due(now_ms, limit)
  local due, ids, dates = call.has_expiring and redis.call('ZRANGE', K.expiring, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0,
    limit, 'WITHSCORES') or {}, {}, {}
  for at = 1, #due, 2 do
    ids[#ids + 1], dates[#dates + 1] = due[at], due[at + 1]
  end
  local _, looked = expire_all(ids, dates, now_ms)
  return looked, looked < #ids or #ids == limit
end

-- Does the same for these jobs. Returns whether some are dead now, or may be.
function Expire.expire_of(ids, now_ms)
  local due_ids, dates = {}, {}
  for at, at_ms in ipairs(call.has_expiring and redis.call('ZMSCORE', K.expiring, unpack(ids)) or {}) do
    if at_ms and tonumber(at_ms) <= now_ms then
      due_ids[#due_ids + 1], dates[#dates + 1] = ids[at], at_ms
    end
  end
  local dead, looked = expire_all(due_ids, dates, now_ms)
  return dead > 0 or looked < #due_ids
end
