-- Returns followers that are to be pushed, the oldest first.
-- ARGV     now_ms, their least age in ms (0: any), since_ms they came, number to skip, limit, bytes_max
-- Returns  now_ms, dates of the oldest and the newest entry, or nothing, number of tenants with shelves, then entries:
--          one at least, if there is one
-- Errors   none
-- Cost     O(log entries + limit), and the bytes
register('get_outbox', {'no-writes'}, function()
  local now_ms = clock(ARGV[1])
  local age_ms, since_ms, skip = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
  local limit, bytes_max = tonumber(ARGV[5]), tonumber(ARGV[6])

  local oldest = redis.call('ZRANGE', K.outbox, 0, 0, 'WITHSCORES')[2]
  local newest = redis.call('ZRANGE', K.outbox, -1, -1, 'WITHSCORES')[2]
  local answer = {digits(now_ms), oldest or '', newest or '', redis.call('ZCARD', K.shelves)}
  -- By rank: by date the server would step over all that are skipped.
  local first = skip + (since_ms > 0 and redis.call('ZCOUNT', K.outbox, '-inf', '(' .. digits(since_ms)) or 0)
  -- the clock was set back: entries from before are returned, whatever their age
  local is_back = newest and tonumber(newest) > now_ms
  local behind = age_ms > 0 and not is_back and redis.call('ZCOUNT', K.outbox, '-inf', digits(now_ms - age_ms))
    or redis.call('ZCARD', K.outbox)
  Outbox.read(K.outbox, first, math.min(limit, behind - first), bytes_max, answer)
  return answer
end)
