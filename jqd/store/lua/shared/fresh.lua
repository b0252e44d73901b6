-- New jobs under their pushers' own ids, many at once. Of nearly all of them the store knows only the name that it
-- gave: these are *fresh*. Any other goes to exchange.lua.
local STEP = 500  -- at once: `unpack` ends a function at some 8,000 words

local function may_be_fresh(change, now_ms)
  return not change.follows and not change.was_here and change.name ~= '' and change.digest ~= ''
    and change.eligible_at_ms <= now_ms and change.revision == change.generation
    and Ageing.score_of(change.priority, change.id, change.eligible_at_ms, change.generation) == change.priority
end

-- Returns id → row of its name, or true if that row is there already, for the fresh ones of these changes.
local function choose_fresh(some)
  local ids, names, notes, late, contents = {}, {}, {}, {}, {}
  for at, change in ipairs(some) do
    local id, place = change.id, 5 * at
    ids[at], names[at], late[at] = id, change.name, 'z' .. id
    contents[2 * at - 1], contents[2 * at] = id, 'c' .. id
    notes[place - 4], notes[place - 3], notes[place - 2], notes[place - 1], notes[place] = 's' .. id, 'd' .. id,
      'c' .. id, 'r' .. id, 'o' .. id
  end
  local rows, tries, ends = redis.call('HMGET', K.jobs, unpack(ids)), redis.call('HMGET', K.tries, unpack(ids)),
    redis.call('HMGET', K.outcome, unpack(late))
  local changes, noted = call.has_changes and redis.call('HMGET', K.generation, unpack(contents)) or {},
    redis.call('ZMSCORE', K.tombstones, unpack(notes))
  local fresh, given = {}, redis.call('HMGET', K.names, unpack(names))
  for at, change in ipairs(some) do
    local place = 5 * at
    local is_known = rows[at] or tries[at] or ends[at] or changes[2 * at - 1] or changes[2 * at]
    local is_noted = noted[place - 4] or noted[place - 3] or noted[place - 2] or noted[place - 1] or noted[place]
    local prefix = change.revision_text .. ' ' .. change.id .. ' '
    if not is_known and not is_noted and given[at] and given[at]:sub(1, #prefix) == prefix then
      local row = prefix .. '0 ' .. change.digest
      fresh[change.id] = given[at] == row or row
    end
  end
  return fresh
end

local function place_all(fresh)
  local groups, order = {}, {}
  for _, change in ipairs(fresh) do
    local key = change.priority .. ' ' .. change.jobtype
    if not groups[key] then
      groups[key] = {jobtype = change.jobtype, priority = change.priority}
      order[#order + 1] = groups[key]
    end
    table.insert(groups[key], change.id)
  end
  for _, group in ipairs(order) do
    Pages.add_waiting(group.jobtype, group.priority, group)
  end
  Index.write()
  for _, change in ipairs(fresh) do
    Expire.forget_expiry(change.id)
    Expire.note_expiry({change.id}, change.expires_at_ms)
  end
  return order
end

-- Adds fresh jobs: sets first, rows second, as for jobs without a name.
local function bring(fresh, names)
  local taken, noted, rows, generations, highest = {}, {}, {}, {}, 0
  for at, change in ipairs(fresh) do
    local id, place = change.id, 2 * at
    if names[id] ~= true then
      taken[#taken + 1], taken[#taken + 2] = change.name, names[id]
    end
    noted[place - 1], noted[place], rows[place - 1], rows[place] = 'n' .. change.name, 'p' .. id, id, change.row
    generations[place - 1], generations[place] = id, change.revision_text .. ':' .. change.revision_text
    highest = math.max(highest, change.revision)
  end
  Change.go_on_above(highest)
  if #taken > 0 then
    redis.call('HSET', K.names, unpack(taken))
  end
  redis.call('ZREM', K.tombstones, unpack(noted))
  local groups = place_all(fresh)
  redis.call('HSET', K.jobs, unpack(rows))
  redis.call('HSET', K.generation, unpack(generations))
  call.has_changes = true
  for _, group in ipairs(groups) do
    Counts.moved(group.jobtype, nil, 'waiting', group)
  end
end

-- Applies the fresh ones of these changes and counts them. Returns the other changes, in order, and how many jobs came.
-- What may have come before a job is asked once for all jobs: a call for each would cost more than all else.
function Fresh.apply_fresh(changes, now_ms)
  local met, left, brought = {}, {}, 0
  for _, change in ipairs(changes) do
    met[change.id], met['n' .. change.name] = (met[change.id] or 0) + 1, (met['n' .. change.name] or 0) + 1
  end
  for first = 1, #changes, STEP do
    local some, fresh = {}, {}
    for at = first, math.min(first + STEP - 1, #changes) do
      local change = changes[at]
      if call.early == 0 and met[change.id] == 1 and met['n' .. change.name] == 1 and may_be_fresh(change, now_ms) then
        some[#some + 1] = change
      else
        left[#left + 1] = change
      end
    end
    local names = #some > 0 and choose_fresh(some) or {}
    for _, change in ipairs(some) do
      local list = names[change.id] and fresh or left
      list[#list + 1] = change
    end
    if #fresh > 0 then
      bring(fresh, names)
      brought = brought + #fresh
    end
  end
  return left, brought
end
