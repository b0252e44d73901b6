-- Leases jobs of one jobtype: smallest priority first, then lines in turn, each from its front.
-- ARGV     now_ms, sysid, epoch, jobtype, limit, priority_min, priority_max, bytes_max, identity of the store as the
--          caller knows it: nothing is given while a living member is not through the barrier of that life; alone_ms: how
--          long a suspect runs alone, a job that was in hand when daemons died; how suspects are taken: alone (by an empty
--          hand), company (by any), none; version of the matchers that the caller knows (shared/limits.lua);
--          number of the last rule it was told (follow_settings), nothing where that does not matter; nothing, or where jobs age the period (ms), the rank
--          that none is to be behind and the priority by which the jobtype was found (shared/ages.lua)
-- Returns  fence; "again" when there may be more at once, "version" when the caller knows other matchers than the store, "unheard" when
--          it has not heard of workers that get nothing for now, or nothing; then flat: id, row, tries row or nil,
--          row of `generation` or nil.
--          Jobs whose queue was found by other matchers were not checked: the caller does that
-- Errors   JQD_STALE_OWNER, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(members + (limit + lines that may not go on, VISITS at most) · log lines), and the bytes; and stale hints, some STALE at most
register('get_waiting_jobs', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local sysid, epoch, jobtype = ARGV[2], number(ARGV[3], 'epoch'), ARGV[4]
  local limit, bytes_max = number(ARGV[5], 'limit'), number(ARGV[8], 'bytes_max')
  local priority_min, priority_max = number(ARGV[6], 'priority_min'), number(ARGV[7], 'priority_max')
  local identity, alone_ms, suspects, version = ARGV[9], number(ARGV[10], 'alone_ms'), ARGV[11], ARGV[12]
  local rules_at, ages = ARGV[13], ARGV[14]

  expect('jobs', 'tries', 'fence', 'members', 'life', 'deaths', 'generation', 'about')
  local held = held_key(sysid)
  expect_kind(held, 'held')
  Lines.expect_type(jobtype)
  Members.own(sysid, epoch)

  local life_id, its_version, backed_off = unpack(redis.call('HMGET', K.life, 'id', 'version', 'backed_off'))
  if not Life.is_life(identity, life_id) or not Members.all_through(identity) or Deaths.runs_alone(sysid, now_ms, alone_ms) then
    return {'0', ''}
  elseif (its_version or '') ~= version then
    return {'0', 'version'}
  elseif rules_at ~= '' and (tonumber(backed_off or nil) or 0) > number(rules_at, 'rules_at') then
    return {'0', 'unheard'}
  end
  local EXPIRE = 100  -- at once; where more have expired, those that were chosen are looked at by name
  local many_expired = Expire.expire_due(now_ms, EXPIRE) == EXPIRE
  local period_ms, bound, wanted = ages:match('^(%d+) (%-?%d+) (%-?%d+)$')
  local wish = {
    jobtype = jobtype, limit = limit, least = priority_min, most = priority_max, version = version, now_us = now_us,
    period_ms = tonumber(period_ms) or 0, bound = tonumber(bound) or math.huge, wanted = tonumber(wanted),
    may = suspects == 'company' or suspects == 'alone' and redis.call('ZCARD', held) == 0,
  }
  local chosen = Choose.choose(wish)
  local ids, more = chosen.ids, chosen.is_short and 'again' or ''
  if many_expired and #ids > 0 and Expire.expire_of(ids, now_ms) > 0 then
    Counts.write_counts(now_ms)
    return {'0', 'again'}
  end
  if #ids == 0 then
    Choose.settle(chosen, 0, {}, 0, wish)
    Counts.write_counts(now_ms)
    return {'0', more}
  end
  local rows = Move.rows_within(ids, bytes_max)
  local function of(key)
    return redis.call('EXISTS', key) == 1 and redis.call('HMGET', key, unpack(ids, 1, #rows)) or {}
  end

  local tries, generations = of(K.tries), of(K.generation)
  local waits = Choose.verify(chosen, rows, generations)
  local fence = Members.next_fence(now_us)
  local claim = digits(fence)
  local answer, filled = {claim, more}, 2
  local first, again, changed = {}, {}, {}  -- that never failed, and that did; that may have begun anew while an attempt went on elsewhere
  for position, row in ipairs(rows) do
    local id = ids[position]
    if waits[position] then
      answer[filled + 1], answer[filled + 2] = id, row
      answer[filled + 3], answer[filled + 4] = tries[position] or false, generations[position] or false
      filled = filled + 4
      local its = Counts.have_failed(tries[position]) and again or first
      its[#its + 1] = id
      changed[#changed + 1] = generations[position] and id or nil
    else
      answer[2] = 'again'
    end
  end
  if call.has_limits and #changed > 0 then
    About.look(changed)
    for _, id in ipairs(changed) do
      Parked.take_out(id)
    end
  end
  if #first + #again > 0 then
    About.claim(sysid, fence, first, again)
    if chosen.alone and suspects == 'alone' then
      Deaths.alone_until(sysid, ids[1], now_ms + alone_ms)
    end
  end
  Choose.settle(chosen, #rows, waits, fence, wish)
  Parked.left(now_us)
  Counts.moved(jobtype, 'waiting', 'running', first)
  Counts.moved(jobtype, 'retrying', 'running', again)
  Counts.write_counts(now_ms)
  return answer
end)
