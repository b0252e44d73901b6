-- Leases jobs of one jobtype: smallest priority first, then oldest.
-- ARGV     now_ms, sysid, epoch, jobtype, limit, priority_min, priority_max, bytes_max, identity of the store as the
--          caller knows it: nothing is given while a living member is not through the barrier of that life; alone_ms: how
--          long a suspect runs alone, a job that was in hand when daemons died; how suspects are taken: alone (by an empty
--          hand), company (by any), none; version of the matchers that the caller knows (shared/limits.lua);
--          number of the last rule it was told (follow_settings), nothing where that does not matter; nothing, or where jobs age the period (ms), the rank
--          that none is to be behind and the priority by which the jobtype was found (shared/ageing.lua)
-- Returns  fence; "again" when there may be more at once, "version" when the caller knows other matchers than the store, "unheard" when
--          it has not heard of workers that get nothing for now, or nothing; then flat: id, row (nil when it is gone: that id was dropped), tries row or nil,
--          row of `generation` or nil.
--          Jobs whose queue was found by other matchers were not checked: the caller does that
-- Errors   JQD_STALE_OWNER, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(members + (limit + suspects, PASSED at most) · log waiting), and the bytes; and of suspects, while there are any
register('get_waiting_jobs', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local sysid, epoch, jobtype = ARGV[2], number(ARGV[3], 'epoch'), ARGV[4]
  local limit, bytes_max = number(ARGV[5], 'limit'), number(ARGV[8], 'bytes_max')
  local priority_min, priority_max = number(ARGV[6], 'priority_min'), number(ARGV[7], 'priority_max')
  local identity, alone_ms, suspects, version = ARGV[9], number(ARGV[10], 'alone_ms'), ARGV[11], ARGV[12]
  local rules_at, ages = ARGV[13], ARGV[14]

  local held = held_key(sysid)
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
  local passed = call.has_deaths and Deaths.learn_suspects() or 0  -- so many may wait before the others: all that the daemons that died had in hand
  local may = suspects == 'company' or suspects == 'alone' and redis.call('ZCARD', held) == 0
  local function may_not(id) return call.has_deaths and Deaths.is_suspect(id) end

  local alone, ids, more = false, {}, ''
  local finish  -- takes those of `ids` that were given out of where they wait; whether the best priority of the jobtype is as it was

  local function choose_of_one()
    local where, heads, all
    all, where, heads = Pages.first_of(jobtype, limit + passed, priority_min, priority_max)
    alone = call.has_deaths and may and #all > 0 and Deaths.is_suspect(all[1])
    if alone then
      ids = {all[1]}
    elseif call.has_deaths then
      for _, id in ipairs(all) do
        if #ids < limit and not Deaths.is_suspect(id) then
          table.insert(ids, id)
        end
      end
    else
      ids = all
    end
    finish = function(taken) return Pages.take(jobtype, taken, where, heads) end
  end

  local choose_by, forget_dates = Choose.choose, nil
  if ages ~= '' then  -- nobody else pays for making these
    local period_ms, bound, wanted = ages:match('^(%d+) (%-?%d+) (%-?%d+)$')
    Ageing.begin(number(period_ms, 'period_ms'))
    call.bound, call.wanted = tonumber(bound), tonumber(wanted)
    choose_by, forget_dates = Elder.choose, Ageing.forget
  end

  -- A suspect is taken alone; a daemon that may not take it takes the jobs behind it meanwhile.
  local function choose_of_many()
    local order, opened, is_short
    local function choose_first(most)
      call.bucket_states = {}
      ids, order, opened, is_short = choose_by(jobtype, most, passed, priority_min, priority_max, version, may_not, now_us)
    end
    if call.has_deaths and may then
      ids, order, opened = choose_by(jobtype, 1, 0, priority_min, priority_max, version, function() return false end, now_us)
      alone = #ids > 0 and Deaths.is_suspect(ids[1])
    end
    if not alone then
      choose_first(limit)
      more = is_short and 'again' or ''
    end
    finish = function(taken, fence)
      local given, are_all = {}, #taken == #ids
      for _, id in ipairs(are_all and #order == 0 and {} or taken) do
        given[id] = true
      end
      Settle.settle_queues(order, opened, given, are_all, fence, now_us)
    end
  end

  if call.has_keyed or ages ~= '' then
    choose_of_many()
  else
    choose_of_one()
  end
  if many_expired and #ids > 0 and Expire.expire_of(ids, now_ms) > 0 then
    Pages.mend_type(jobtype)
    Counts.write_counts(now_ms)
    return {'0', 'again'}
  end
  if #ids == 0 then
    if finish and call.has_keyed then
      finish({}, 0)
    end
    Pages.mend_type(jobtype)
    Counts.write_counts(now_ms)
    return {'0', more}
  end
  local rows = Move.rows_within(ids, bytes_max)
  local function of(key)
    return redis.call('EXISTS', key) == 1 and redis.call('HMGET', key, unpack(ids, 1, #rows)) or {}
  end

  local tries, generations = of(K.tries), of(K.generation)
  local fence = Members.next_fence(now_us)
  local claim = digits(fence)
  local answer, taken, filled = {claim, more}, {}, 2
  local first, again, changed = {}, {}, {}  -- that never failed, and that did; that may have begun anew while an attempt went on elsewhere
  for position, row in ipairs(rows) do
    local id = ids[position]
    answer[filled + 1], answer[filled + 2] = id, row
    answer[filled + 3], answer[filled + 4] = tries[position] or false, generations[position] or false
    filled = filled + 4
    if row then
      local its = Counts.have_failed(tries[position]) and again or first
      its[#its + 1] = id
      changed[#changed + 1] = generations[position] and id or nil
    else
      call.gone[id], call.has_gone = true, true
    end
    taken[position] = id
  end
  if call.has_keyed and #changed > 0 then
    About.look(changed)
    for _, id in ipairs(changed) do
      Parked.take_out(id)
    end
  end
  if #first + #again > 0 then
    About.claim(sysid, fence, first, again)
    if alone and suspects == 'alone' then
      Deaths.alone_until(sysid, ids[1], now_ms + alone_ms)
    end
  end
  local is_as_it_was = finish(taken, fence)
  if forget_dates then
    forget_dates(taken)
  end
  Parked.left(now_us)
  if not is_as_it_was then
    Pages.mend_type(jobtype)
  end
  Counts.moved(jobtype, 'waiting', 'running', first)
  Counts.moved(jobtype, 'retrying', 'running', again)
  Counts.write_counts(now_ms)
  return answer
end)
