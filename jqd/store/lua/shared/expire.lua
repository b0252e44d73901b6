-- Jobs that must have begun by some instant.
--
--     expiring   zset  id → the instant (ms) from which on it must not begin any more; stays there until then, or until it has ended (counts)
--
-- Gives note_expiry(ids, at_ms): of jobs that came, 0 for none; end_expired(id, at_ms, queue, now_ms): it is dead by that, and the caller counts where it was; forget_expiry(id); expire_due(now_ms, limit) → how many instants have come that were
-- looked at: who waits and never failed is dead. Whoever is in a hand, or was tried, began in time. expire_of(ids, now_ms) → how many of these are dead now.
function starts.has_expiring() return is_here('expiring') end

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

function Expire.forget_expiry(id)
  if call.has_expiring then
    redis.call('ZREM', K.expiring, id)
  end
end

function Expire.end_expired(id, at_ms, queue, now_ms)
  redis.call('ZADD', K.dead, now_ms, id)
  redis.call('HSET', K.outcome, id, Move.EXPIRED .. digits(at_ms))
  Counts.died(queue)
end

-- Returns whether it is dead by that.
local function expire(id, at_ms, now_ms)
  local row = redis.call('HGET', K.jobs, id)
  local queue = Move.header(row or '')
  if not queue or Move.has_ended(id) or Move.has_begun(redis.call('HGET', K.tries, id)) or About.hold(id) then
    return false
  end
  Expire.end_expired(id, at_ms, queue, now_ms)
  local _, date_ms = Move.stop_waiting(id, row)
  Counts.moved(queue, Counts.waits(id, date_ms), 'failed', id)
  return true
end

function Expire.expire_due(now_ms, limit)
  if not call.has_expiring then
    return 0
  end
  local due = redis.call('ZRANGE', K.expiring, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
  local gone = {}
  for at = 1, #due, 2 do
    expire(due[at], due[at + 1], now_ms)
    gone[#gone + 1] = due[at]
  end
  if #gone > 0 then
    redis.call('ZREM', K.expiring, unpack(gone))
  end
  return #gone
end

function Expire.expire_of(ids, now_ms)
  local count = 0
  for at, at_ms in ipairs(call.has_expiring and redis.call('ZMSCORE', K.expiring, unpack(ids)) or {}) do
    if at_ms and tonumber(at_ms) <= now_ms then
      count = count + (expire(ids[at], at_ms, now_ms) and 1 or 0)
      redis.call('ZREM', K.expiring, ids[at])
    end
  end
  return count
end
