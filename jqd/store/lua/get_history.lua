-- Returns what daemons counted, the oldest first.
-- ARGV     now_ms, identity of the store, minutes of a row, ms and field behind which to begin (no field: at that ms),
--          limit of rows and of bytes; one row comes in any case
-- Returns  now_ms, when the oldest row began (ms) or nil, 1: there may be more, flat: field, ms, bytes
-- Errors   JQD_STORE_CHANGED
-- Cost     O((log rows)² + limit) and the bytes
register('get_history', {'no-writes'}, function()
  local now_ms = clock(ARGV[1])
  local minutes, from_ms, from_field = ARGV[3], tonumber(ARGV[4]), ARGV[5]
  local limit, most_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])
  local rows, order = K.history .. minutes, K.historic .. minutes

  Life.expect_life(ARGV[2])
  local oldest = redis.call('ZRANGE', order, 0, 0, 'WITHSCORES')[2] or false
  local first = Order.rank_of(order, from_ms, from_field, true)
  local found = redis.call('ZRANGE', order, first, first + limit - 1, 'WITHSCORES')
  local answer, bytes, more = {}, 0, #found == 2 * limit
  for at = 1, #found, 2 do
    local row = redis.call('HGET', rows, found[at]) or ''
    bytes = bytes + #row
    if at > 1 and bytes > most_bytes then
      more = true
      break
    end
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = found[at], found[at + 1], row
  end
  return {digits(now_ms), oldest, more and 1 or 0, answer}
end)
