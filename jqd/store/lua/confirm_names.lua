-- Notes that jobs under reserved names are in a journal: they will come, so the same push again is a duplicate.
-- ARGV     1    now_ms
--          2    identity of the store
--          3    ttl_ms of a reservation
--          5    position behind these jobs
--          then for each job: name, id, digest, revision, 1 if it was to replace another
-- Returns  per job: 1: it has its name, or had it until it was replaced; 0: another content has the name; 2: the
--          reservation of a replacement ended and the content to be replaced was changed: that one stays
-- Errors   JQD_STORE_CHANGED; none after the first write
-- Cost     O(names)
-- A job that came from an earlier life of the store ends as cancelled when another is confirmed under its name. If the
-- call is late, the job may have come, ended and been deleted: then a missing name stays so, or it would stand for a
-- job that never comes.
register('confirm_names', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local ttl_ms = tonumber(ARGV[3])
  local FIRST, FIELDS = 6, 5

  Life.expect_life(ARGV[2])

  local has_come = (tonumber(redis.call('HGET', K.applied, ARGV[4]) or nil) or 0) >= tonumber(ARGV[5])

  -- The greatest revision wins, as it does when both are applied. But a later revision of the same content that is only
  -- reserved may never come, and does not win. A revision tells when it was given (µs): a change of the older content
  -- gets one only after the reservation ended.
  local function is_overtaken(id, revision)
    if now_ms - revision / 1000 <= ttl_ms then
      return false
    end
    local rows = redis.call('HMGET', K.generation, id, 'e' .. id)
    local function later(row)
      return (tonumber((row or ''):match('^%d+') or nil) or 0) > revision
    end
    return later(rows[1]) or later(rows[2])
  end

  -- All names are read together and written together: a call for each costs more than all the rest.
  local names, present, rows, notes = {}, {}, {}, {}
  for at = FIRST, #ARGV, FIELDS do
    names[#names + 1] = ARGV[at]
  end
  for place, row in ipairs(#names > 0 and redis.call('HMGET', K.names, unpack(names)) or {}) do
    present[names[place]] = row or ''
  end

  -- Jobs that came from an earlier life after their name was reserved anew lose it.
  local queues, others = {}, {}
  for at = FIRST, #ARGV, FIELDS do
    local name, id = ARGV[at], ARGV[at + 1]
    local given, named, until_ms = present[name]:match('^(%d+) (%S+) (%d+) ')
    if named and named ~= id and until_ms == '0' and tonumber(given) <= tonumber(ARGV[at + 3]) then
      others[name], queues[#queues + 1] = named, Move.header(redis.call('HGET', K.jobs, named) or '')
    end
  end
  Queues.learn_paged(queues)

  local function stands(name, id, digest, revision, replaces)
    local row = present[name]
    if replaces and is_overtaken(id, revision) then
      return 2
    end
    local later, named, until_ms, known = row:match('^(%d+) (%S+) (%d+) (%S*)$')
    if named == id and until_ms == '0' and tonumber(later) == revision then
      return 1  -- the job was applied
    elseif not later and has_come then
      return 1
    end
    if others[name] then
      Exchange.supersede(others[name], now_ms)
    end
    if not later or tonumber(later) <= revision or (named == id and known == digest and until_ms ~= '0') then
      present[name] = string.format('%.0f', revision) .. ' ' .. id .. ' 0 ' .. digest
      rows[#rows + 1], rows[#rows + 2] = name, present[name]
      notes[#notes + 1], notes[#notes + 2] = now_ms, 'n' .. name
      notes[#notes + 1], notes[#notes + 2] = now_ms, 'p' .. id
      return 1
    end
    return named == id and until_ms == '0' and (known == digest or replaces) and 1 or 0
  end

  local answer = {}
  for at = FIRST, #ARGV, FIELDS do
    table.insert(answer, stands(ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]),
      ARGV[at + 4] == '1'))
  end
  Counts.write_counts(now_ms)
  if #rows > 0 then
    redis.call('HSET', K.names, unpack(rows))
    Index.call_with(notes, 'ZADD', K.tombstones)
  end
  return answer
end)
