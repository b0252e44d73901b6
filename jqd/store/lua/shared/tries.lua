-- The failed attempts of a job. `tries` has a row only for jobs that failed, or, with a count of 0 alone, for jobs that
-- may have begun and must not expire any more. Outcomes are in the order of their claims, in whatever order they came.
--
--     ┌─────────┬───────────┬─────────┬───────────┬─────────┬──
--     │ count   │ length    │ outcome │ length    │ outcome │ …    newest first, as `outcome` keeps them (change.lua:
--                                                 MEANT); lengths and count: 4 bytes, big endian
--     └─────────┴───────────┴─────────┴───────────┴─────────┴──
--
-- An attempt that was put off (a snooze) or interrupted is not counted, and replaces such a one right before it: so a
-- job that is put off a thousand times keeps its failures. An empty first outcome says that those behind it are of
-- earlier contents, and no attempt of this one began.
local UNCOUNTED = {snooze = true, interrupted = true}
local NONE = '\0\0\0\0'  -- a row of no attempts

local function is_uncounted(kept)
  local REASON = 12  -- its place in an outcome (job.Outcome); functions can read all before it
  return UNCOUNTED[Outcomes.values(kept, REASON)[REASON] or '']
end

-- Returns the fence in an outcome, and how many attempts were spent by then.
function Tries.tried(kept)
  local FENCE, ATTEMPT = 2, 6
  local values = Outcomes.values(kept, ATTEMPT)
  local spent = tonumber(values[ATTEMPT]) or 0
  return tonumber(values[FENCE]) or 0, is_uncounted(kept) and spent - 1 or spent
end

-- Returns the outcomes in a row, newest first.
local function outcomes_of(row)
  local all, at = {}, 5
  while at + 3 <= #row do
    local length = struct.unpack('>I4', row, at)
    all[#all + 1], at = row:sub(at + 4, at + 3 + length), at + 4 + length
  end
  return all
end

-- Returns the count after an attempt. Its number tells how many had failed when it was claimed.
local function counted(count, attempt, uncounted)
  return uncounted and math.max(count, attempt - 1) or math.max(count + 1, attempt)
end

local function count_told(outcomes, generation)
  local all, count = {}, 0
  for _, kept in ipairs(outcomes) do
    if Change.meant_for(kept) >= generation then
      local _, spent = Tries.tried(kept)
      local uncounted = is_uncounted(kept)
      all[#all + 1] = {uncounted and spent + 1 or spent, uncounted}
    end
  end
  -- not by fence: these go back if a store lost all and has a clock that was set back
  table.sort(all, function(tried, other) return tried[1] < other[1] end)
  for _, tried in ipairs(all) do
    count = counted(count, tried[1], tried[2])
  end
  return count, #all > 0
end

-- Returns how many attempts of that content the outcomes in a row tell of, and whether any does. A later one tells how
-- many were before it, so one that comes after it is mostly counted already.
function Tries.told_in(row, generation) return count_told(outcomes_of(row), generation) end

-- Returns the fence of the latest failed attempt that is kept, or 0.
function Tries.last_of(id)
  local latest = 0
  for _, kept in ipairs(outcomes_of(redis.call('HGET', K.tries, id) or '')) do
    latest = math.max(latest, (Tries.tried(kept)))
  end
  return latest
end

-- Adds a failed attempt. Returns how many failed; whether this one was not known; whether no later one is known. Cost:
-- the bytes of the row. It is put behind outcomes of later claims, even if these came first, from another journal; an
-- attempt with the fence of one that is kept is not counted again. Fence 0 is no claim's.
function Tries.add_try(id, attempt, outcome, history_max)
  local row, fence, uncounted, place = redis.call('HGET', K.tries, id) or NONE, (Tries.tried(outcome)),
    is_uncounted(outcome), 1
  local all = outcomes_of(Move.has_begun(row) and row or row:sub(1, 4) .. row:sub(9))
  local before = #row >= 4 and struct.unpack('>I4', row) or 0
  while all[place] and Tries.tried(all[place]) > fence do
    place = place + 1
  end
  if all[place] and fence ~= 0 and Tries.tried(all[place]) == fence then
    return before, false, place == 1
  end
  local is_kept = place <= history_max and not (uncounted and all[place - 1] and is_uncounted(all[place - 1]))
  local replaces = is_kept and uncounted and all[place] and is_uncounted(all[place])
  local others = {unpack(all, replaces and place + 1 or place)}
  table.insert(all, place, outcome)
  local count = math.max(before, not uncounted and attempt <= before and count_told(all, Change.began(id))
    or counted(before, attempt, uncounted))
  local kept = {struct.pack('>I4', count)}
  for at = 1, place - 1 + (is_kept and 1 or 0) do
    kept[at + 1] = struct.pack('>I4', #all[at]) .. all[at]
  end
  for _, one in ipairs(others) do
    if #kept <= history_max then
      kept[#kept + 1] = struct.pack('>I4', #one) .. one
    end
  end
  redis.call('HSET', K.tries, id, table.concat(kept))
  return count, is_kept or count > before, place == 1
end
