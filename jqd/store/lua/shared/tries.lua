-- What went wrong with a job so far: `tries` holds a row only for jobs that failed once, or (a count of 0 alone) may
-- have begun and must not expire any more.
--
--     ┌─────────┬───────────┬─────────┬───────────┬─────────┬──
--     │ count   │ length    │ outcome │ length    │ outcome │ …    newest first, as `outcome` keeps them (change.lua:
--                                                 MEANT); lengths and count: 4 bytes, big endian
--     └─────────┴───────────┴─────────┴───────────┴─────────┴──
--
-- An attempt that was put off (a snooze) or interrupted is not counted, and takes the place of such a one right before
-- it: a job that is put off a thousand times keeps its failures. A first outcome of no bytes says that those behind it
-- are of contents before this one, of which no attempt began.
local UNCOUNTED = {snooze = true, interrupted = true}
local NONE = '\0\0\0\0'  -- a row of no attempts

local function is_uncounted(kept)
  local REASON = 12  -- place in an outcome (job.Outcome); what stands before it functions can read
  return UNCOUNTED[Outcomes.values(kept, REASON)[REASON] or '']
end

-- The fence in an outcome, and how many attempts were spent then.
function Tries.tried(kept)
  local FENCE, ATTEMPT = 2, 6
  local values = Outcomes.values(kept, ATTEMPT)
  local spent = tonumber(values[ATTEMPT]) or 0
  return tonumber(values[FENCE]) or 0, is_uncounted(kept) and spent - 1 or spent
end

-- Those of a row, the newest first.
local function outcomes_of(row)
  local all, at = {}, 5
  while at + 3 <= #row do
    local length = struct.unpack('>I4', row, at)
    all[#all + 1], at = row:sub(at + 4, at + 3 + length), at + 4 + length
  end
  return all
end

-- One failure more, or none. The number of an attempt says how many had failed when it was claimed.
local function counted(count, attempt, uncounted)
  return uncounted and math.max(count, attempt - 1) or math.max(count + 1, attempt)
end

local function told_of(outcomes, generation)
  local all, count = {}, 0
  for _, kept in ipairs(outcomes) do
    if Change.meant_for(kept) >= generation then
      local _, spent = Tries.tried(kept)
      local uncounted = is_uncounted(kept)
      all[#all + 1] = {uncounted and spent + 1 or spent, uncounted}
    end
  end
  -- fences go back where a store that lost all has a clock that was set back
  table.sort(all, function(one, other) return one[1] < other[1] end)
  for _, one in ipairs(all) do
    count = counted(count, one[1], one[2])
  end
  return count, #all > 0
end

-- How many attempts of that content the outcomes in a row tell of, and whether any does: a later one says how many were
-- before it, so one that is told of behind it is mostly counted already.
function Tries.told_in(row, generation) return told_of(outcomes_of(row), generation) end

-- The latest claim of which the store knows that its attempt failed, of those that are kept, or 0.
function Tries.last_of(id)
  local latest = 0
  for _, kept in ipairs(outcomes_of(redis.call('HGET', K.tries, id) or '')) do
    latest = math.max(latest, (Tries.tried(kept)))
  end
  return latest
end

-- Adds an attempt that failed. Returns how many did; whether that says anything new: one that was told before is not
-- counted once more; whether no later one is known. Cost: the bytes of the row. An outcome stands behind those of later
-- claims, though it may be told of after them (by another journal), so that the newest is the latest. One that does not
-- say of which claim it is is of none.
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
  local count = math.max(before, not uncounted and attempt <= before and told_of(all, Change.began(id))
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
