-- Whether this life of the store has all that its daemons' journals know. Until then a missing job may still come.
local TENANTS = 1000  -- whose shelves are looked at
-- after which followers wait for a partition or a quota; meanwhile ended jobs must not fill the memory
local OUTBOX_MS = 3600000

-- Returns whether all members came through recovery in that life, and it was noted that all had the time to join: so no
-- daemon's knowledge can be missing.
function Settled.is_settled(identity)
  local settled, behind = unpack(redis.call('HMGET', K.life, 'settled', 'behind'))
  call.behind = behind
  return settled == identity and Members.all_through(identity)
end

-- Notes that all daemons came through, and had the time to join.
function Settled.note_settled(identity, now_ms)
  if redis.call('HGET', K.life, 'settled') ~= identity then
    redis.call('HSET', K.life, 'settled', identity, 'settled_at', digits(now_ms))
  end
end

-- Fails with JQD_UNSETTLED unless it is settled.
function Settled.expect_settled(identity)
  if not Settled.is_settled(identity) then
    fail('JQD_UNSETTLED', 'life')
  end
end

-- Fails also while a member has ordinary jobs to apply again (behind.lua): "nobody has it" is no answer before.
function Settled.expect_restored(identity)
  Settled.expect_settled(identity)
  if Behind.is_any() then
    fail('JQD_UNSETTLED', 'jobs')
  end
end

-- Returns whether the followers of outcomes that were applied again are all pushed, too. Until then nothing that ended
-- may be deleted: its cancel, name or end may be all that keeps a job from beginning anew.
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

-- Fails with JQD_UNSETTLED unless these followers are pushed.
function Settled.expect_told(identity, now_ms)
  if not Settled.is_told(identity, now_ms) then
    fail('JQD_UNSETTLED', 'life')
  end
end
