-- Raises a daemon's heartbeat and returns all of them.
-- ARGV     now_ms, sysid, epoch, identity of the store, 1 if it is through recovery in that life, 1 to settle the store
--          if all are; 1 if the answer to its last renewal came, so that its cancels need not be repeated; 1 if no job
--          of its is left to be applied again (behind.lua)
-- Returns  1 if this life is settled; sysids of members with jobs left; flat: id and fence of held jobs of ours that
--          were cancelled since the last answered renewal, or that a later claim, applied again, took from us; then
--          flat: sysid, "counter:epoch:identity"
-- Errors   JQD_STORE_CHANGED, JQD_STALE_OWNER, JQD_BAD_VALUE; none after the first write
-- Cost     O(members + cancels asked)
register('renew_sysid', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local sysid, epoch = ARGV[2], tonumber(ARGV[3])
  local identity, through, settle, answered = ARGV[4], ARGV[5] == '1', ARGV[6] == '1', ARGV[7] == '1'
  local has_restored = ARGV[8] == '1'
  local ASKED_MAX = 500  -- cancels in one answer; the next renewal gets the others

  -- by the fence that is to stop; below 0 once it was sent, until an answer came
  local key = K.asked .. sysid
  local is_asked = redis.call('EXISTS', key) == 1
  -- Checked first: an owner that an emptied store does not know was not revoked.
  Life.expect_life(identity)
  Members.own(sysid, epoch)
  local counter, _, was = Members.member(sysid)
  local settled, behind = unpack(redis.call('HMGET', K.life, 'settled', 'behind'))
  call.behind = behind
  if through and was ~= identity then
    redis.call('HDEL', K.life, 'sat:' .. sysid)  -- it came through: earlier joins do not count any more
  end
  Members.set_member(sysid, math.max(counter + 1, now_us), epoch, through and identity or '')
  if not through then
    Behind.note(sysid, epoch)
  elseif has_restored then
    Behind.drop(sysid)
  end
  if settle and Members.all_through(identity) then
    Settled.note_settled(identity, now_ms)
    settled = identity
  end
  local sent = answered and is_asked and redis.call('ZRANGE', key, '-inf', '(0', 'BYSCORE', 'LIMIT', 0, ASKED_MAX) or {}
  if #sent > 0 then
    redis.call('ZREM', key, unpack(sent))
  end
  local rows, ids, asked = is_asked and redis.call('ZRANGE', key, 0, ASKED_MAX - 1, 'WITHSCORES') or {}, {}, {}
  for at = 1, #rows, 2 do
    ids[#ids + 1] = rows[at]
  end
  local holds = About.look(ids)
  for at, id in ipairs(ids) do
    -- When the answer comes, the job may be here again under a later claim, which nobody asked to stop. A job that
    -- another daemon has by now is named: that may be why ours is to stop.
    local hold, fence = holds[id], math.abs(tonumber(rows[2 * at]))
    local is_ours = hold and hold.sysid == sysid and hold.fence == fence
    if is_ours or hold and hold.sysid ~= sysid and hold.fence > fence then
      asked[#asked + 1], asked[#asked + 2] = id, digits(fence)
      redis.call('ZADD', key, digits(-fence), id)
    else
      redis.call('ZREM', key, id)
    end
  end
  return {settled == identity and 1 or 0, Behind.members(), asked, unpack(redis.call('HGETALL', K.members))}
end)
