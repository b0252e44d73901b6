-- New jobs under their pushers' own ids, many at once: of nearly all changes the store knows nothing but the name that
-- it gave.
local STEP = 500  -- at once: `unpack` ends a function at some 8,000 words

local function may_be_fresh(one, now_ms)
  return not one.follows and not one.was_here and one.name ~= '' and one.digest ~= '' and one.eligible_at_ms <= now_ms
    and one.revision == one.generation and Ageing.score_of(one.priority, one.id, one.eligible_at_ms,
      one.generation) == one.priority
end

-- Those of which the store knows the name, as it gave it, and nothing else: id → row of the name, true where that is
-- confirmed; and all others.
local function choose_fresh(some)
  local ids, names, notes, late, contents = {}, {}, {}, {}, {}
  for at, one in ipairs(some) do
    local id, place = one.id, 5 * at
    ids[at], names[at], late[at] = id, one.name, 'z' .. id
    contents[2 * at - 1], contents[2 * at] = id, 'c' .. id
    notes[place - 4], notes[place - 3], notes[place - 2], notes[place - 1], notes[place] = 's' .. id, 'd' .. id,
      'c' .. id, 'r' .. id, 'o' .. id
  end
  local rows, tries, ends = redis.call('HMGET', K.jobs, unpack(ids)), redis.call('HMGET', K.tries, unpack(ids)),
    redis.call('HMGET', K.outcome, unpack(late))
  local changes, noted = call.has_changes and redis.call('HMGET', K.generation, unpack(contents)) or {},
    redis.call('ZMSCORE', K.tomb, unpack(notes))
  local fresh, given = {}, redis.call('HMGET', K.names, unpack(names))
  for at, one in ipairs(some) do
    local place = 5 * at
    local is_known = rows[at] or tries[at] or ends[at] or changes[2 * at - 1] or changes[2 * at]
    local is_noted = noted[place - 4] or noted[place - 3] or noted[place - 2] or noted[place - 1] or noted[place]
    local its = one.revision_text .. ' ' .. one.id .. ' '
    if not is_known and not is_noted and given[at] and given[at]:sub(1, #its) == its then
      local row = its .. '0 ' .. one.digest
      fresh[one.id] = given[at] == row or row
    end
  end
  return fresh
end

local function place_all(fresh)
  local groups, order = {}, {}
  for _, one in ipairs(fresh) do
    local key = one.priority .. ' ' .. one.jobtype
    if not groups[key] then
      groups[key] = {jobtype = one.jobtype, priority = one.priority}
      order[#order + 1] = groups[key]
    end
    table.insert(groups[key], one.id)
  end
  for _, group in ipairs(order) do
    Pages.add_waiting(group.jobtype, group.priority, group)
  end
  Heads.write()
  for _, one in ipairs(fresh) do
    Expire.forget_expiry(one.id)
    Expire.note_expiry({one.id}, one.expires_at_ms)
  end
  return order
end

-- Sets first, rows second, as for jobs without a name.
local function bring(fresh, names)
  local taken, noted, rows, generations, highest = {}, {}, {}, {}, 0
  for at, one in ipairs(fresh) do
    local id, place = one.id, 2 * at
    if names[id] ~= true then
      taken[#taken + 1], taken[#taken + 2] = one.name, names[id]
    end
    noted[place - 1], noted[place], rows[place - 1], rows[place] = 'n' .. one.name, 'p' .. id, id, one.row
    generations[place - 1], generations[place] = id, one.revision_text .. ':' .. one.revision_text
    highest = math.max(highest, one.revision)
  end
  Change.go_on_above(highest)
  if #taken > 0 then
    redis.call('HSET', K.names, unpack(taken))
  end
  redis.call('ZREM', K.tomb, unpack(noted))
  local groups = place_all(fresh)
  redis.call('HSET', K.jobs, unpack(rows))
  redis.call('HSET', K.generation, unpack(generations))
  call.has_changes = true
  for _, group in ipairs(groups) do
    Counts.moved(group.jobtype, nil, 'waiting', group)
  end
end

-- Applies what is fresh, and counts what it moves. Returns the changes that are left for apply_change, in order, and
-- how many jobs were brought. A call for each of the many things that may have come before a job costs more than all
-- else, so each is asked once for all jobs, and any answer leaves the job to apply_change.
function Fresh.apply_fresh(changes, now_ms)
  local met, left, brought = {}, {}, 0
  for _, one in ipairs(changes) do
    met[one.id], met['n' .. one.name] = (met[one.id] or 0) + 1, (met['n' .. one.name] or 0) + 1
  end
  for first = 1, #changes, STEP do
    local some, fresh = {}, {}
    for at = first, math.min(first + STEP - 1, #changes) do
      local one = changes[at]
      if call.early == 0 and met[one.id] == 1 and met['n' .. one.name] == 1 and may_be_fresh(one, now_ms) then
        some[#some + 1] = one
      else
        left[#left + 1] = one
      end
    end
    local names = #some > 0 and choose_fresh(some) or {}
    for _, one in ipairs(some) do
      local list = names[one.id] and fresh or left
      list[#list + 1] = one
    end
    if #fresh > 0 then
      bring(fresh, names)
      brought = brought + #fresh
    end
  end
  return left, brought
end
