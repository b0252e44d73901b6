-- Makes a daemon a member under a new epoch. Jobs that its earlier epochs hold have lower fences, by which
-- `give_back` finds them.
-- ARGV     now_ms, sysid, 1 if no other process lives under this sysid, identity of the store, 1 if it is through
--          recovery in that life: otherwise the store is not settled any more; joins_max, soon_ms, the last fence that
--          the caller saw, so that a member that joined under this sysid since is left alone, or nothing; period_ms of
--          ageing (shared/ageing.lua); 1 if it has jobs to apply again, although it is through (behind.lua)
-- Returns  epoch; an earlier epoch that was not revoked, for that daemon died, or 0. Epoch 0: refused for now, for the
--          daemon joined again and again without coming through; the others do not wait for it
-- Errors   JQD_STORE_CHANGED, JQD_STALE_OWNER, JQD_SYSID_TAKEN, JQD_BAD_VALUE; none after the first write
-- Cost     O(members)
register('reserve_sysid', {'allow-oom'}, function()
  local _, now_us = clock(ARGV[1])
  local sysid, previous_epoch_dead = ARGV[2], ARGV[3] == '1'
  local identity, through, seen = ARGV[4], ARGV[5] == '1', ARGV[8]

  Life.expect_life(identity)
  local counter, present = Members.member(sysid)
  if present and seen ~= '' and present > tonumber(seen) then
    fail('JQD_STALE_OWNER', digits(present))  -- this call was under way for long, and a later one made it a member
  elseif present and present ~= 0 and not previous_epoch_dead then
    fail('JQD_SYSID_TAKEN', digits(present))
  end
  -- Field "sat:<sysid>" of `life`: how often the daemon joined in this life without coming through, each time soon
  -- after the last, and when it last did.
  local joins_max, soon_us = tonumber(ARGV[6]), tonumber(ARGV[7]) * 1000
  local function others_are_members()
    local rows = redis.call('HGETALL', K.members)
    for at = 1, #rows, 2 do
      if rows[at] ~= sysid and select(2, Members.member_of(rows[at + 1])) ~= 0 then
        return true
      end
    end
    return false
  end

  -- An earlier join was not soon before.
  local function forget_joins()
    local rows = redis.call('HGETALL', K.life)
    for at = 1, #rows, 2 do
      local sat_us = rows[at]:sub(1, 4) == 'sat:' and rows[at + 1]:match('^%d+ (%d+) ')
      if sat_us and now_us - sat_us > soon_us then
        redis.call('HDEL', K.life, rows[at])
      end
    end
  end

  if not through then
    local field = 'sat:' .. sysid
    local times, at, life = (redis.call('HGET', K.life, field) or ''):match('^(%d+) (%d+) (.*)$')
    times = life == identity and now_us - at <= soon_us and tonumber(times) or 0
    if times >= joins_max and others_are_members() then
      if present then
        Members.set_member(sysid, counter, 0, '')  -- a daemon that is through gives its jobs back
      end
      return {'0', '0'}
    end
    redis.call('HSET', K.life, field, math.min(times + 1, joins_max) .. ' ' .. digits(now_us) .. ' ' .. identity)
    redis.call('HDEL', K.life, 'settled')
    forget_joins()
  end
  local epoch = Members.next_fence(now_us)
  Members.set_member(sysid, math.max((counter or 0) + 1, now_us), epoch, through and identity or '')
  if not through or ARGV[10] == '1' or Behind.is_noted(sysid) then
    Behind.note(sysid, epoch)
  end
  Ageing.say_period(sysid, tonumber(ARGV[9]))
  return {digits(epoch), digits(present or 0)}
end)
