-- Leases jobs of one jobtype: smallest priority first, then oldest.
-- ARGV     1    now_ms
--          2    sysid
--          3    epoch
--          4    jobtype
--          5    limit
--          6    priority_min
--          8    bytes_max
--          9    identity of the store for the caller: nothing is given while a living member is not through recovery
--          10   alone_ms: how long a suspect (a job in flight at deaths of daemons) runs alone
--          11   who gets a suspect: alone (a daemon that holds nothing), company (any), none
--          12   version of the matchers that the caller knows (shared/limits.lua)
--          13   number of the last setting that the caller knows (follow_settings), or nothing
--          14…  nothing, or where jobs age (shared/ageing.lua) the worst rank to be given, and the priority by which
--               the jobtype was found
-- Returns  fence; "again": there may be more at once, "version": the caller knows other matchers, "unheard": it does
--          not know which workers are backed off, or nothing; then flat: id, row (nil: it is gone, and the id was
--          dropped), row of `tries` or nil, row of `generation` or nil. Jobs of queues that other matchers found are
--          not checked: the caller does that
-- Errors   JQD_STALE_OWNER, JQD_BAD_VALUE; none after the first write
-- Cost     O(members + (limit + suspects, PASSED at most) · log waiting), and the bytes; with suspects, their number
register('get_waiting_jobs', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local sysid, epoch, jobtype = ARGV[2], tonumber(ARGV[3]), ARGV[4]
  local limit, bytes_max = tonumber(ARGV[5]), tonumber(ARGV[8])
  local priority_min, priority_max = tonumber(ARGV[6]), tonumber(ARGV[7])
  local identity, alone_ms, suspects, version = ARGV[9], tonumber(ARGV[10]), ARGV[11], ARGV[12]
  local rules_at, ages = ARGV[13], ARGV[14]

  local held = held_key(sysid)
  Members.own(sysid, epoch)
  local life_id, its_version, backed_off, unclaimed = unpack(redis.call('HMGET', K.life, 'id', 'version', 'backed_off',
    'unclaimed'))
  if not Life.is_life(identity, life_id) or not Members.all_through(identity)
      or Deaths.runs_alone(sysid, now_ms, alone_ms) then
    return {'0', ''}
  elseif (its_version or '') ~= version then
    return {'0', 'version'}
  elseif rules_at ~= '' and (tonumber(backed_off or nil) or 0) > tonumber(rules_at) then
    return {'0', 'unheard'}
  end
  local EXPIRE = 100  -- at once; if more have expired, the chosen jobs are asked one by one
  local _, many_expired = Expire.expire_due(now_ms, EXPIRE)
  Index.write()
  -- so many jobs may be refused: all that daemons held when they died
  local passed = call.has_deaths and Deaths.learn_suspects() or 0
  local may = call.has_deaths and (suspects == 'company' or suspects == 'alone' and redis.call('ZCARD', held) == 0)
  local function may_not(id) return call.has_deaths and Deaths.is_suspect(id) end

  local alone, ids, more, is_full = false, {}, '', false
  local finish_claim  -- removes the given ones of `ids` from where they wait

  local function choose_of_one(most, from, to)
    local where, heads, all
    all, where, heads = Pages.first_of(jobtype, most + passed, from, to)
    alone = call.has_deaths and may and #all > 0 and Deaths.is_suspect(all[1])
    ids = alone and {all[1]} or call.has_deaths and {} or all
    for _, id in ipairs(call.has_deaths and not alone and all or {}) do
      if #ids < most and not Deaths.is_suspect(id) then
        table.insert(ids, id)
      end
    end
    finish_claim = function(taken) Pages.take(jobtype, taken, where, heads) end
  end

  -- A suspect is given alone; a daemon that may not have it gets the jobs behind it.
  local function choose_of_many(most, from, to)
    local order, opened, is_short
    local function choose(number, beside, refuse)
      call.bucket_states = {}
      ids, order, opened, is_short = Choose.choose(jobtype, number, beside, from, to, version, refuse, now_us)
    end
    if call.has_deaths and may then
      choose(1, 0, function() return false end)
      alone = #ids > 0 and Deaths.is_suspect(ids[1])
    end
    if not alone then
      choose(most, passed, may_not)
      more = is_short and 'again' or ''
    end
    local chosen = #ids
    finish_claim = function(taken, fence)
      local given, are_all = {}, #taken == chosen
      for _, id in ipairs(are_all and #order == 0 and {} or taken) do
        given[id] = true
      end
      Settle.settle_queues(order, opened, given, are_all, fence, now_us)
    end
  end

  local answer, filled, fence, bytes = {}, 2, nil, nil

  -- Claims up to `most` jobs between two scores; `until_id`: only ids before it. Returns how many, and the first that
  -- may start.
  local function claim(most, from, to, until_id)
    if call.has_keyed then
      choose_of_many(most, from, to)
    else
      choose_of_one(most, from, to)
    end
    if many_expired and #ids > 0 and Expire.expire_of(ids, now_ms) then
      more = 'again'
      return 0
    end
    local first_id, number = ids[1], #ids
    while until_id and number > 0 and not Order.before(ids[number], until_id) do
      number = number - 1
    end
    ids = number < #ids and {unpack(ids, 1, number)} or ids
    local rows = {}
    if number > 0 then
      rows, bytes = Move.rows_within(ids, bytes_max, bytes)
      is_full = #rows < number
    end
    if #rows == 0 then
      Index.mend(jobtype)
      if call.has_keyed then
        finish_claim({}, 0)
      end
      return 0, first_id
    end
    local tries = redis.call('EXISTS', K.tries) == 1 and redis.call('HMGET', K.tries, unpack(ids, 1, #rows)) or {}
    local generations = call.has_changes and redis.call('HMGET', K.generation, unpack(ids, 1, #rows)) or {}
    if unclaimed then
      redis.call('HDEL', K.life, 'unclaimed')
      unclaimed = nil
    end
    fence = fence or Members.next_fence(now_us)
    local taken = {}
    local first, again = {}, {}  -- jobs that never failed, and those that did
    for position, row in ipairs(rows) do
      local id = ids[position]
      answer[filled + 1], answer[filled + 2] = id, row
      answer[filled + 3], answer[filled + 4] = tries[position] or false, generations[position] or false
      filled = filled + 4
      if row then
        local same_kind = Counts.have_failed(tries[position]) and again or first
        same_kind[#same_kind + 1] = id
      else
        call.gone[id], call.has_gone = true, true
      end
      taken[position] = id
    end
    if #first + #again > 0 then
      About.claim(sysid, fence, first, again)
      if alone and suspects == 'alone' then
        Deaths.alone_until(sysid, ids[1], now_ms + alone_ms)
      end
    end
    finish_claim(taken, fence)
    Counts.moved(jobtype, 'waiting', 'running', first)
    Counts.moved(jobtype, 'retrying', 'running', again)
    return #rows, first_id
  end

  -- Claims, from the level with the best rank, the jobs that go before those of any other level; then from the next.
  local function claim_by_rank(bound, wanted)
    local FEW = 16
    local function first(from, to)
      local id, score = Queues.first_between(jobtype, from, to)
      local row, before_id = nil, nil
      if call.has_keyed then
        row, before_id = Index.best_keyed(jobtype, from, to)
      end
      local keyed_id = row and row:match('^[^:]*')
      if keyed_id and not (id and Order.precedes(tonumber(score), id, tonumber(before_id), keyed_id)) then
        return keyed_id, before_id
      end
      return id, score
    end
    Ageing.begin(now_ms)
    local levels, left, most = Ageing.levels(priority_min, priority_max, wanted, {}, first), limit, limit
    while left > 0 and more == '' and not alone and not is_full do
      local level = Ageing.refresh(levels, first)
      if not level or level.rank > bound then
        break
      end
      local until_id, next_level = Ageing.until_id(level, bound + 1, ''), levels[2]
      local before_id = next_level and Ageing.until_id(level, next_level.rank, next_level.id) or until_id
      local number, first_id = claim(math.min(left, most), level.score, level.score,
        Order.before(before_id, until_id) and before_id or until_id)
      left, most, may = left - number, math.max(FEW, 2 * number), may and number == 0
      if number == 0 and first_id and level.after ~= first_id then
        level.after = first_id  -- jobs before it may not start
      elseif number == 0 then
        level.from = level.score + Ageing.UNIT  -- on to the next score
      end
    end
  end

  if ages == '' then
    claim(limit, priority_min, priority_max + Ageing.LAST)
  else
    local bound, wanted = ages:match('^(%-?%d+) (%-?%d+)$')
    claim_by_rank(tonumber(bound), tonumber(wanted))
  end
  Parked.left(now_us)
  Counts.write_counts(now_ms)
  answer[1], answer[2] = fence and digits(fence) or '0', more
  return answer
end)
