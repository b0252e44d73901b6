-- Returns ids in some places, from the highest score down, of equal scores the newest first. A filter uses only what is
-- read without a view: ids that are left out do not match, others may not match either.
-- ARGV     1    now_ms
--          2    limit of ids of each place
--          3    limit of ids to be looked at in all places together
--          4    tenant, or * for all
--          5    jobtype or nothing; for all tenants each one's jobtype of that name
--          6    how the jobs ended, or nothing
--          7    tag, or nothing
--          8    1: only jobs of which an attempt ended or may have
--          then for each place: name (ready, loose, later, held, ended, dead); jobtype or sysid or nothing; score and
--               id before which to begin, or nothing twice
-- Returns  per place: score and id of the last that was looked at, or as given; 1: that was all; how many were looked
--          at; flat: id, score
-- Errors   none
-- Cost     O(places · (log rows)² + ids looked at), and if a filter needs them bytes of outcomes and rows: some
--          BYTES_MAX
register('list_ids', {'no-writes'}, function()
  local limit, rows_max = tonumber(ARGV[2]), tonumber(ARGV[3])
  local tenant, wanted, how, tag, is_tried = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8] == '1'
  local of_some = tenant ~= '*' or wanted ~= ''
  local FIRST, FIELDS = 9, 4
  local CHUNK = 250  -- ids read together
  local BYTES_MAX = 2 * 1024 * 1024  -- of outcomes and rows in one call, or a few more: a millisecond or two
  local OUTCOMES = 25  -- read together, of some 80 KB at most
  local JOBTYPE, TAGS = 2, 10  -- places in a row's header


  local function key_of(name, suffix)
    return name == 'ready' and ready_key(suffix) or name == 'held' and held_key(suffix)
      or name == 'loose' and K.loose .. suffix or K[name]
  end

  -- Returns up to `count` members before (score, id) in a set, or the last ones, if that is nothing.
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

  -- Merges two such lists.
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

  local function is_wanted(jobtype)
    local whose, bare = jobtype:match('^(.-)\31(.*)$')
    if tenant == '*' then
      return wanted == '' or jobtype == wanted or bare == wanted
    end
    return (whose or '') == tenant and (wanted == '' or jobtype == wanted)
  end

  -- Returns whether a row may match: by its tag, and by its jobtype unless the outcome told that.
  local function may_be(row, is_of_them)
    if not row or tag ~= '' and not row:find(tag, 1, true) then
      return not row and tag == ''
    end
    local fields = unpacked(row)
    if type(fields[JOBTYPE]) ~= 'string' then
      return true  -- it cannot be read: whoever reads the job reports that
    elseif not is_of_them and not is_wanted(fields[JOBTYPE]) then
      return false
    elseif tag == '' then
      return true
    end
    for _, job_tag in ipairs(type(fields[TAGS]) == 'table' and fields[TAGS] or {}) do
      if job_tag == tag then
        return true
      end
    end
    return false
  end

  -- Returns whether an ended job may match, and whether its outcome told the jobtype: that is short, and a row brings
  -- its argument. A later content may have another jobtype.
  local function may_have_ended_so(id, kept)
    local ended_how, as_type = Stands.ended_as(kept or nil)
    if kept and how ~= '' and ended_how ~= how then
      return false, true
    elseif not of_some then
      return true, true
    elseif not kept or (as_type or '') == '' or call.has_changes and redis.call('HEXISTS', K.generation, id) == 1 then
      return true, false
    end
    return is_wanted(as_type:match('^[^\30]*')), true
  end

  -- Returns whether an attempt of a job ended, or may have. The outcome may be long, so it is not read.
  local function has_tried(id)
    return redis.call('HEXISTS', K.tries, id) == 1 or redis.call('HEXISTS', K.outcome, id) == 1
  end

  -- Notes which of ids[first .. last] may match, as far as `bytes` allow. Returns the last of them, and the bytes left.
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

  -- Returns how many of these ids, from the first on, `bytes` allow to look at; the bytes left; which may match.
  local function fitting(name, ids, bytes)
    local fit, seen = {}, 0
    while seen < #ids and bytes > 0 do
      seen, bytes = note_fitting(name, ids, seen + 1, math.min(#ids, seen + OUTCOMES), fit, bytes)
    end
    return seen, bytes, fit
  end

  local pages, bytes, rows_left = {}, BYTES_MAX, rows_max
  local places = (#ARGV - FIRST + 1) / FIELDS
  for place = 1, places do
    local at = FIRST + (place - 1) * FIELDS
    local name, suffix, score, id = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local found, is_all, looked = {}, false, 0
    local share = math.max(1, math.floor(rows_left / (places - place + 1)))  -- so that each place gets on
    local is_sparse = tag ~= '' or is_tried or how ~= '' or of_some and name ~= 'ready' and name ~= 'loose'
    while not is_all and #found / 2 < limit and looked < share and bytes > 0 do
      local count = math.min(is_sparse and CHUNK or limit, share - looked)
      local some, ids = ids_before(name, suffix, id ~= '' and tonumber(score) or 0, id, count), {}
      for position = 1, #some, 2 do
        ids[#ids + 1] = some[position]
      end
      local seen, fit = #ids, nil
      if is_sparse and #ids > 0 then
        seen, bytes, fit = fitting(name, ids, bytes)
      end
      is_all = seen == #ids and #ids < count
      for position = 1, seen do
        id, score, looked = ids[position], some[2 * position], looked + 1
        if not fit or fit[position] then
          found[#found + 1], found[#found + 2] = id, score
          if #found / 2 == limit then
            is_all = is_all and position == seen
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
