-- Whether this life of the store has all that the journals of its daemons know.
local TENANTS = 1000  -- whose shelves are looked at
-- what cannot be pushed for so long waits for a partition or a quota; what ended must not fill the memory meanwhile
local OUTBOX_MS = 3600000

-- Whether all daemons are through the barrier of that life: no living member is not, and it is noted that all had the
-- time to join it, so no daemon's opinion of the others can be late.
function Settled.is_settled(identity)
  local settled, behind = unpack(redis.call('HMGET', K.life, 'settled', 'behind'))
  call.behind = behind
  return settled == identity and Members.all_through(identity)
end

-- Notes that all daemons are through, and had the time to join.
function Settled.note_settled(identity, now_ms)
  if redis.call('HGET', K.life, 'settled') ~= identity then
    redis.call('HSET', K.life, 'settled', identity, 'settled_at', digits(now_ms))
  end
end

-- JQD_UNSETTLED unless it is settled.
function Settled.expect_settled(identity)
  if not Settled.is_settled(identity) then
    fail('JQD_UNSETTLED', 'life')
  end
end

-- The same, also while a member has ordinary jobs left to tell again (behind.lua): "nobody has it" is no answer before.
function Settled.expect_restored(identity)
  Settled.expect_settled(identity)
  if Behind.is_any() then
    fail('JQD_UNSETTLED', 'jobs')
  end
end

-- Whether nothing is left, either, of what follows the outcomes that were told again. Until then what has ended must
-- not be deleted: its cancel, its name, its ending may be all that keeps what is still told from beginning anew.
function Settled.is_told(identity, now_ms)
  if not Settled.is_settled(identity) then
    return false
  end
  local at = tonumber(redis.call('HGET', K.life, 'settled_at') or nil) or 0
  if at == 0 or now_ms - at > OUTBOX_MS then
    return true
  end
  local waits = {K.outbox}
  for place, tenant in ipairs(redis.call('ZRANGE', K.shelves, 0, TENANTS - 1)) do
    waits[place + 1] = shelf_key(tenant)
  end
  for _, key in ipairs(waits) do
    local since_ms = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or nil)
    if since_ms and since_ms <= at then
      return false
    end
  end
  return true
end

-- JQD_UNSETTLED unless all that is told.
function Settled.expect_told(identity, now_ms)
  if not Settled.is_told(identity, now_ms) then
    fail('JQD_UNSETTLED', 'life')
  end
end
