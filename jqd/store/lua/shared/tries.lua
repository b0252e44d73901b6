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
-- that is told of behind it is mostly counted already. Cost: the bytes of the row.
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

-- Where an outcome of this claim stands in a row: behind those of later claims, though it may be told of after them (by another
-- journal), so that the newest is the latest. Returns that place, how many stand before it, and whether an uncounted one is right before it.
local function behind_later(row, fence)
  local at, later, after_uncounted = 5, 0, false
  while at + 3 <= #row do
    local length = struct.unpack('>I4', row, at)
    local packed = row:sub(at + 4, at + 3 + length)
    if Tries.tried(packed) <= fence then
      break
    end
    at, later, after_uncounted = at + 4 + length, later + 1, is_uncounted(packed)
  end
  return at, later, after_uncounted
end

-- Whether the outcome that stands there is of this claim. An outcome that does not say of which one is of none.
local function is_at(row, place, fence)
  if place + 3 > #row or fence == 0 then
    return false
  end
  local length = struct.unpack('>I4', row, place)
  return Tries.tried(row:sub(place + 4, place + 3 + length)) == fence
end

-- One failure more, or none. The number of an attempt says how many had failed when it was claimed.
local function counted(count, attempt, uncounted)
  return uncounted and math.max(count, attempt - 1) or math.max(count + 1, attempt)
end

function Tries.told_in(row, generation)
  local all, at, count = {}, 5, 0
  while at + 3 <= #row do
    local length = struct.unpack('>I4', row, at)
    local packed = row:sub(at + 4, at + 3 + length)
    local fence, spent = Tries.tried(packed)
    if content_of(packed, fence) >= generation then
      local uncounted = is_uncounted(packed)
      all[#all + 1] = {uncounted and spent + 1 or spent, uncounted}
    end
    at = at + 4 + length
  end
  table.sort(all, function(one, other) return one[1] < other[1] end)  -- fences go back where a store that lost all has a clock that was set back
  for _, one in ipairs(all) do
    count = counted(count, one[1], one[2])
  end
  return count, #all > 0
end

function Tries.add_try(id, attempt, outcome, history_max)
  local row, fence = redis.call('HGET', K.tries, id) or NONE, (Tries.tried(outcome))
  if not Move.has_begun(row) then
    row = row:sub(1, 4) .. row:sub(9)
  end
  local before = #row >= 4 and struct.unpack('>I4', row) or 0
  local count, uncounted = before, is_uncounted(outcome)
  local place, later, after_uncounted = behind_later(row, fence)
  local own, kept, from = struct.pack('>I4', #outcome) .. outcome, later + 1, place
  if is_at(row, place, fence) then
    return count, false, later == 0
  elseif later >= history_max or uncounted and after_uncounted then
    own, kept = '', later
  elseif uncounted and place + 3 <= #row then
    local length = struct.unpack('>I4', row, place)
    if is_uncounted(row:sub(place + 4, place + 3 + length)) then
      from = place + 4 + length
    end
  end
  local at = from
  while kept < history_max and at + 3 <= #row do
    at = at + 4 + struct.unpack('>I4', row, at)
    kept = kept + 1
  end
  if uncounted or attempt > before then
    count = counted(before, attempt, uncounted)
  else
    local generation = tonumber((redis.call('HGET', K.generation, id) or ''):match('^%d+:(%d+)') or nil) or 0
    local framed = struct.pack('>I4', #outcome) .. outcome
    count = math.max(before, (Tries.told_in(row:sub(1, place - 1) .. framed .. row:sub(place), generation)))
  end
  redis.call('HSET', K.tries, id, struct.pack('>I4', count) .. row:sub(5, place - 1) .. own .. row:sub(from, at - 1))
  return count, own ~= '' or count > before, later == 0
end
