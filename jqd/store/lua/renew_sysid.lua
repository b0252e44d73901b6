-- Raises this daemon's heartbeat and shows everybody's.
-- ARGV     now_ms, sysid, epoch, identity of the store as the caller knows it, 1 when it is through the barrier of that
--          life, 1 to note that all are, if so; 1 when the answer to its last renewal came: what that told need not be
--          told again; 1 when none of its jobs is left to be told again either (behind.lua)
-- Returns  1 when this life is settled; sysids of members that have jobs left; flat: id and fence of those in our hand
--          whose cancel was asked since the last renewal that was heard, or that a later claim, told again, took out of
--          it; then flat: sysid, "counter:epoch:identity"
-- Errors   JQD_STORE_CHANGED, JQD_STALE_OWNER, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(members + cancels asked)
register('renew_sysid', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')
  local identity, through, settle, answered = ARGV[4], ARGV[5] == '1', ARGV[6] == '1', ARGV[7] == '1'
  local has_restored = ARGV[8] == '1'
  local ASKED_MAX = 500  -- told at once; the next renewal tells the rest

  -- under the fence that is to stop; below 0 from the first telling until an answer was heard
  local key = K.asked .. sysid
  local is_asked = redis.call('EXISTS', key) == 1
  -- Checked first: an owner that an emptied store does not know was not burnt.
  Life.expect_life(identity)
  Members.own(sysid, epoch)
  local counter, _, was = Members.member(sysid)
  local settled, behind = unpack(redis.call('HMGET', K.life, 'settled', 'behind'))
  call.behind = behind
  if through and was ~= identity then
    redis.call('HDEL', K.life, 'sat:' .. sysid)  -- who came through is not one who never does
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
  local told = answered and is_asked and redis.call('ZRANGE', key, '-inf', '(0', 'BYSCORE', 'LIMIT', 0, ASKED_MAX) or {}
  if #told > 0 then
    redis.call('ZREM', key, unpack(told))
  end
  local rows, ids, asked = is_asked and redis.call('ZRANGE', key, 0, ASKED_MAX - 1, 'WITHSCORES') or {}, {}, {}
  for at = 1, #rows, 2 do
    ids[#ids + 1] = rows[at]
  end
  local holds = About.look(ids)
  for at, id in ipairs(ids) do
    -- The answer may come when the job is here again under a later claim, which nobody asked to stop. One that another
    -- daemon has by now is told: it may be ours to stop because of that.
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
