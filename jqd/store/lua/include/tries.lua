-- What went wrong with a job so far: `tries` holds a row only for jobs that failed once. Needs keys.
--
--     ┌─────────┬───────────┬─────────┬───────────┬─────────┬──
--     │ count   │ length    │ outcome │ length    │ outcome │ …    newest first; lengths and count: 4 bytes, big endian
--     └─────────┴───────────┴─────────┴───────────┴─────────┴──
--
-- Gives add_try(id, attempt, outcome, history_max). Cost: the bytes of the row.
local function add_try(id, attempt, outcome, history_max)
  local row = redis.call('HGET', K.tries, id) or ''
  local count, kept, at = 0, 1, 5
  if #row >= 4 then
    count = struct.unpack('>I4', row)
  end
  while kept < history_max and at + 3 <= #row do
    at = at + 4 + struct.unpack('>I4', row, at)
    kept = kept + 1
  end
  count = math.max(count + 1, attempt)
  redis.call('HSET', K.tries, id, struct.pack('>I4', count) .. struct.pack('>I4', #outcome) .. outcome .. row:sub(5, at - 1))
end
