-- Ids that lie in some places, from the highest score down: of equal scores the newest first. Of a filter what is told
-- without a view: who is left out does not fit, who is told may not fit either.
-- ARGV     1    now_ms
--          2    ids for each place
--          3    ids to be looked at in all places together
--          4    tenant, or * for all
--          5    jobtype or nothing; of all tenants: that name of each
--          6    how they ended, or nothing
--          7    tag, or nothing
--          8    1: an attempt of theirs ended or may have
--          then for each place: name (ready, loose, later, held, ended, dead); jobtype or sysid or nothing; score and
--               id before which to begin, or nothing twice
-- Returns  per place: score and id of the last that was looked at, or as it was asked for; 1: that was all there is;
--          how many were looked at; flat: id, score
-- Errors   JQD_ARGUMENT
-- Cost     O(places · (log rows)² + ids looked at), and where a filter needs them the bytes of outcomes and rows: some
--          BYTES_MAX
register('list_ids', {'no-writes'}, function()
  local limit, rows_max = number(ARGV[2], 'limit'), number(ARGV[3], 'rows')
  local tenant, wanted, how, tag, is_tried = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8] == '1'
  local of_some = tenant ~= '*' or wanted ~= ''
  local FIRST, FIELDS = 9, 4
  local CHUNK = 250  -- read at once
  local BYTES_MAX = 2 * 1024 * 1024  -- of outcomes and rows in one call, and some more than fit: a millisecond or two
  local OUTCOMES = 25  -- read at once, of some 80 KB at most
  local JOBTYPE, TAGS = 2, 10  -- places in a row's header


  local function key_of(name, suffix)
    local key = name == 'ready' and ready_key(suffix) or name == 'held' and held_key(suffix)
      or name == 'loose' and K.loose .. suffix or K[name]
    if not key then
      fail('JQD_ARGUMENT', 'place')
    end
    return key
  end

  -- At most `count` that come before (score, id) in a set, or last when that is nothing.
  local function set_before(key, score, id, count)
    local found, stop = {}, id == '' and redis.call('ZCARD', key) or Order.rank_of(key, score, id)
    local start = math.max(0, stop - count)
    if stop > start then
      local rows = redis.call('ZRANGE', key, start, stop - 1, 'WITHSCORES')
      for position = #rows - 1, 1, -2 do
        table.insert(found, (rows[position]:match('^[^:]*')))
        table.insert(found, rows[position + 1])
      end
    end
    return found
  end

  local function paged_before(jobtype, score, id, count)
    local found, backlog = {}, Queues.backlog_key(jobtype)
    local rank = id == '' and redis.call('ZCARD', backlog) or Order.rank_of(backlog, score, id)
    while rank > 0 and #found / 2 < count do
      rank = rank - 1
      local first, priority = unpack(redis.call('ZRANGE', backlog, rank, rank, 'WITHSCORES'))
      local ids = redis.call('LRANGE', Queues.page_key(first, jobtype), 0, -1)
      for at = #ids, 1, -1 do
        if #found / 2 < count and (id == '' or Order.precedes(tonumber(priority), ids[at], score, id)) then
          table.insert(found, ids[at])
          table.insert(found, priority)
        end
      end
    end
    return found
  end

  -- Two such lists as one.
  local function merged(ones, others, count)
    local found, one, other = {}, 1, 1
    while #found / 2 < count and (ones[one] or others[other]) do
      if not others[other]
          or ones[one] and Order.precedes(tonumber(others[other + 1]), others[other], tonumber(ones[one + 1]),
            ones[one]) then
        table.insert(found, ones[one])
        table.insert(found, ones[one + 1])
        one = one + 2
      else
        table.insert(found, others[other])
        table.insert(found, others[other + 1])
        other = other + 2
      end
    end
    return found
  end

  local function ids_before(name, suffix, score, id, count)
    local found = set_before(key_of(name, suffix), score, id, count)
    if name == 'ready' and Queues.paged_of(suffix) > 0 then
      found = merged(found, paged_before(suffix, score, id, count), count)
    end
    return found
  end

  local function is_wanted(its)
    local whose, bare = its:match('^(.-)\31(.*)$')
    if tenant == '*' then
      return wanted == '' or its == wanted or bare == wanted
    end
    return (whose or '') == tenant and (wanted == '' or its == wanted)
  end

  -- Whether a row may be of a job that is looked for: by its tag, and its jobtype unless its outcome told that.
  local function may_be(row, is_of_them)
    if not row or tag ~= '' and not row:find(tag, 1, true) then
      return not row and tag == ''
    end
    local fields = unpacked(row)
    if type(fields[JOBTYPE]) ~= 'string' then
      return true  -- whoever looks at it tells what is wrong
    elseif not is_of_them and not is_wanted(fields[JOBTYPE]) then
      return false
    elseif tag == '' then
      return true
    end
    for _, one in ipairs(type(fields[TAGS]) == 'table' and fields[TAGS] or {}) do
      if one == tag then
        return true
      end
    end
    return false
  end

  -- Of what has ended its outcome tells how, and of which jobtype, unless it has another content since: that is short,
  -- and a row brings its argument. Returns whether it may fit, and whether its jobtype is known so.
  local function may_have_ended_so(id, kept)
    local its_how, its = Stands.ended_as(kept or nil)
    if kept and how ~= '' and its_how ~= how then
      return false, true
    elseif not of_some then
      return true, true
    elseif not kept or (its or '') == '' or call.has_changes and redis.call('HEXISTS', K.generation, id) == 1 then
      return true, false
    end
    return is_wanted(its:match('^[^\30]*')), true
  end

  -- Whether an attempt of it ended, or may have. How it went is not read: that may be long.
  local function has_tried(id)
    return redis.call('HEXISTS', K.tries, id) == 1 or redis.call('HEXISTS', K.outcome, id) == 1
  end

  -- Notes which of ids[first .. last] may fit, as far as `bytes` go. Returns the last of them, and what is left of
  -- these.
  local function note_fitting(name, ids, first, last, fit, bytes)
    local known, asked, places = {}, {}, {}
    local has_ended = (name == 'ended' or name == 'dead') and (of_some or how ~= '')
    local outcomes = has_ended and redis.call('HMGET', K.outcome, unpack(ids, first, last)) or {}
    for at = first, last do
      local id, kept = ids[at], outcomes[at - first + 1]
      bytes = bytes - (kept and #kept or 0)
      fit[at], known[at] = true, not of_some or name == 'ready' or name == 'loose'
      if has_ended then
        fit[at], known[at] = may_have_ended_so(id, kept)
      end
      fit[at] = fit[at] and (not is_tried or has_tried(id))
      if fit[at] and (tag ~= '' or not known[at]) then
        asked[#asked + 1], places[#places + 1] = id, at
      end
    end
    local rows = Move.rows_within(asked, bytes)
    for number, at in ipairs(places) do
      local row = rows[number]
      if row == nil then
        return at - 1, 0
      end
      bytes, fit[at] = bytes - (row and #row or 0), may_be(row, known[at])
    end
    return last, bytes
  end

  -- How many of these ids, from the first on, are told by `bytes`, what is left of these, and which of the ids may fit.
  local function fitting(name, ids, bytes)
    local fit, told = {}, 0
    while told < #ids and bytes > 0 do
      told, bytes = note_fitting(name, ids, told + 1, math.min(#ids, told + OUTCOMES), fit, bytes)
    end
    return told, bytes, fit
  end

  local pages, bytes, rows_left = {}, BYTES_MAX, rows_max
  local places = (#ARGV - FIRST + 1) / FIELDS
  for place = 1, places do
    local at = FIRST + (place - 1) * FIELDS
    local name, suffix, score, id = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local found, is_all, looked = {}, false, 0
    local share = math.max(1, math.floor(rows_left / (places - place + 1)))  -- so that each comes on
    local is_sparse = tag ~= '' or is_tried or how ~= '' or of_some and name ~= 'ready' and name ~= 'loose'
    key_of(name, suffix)
    while not is_all and #found / 2 < limit and looked < share and bytes > 0 do
      local count = math.min(is_sparse and CHUNK or limit, share - looked)
      local some, ids = ids_before(name, suffix, id ~= '' and number(score, 'score') or 0, id, count), {}
      for position = 1, #some, 2 do
        ids[#ids + 1] = some[position]
      end
      local told, fit = #ids, nil
      if is_sparse and #ids > 0 then
        told, bytes, fit = fitting(name, ids, bytes)
      end
      is_all = told == #ids and #ids < count
      for position = 1, told do
        id, score, looked = ids[position], some[2 * position], looked + 1
        if not fit or fit[position] then
          found[#found + 1], found[#found + 2] = id, score
          if #found / 2 == limit then
            is_all = is_all and position == told
            break
          end
        end
      end
    end
    rows_left = rows_left - looked
    pages[place] = {score, id, is_all and 1 or 0, looked, found}
  end
  return pages
end)
