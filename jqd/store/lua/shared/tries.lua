-- What went wrong with a job so far: `tries` holds a row only for jobs that failed once, or (a count of 0 alone) may have begun and must not expire any more.
--
--     ┌─────────┬───────────┬─────────┬───────────┬─────────┬──
--     │ count   │ length    │ outcome │ length    │ outcome │ …    newest first; lengths and count: 4 bytes, big endian
--     └─────────┴───────────┴─────────┴───────────┴─────────┴──
--
-- An attempt that was put off (a snooze) or interrupted is not counted, and takes the place of such a one right before it: a job that is put off a
-- thousand times keeps its failures.
-- A first outcome of no bytes says that those behind it are of contents before this one, of which no attempt began.
-- Gives tried(outcome) → fence, attempts spent; add_try(id, attempt, outcome, history_max) → attempts that failed,
-- whether that says anything new: one that was told before is not counted once more, and whether no later one is known;
-- told_in(row, generation) → how many attempts of that content its outcomes tell of, whether any: a later one says how many were before it, so one
-- that is told of behind it is mostly counted already; last_of(id) → the latest claim of which the store knows that its attempt failed, of those that are kept, or 0. Cost: the bytes of the row.
local UNCOUNTED = {snooze = true, interrupted = true}
local NONE = '\0\0\0\0'  -- a row of no attempts

local function is_uncounted(outcome)
  local REASON = 12  -- place in an outcome (job.Outcome); what stands before it functions can read
  return UNCOUNTED[Outcomes.values(outcome, REASON)[REASON] or '']
end

-- The fence in a packed outcome, and how many attempts were spent then.
function Tries.tried(packed)
  local FENCE, ATTEMPT = 2, 6
  local values = Outcomes.values(packed, ATTEMPT)
  local spent = tonumber(values[ATTEMPT]) or 0
  return tonumber(values[FENCE]) or 0, is_uncounted(packed) and spent - 1 or spent
end

local LENGTHS = {[0xc4] = 1, [0xd9] = 1, [0xc5] = 2, [0xda] = 2, [0xc6] = 4, [0xdb] = 4}  -- bytes of the length, by the first byte

-- The place behind a text or bytes. The server's own reader does not know bytes.
local function behind_text(packed, at)
  local bytes, size = LENGTHS[packed:byte(at + 1)], 0
  if not bytes then
    return at + 1 + packed:byte(at + 1) - 0xa0
  end
  for place = at + 2, at + 1 + bytes do
    size = 256 * size + packed:byte(place)
  end
  return at + 1 + bytes + size
end

-- The latest content that it may be of, as `meant_for` has it of endings: a change may be given its number, then the older content be
-- claimed, and the change come after that has failed. That of a first content names none.
local function content_of(packed, fence)
  local BEFORE = 12  -- values that the server can read; behind them error, message, result (bytes, text, bytes), a boolean, the generation
  local good, generation = pcall(function()
    local at = cmsgpack.unpack_limit(packed, BEFORE, packed:byte(1) == 0xdc and 3 or 1)
    local _, found = cmsgpack.unpack_limit(packed, 1, behind_text(packed, behind_text(packed, behind_text(packed, at))) + 1)
    return tonumber(found)
  end)
  return good and generation and generation > 0 and generation or fence - 1
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
  for _, packed in ipairs(outcomes) do
    local fence, spent = Tries.tried(packed)
    if content_of(packed, fence) >= generation then
      local uncounted = is_uncounted(packed)
      all[#all + 1] = {uncounted and spent + 1 or spent, uncounted}
    end
  end
  table.sort(all, function(one, other) return one[1] < other[1] end)  -- fences go back where a store that lost all has a clock that was set back
  for _, one in ipairs(all) do
    count = counted(count, one[1], one[2])
  end
  return count, #all > 0
end

function Tries.told_in(row, generation) return told_of(outcomes_of(row), generation) end

function Tries.last_of(id)
  local latest = 0
  for _, packed in ipairs(outcomes_of(redis.call('HGET', K.tries, id) or '')) do
    latest = math.max(latest, (Tries.tried(packed)))
  end
  return latest
end

-- An outcome stands behind those of later claims, though it may be told of after them (by another journal), so that the newest is the latest. One that does not say of
-- which claim it is is of none.
function Tries.add_try(id, attempt, outcome, history_max)
  local row, fence, uncounted, place = redis.call('HGET', K.tries, id) or NONE, (Tries.tried(outcome)), is_uncounted(outcome), 1
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
  local count = math.max(before, not uncounted and attempt <= before and told_of(all, Change.began(id)) or counted(before, attempt, uncounted))
  local kept = {struct.pack('>I4', count)}
  for at = 1, place - 1 + (is_kept and 1 or 0) do
    kept[at + 1] = struct.pack('>I4', #all[at]) .. all[at]
  end
  for _, packed in ipairs(others) do
    if #kept <= history_max then
      kept[#kept + 1] = struct.pack('>I4', #packed) .. packed
    end
  end
  redis.call('HSET', K.tries, id, table.concat(kept))
  return count, is_kept or count > before, place == 1
end
