-- Returns followers that wait for the quota of their tenant, the oldest first. Their shelf then rests.
-- ARGV     now_ms, "=" and a tenant, or nothing: the one whose shelf has been due longest, rest_ms, number to skip,
--          limit, bytes_max
-- Returns  the tenant, then entries, one at least; nothing: no shelf is due, or it has no more
-- Errors   none
-- Cost     O(log tenants + log entries + limit), and the bytes
register('get_shelf', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local tenant, rest_ms, skip = ARGV[2]:match('^=(.*)$'), tonumber(ARGV[3]), tonumber(ARGV[4])
  local limit, bytes_max = tonumber(ARGV[5]), tonumber(ARGV[6])

  if not tenant then
    local first, last = redis.call('ZRANGE', K.shelves, 0, 0, 'WITHSCORES'),
      redis.call('ZRANGE', K.shelves, -1, -1, 'WITHSCORES')
    if first[1] and tonumber(first[2]) <= now_ms then
      tenant = first[1]
    elseif last[1] and tonumber(last[2]) > now_ms + rest_ms then  -- the clock was set back
      tenant = last[1]
    else
      return {}
    end
  end
  local answer = {tenant}
  local found = Outbox.read(shelf_key(tenant), skip, limit, bytes_max, answer)
  redis.call('ZADD', K.shelves, now_ms + rest_ms, tenant)
  Outbox.tidy(tenant)
  return found > 0 and answer or {}
end)
