-- Returns jobs that failed, by date. Leaves out this very millisecond, in which more may fail, under lower ids.
-- ARGV     now_ms, identity of the store, ms and id behind which to begin (no id: at that ms), limit
-- Returns  now_ms, flat: id, ms
-- Errors   JQD_STORE_CHANGED
-- Cost     O((log dead)² + limit)
register('list_failed', {'no-writes'}, function()
  local now_ms = clock(ARGV[1])
  local from_ms, from_id, limit = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])

  Life.expect_life(ARGV[2])
  local first = Order.rank_of(K.dead, from_ms, from_id, true)
  local rows = redis.call('ZRANGE', K.dead, first, first + limit - 1, 'WITHSCORES')
  while #rows > 0 and tonumber(rows[#rows]) >= now_ms do
    rows[#rows], rows[#rows - 1] = nil, nil
  end
  return {digits(now_ms), rows}
end)
