-- Keeps what a daemon counted; each row replaces the daemon's row for the same time. Drops rows that are too old, and
-- the oldest if there are too many.
-- ARGV     now_ms, identity of the store, the daemon's name for its counts, then per row: its minutes, when they began
--          (ms), how long such rows are kept (ms), how many of them there may be, bytes
-- Returns  number of rows kept; those of a time to come are not
-- Errors   JQD_STORE_CHANGED; none after the first write
-- Cost     O((rows + dropped) · log kept), dropped at most 200 a row
register('put_history', {}, function()
  local now_ms = clock(ARGV[1])
  local daemon = ARGV[3]
  local FIRST, FIELDS = 4, 5
  local DROPPED = 200
  local AHEAD_MS = 600000  -- by which clocks may differ; a row of next year would be the newest for a year

  Life.expect_life(ARGV[2])
  local kept = 0
  for at = FIRST, #ARGV, FIELDS do
    local rows, order, began_ms = K.history .. ARGV[at], K.historic .. ARGV[at], tonumber(ARGV[at + 1])
    if began_ms <= now_ms + AHEAD_MS then
      local field = digits(began_ms) .. ' ' .. daemon
      redis.call('HSET', rows, field, ARGV[at + 4])
      redis.call('ZADD', order, began_ms, field)
      kept = kept + 1
    end
    local gone = redis.call('ZRANGE', order, '-inf', now_ms - tonumber(ARGV[at + 2]), 'BYSCORE', 'LIMIT', 0, DROPPED)
    local over = redis.call('ZCARD', order) - tonumber(ARGV[at + 3])
    if over > #gone then
      gone = redis.call('ZRANGE', order, 0, math.min(over, DROPPED) - 1)
    end
    for _, field in ipairs(gone) do
      redis.call('ZREM', order, field)
      redis.call('HDEL', rows, field)
    end
  end
  return kept
end)
