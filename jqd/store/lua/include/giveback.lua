-- Emptying a hand. Needs keys, move, early.
-- Gives give_back(sysid, below, limit, bytes_max, now_ms): returns jobs claimed under fences lower than `below`, at most
-- `limit`, and how many left the hand. Each job is added before it is removed; one that has not come yet just drops.
local function give_back(sysid, below, limit, bytes_max, now_ms)
  local held = held_key(sysid)
  local ids = redis.call('ZRANGE', held, '-inf', '(' .. below, 'BYSCORE', 'LIMIT', 0, limit)
  local rows = rows_within(ids, bytes_max)
  for position, row in ipairs(rows) do
    return_job(ids[position], row, now_ms)
    redis.call('ZREM', held, ids[position])
    drop_early(ids[position])
  end
  return #rows
end
