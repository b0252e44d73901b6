-- What went wrong with a job so far: `tries` holds a row only for jobs that failed once. Needs keys.
--
--     ┌─────────┬───────────┬─────────┬───────────┬─────────┬──
--     │ count   │ length    │ outcome │ length    │ outcome │ …    newest first; lengths and count: 4 bytes, big endian
--     └─────────┴───────────┴─────────┴───────────┴─────────┴──
--
-- An attempt that was put off (a snooze) is not counted, and takes the place of one right before it: a job that is put off a thousand
-- times keeps its failures.
-- Gives is_snooze(outcome); add_try(id, attempt, outcome, history_max). Cost: the bytes of the row.
local function is_snooze(outcome)
  local REASON = 12  -- place in an outcome (job.Outcome); what stands before it scripts can read
  local at = outcome:byte(1) == 0xdc and 3 or 1
  local fields = {pcall(cmsgpack.unpack_limit, outcome, REASON, at)}
  return fields[1] and fields[REASON + 2] == 'snooze'
end

local function add_try(id, attempt, outcome, history_max)
  local row = redis.call('HGET', K.tries, id) or ''
  local count, kept, from = 0, 1, 5
  if #row >= 4 then
    count = struct.unpack('>I4', row)
  end
  local snoozed = is_snooze(outcome)
  if snoozed and #row > 4 then
    local length = struct.unpack('>I4', row, from)
    if is_snooze(row:sub(from + 4, from + 3 + length)) then
      from = from + 4 + length
    end
  end
  local at = from
  while kept < history_max and at + 3 <= #row do
    at = at + 4 + struct.unpack('>I4', row, at)
    kept = kept + 1
  end
  count = snoozed and math.max(count, attempt - 1) or math.max(count + 1, attempt)
  redis.call('HSET', K.tries, id, struct.pack('>I4', count) .. struct.pack('>I4', #outcome) .. outcome .. row:sub(from, at - 1))
end
