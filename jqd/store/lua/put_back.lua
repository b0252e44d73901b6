-- Lays followers that wait for something else than the quota of their tenant back into the outbox, as old as they are.
-- ARGV     now_ms, tenant, entries
-- Returns  how many lay on its shelf
-- Errors   none
-- Cost     O(entries · log entries), and the bytes
register('put_back', {'allow-oom'}, function()
  local tenant = ARGV[2]

  local moved = 0
  for at = 3, #ARGV do
    local came_ms = redis.call('ZSCORE', shelf_key(tenant), ARGV[at])  -- none: another daemon has done something with it
    if came_ms then
      redis.call('ZREM', shelf_key(tenant), ARGV[at])
      redis.call('ZADD', K.outbox, 'LT', came_ms, ARGV[at])
      moved = moved + 1
    end
  end
  if redis.call('EXISTS', shelf_key(tenant)) == 0 then
    redis.call('ZREM', K.shelves, tenant)
  end
  return moved
end)
