-- Moves followers of a tenant whose quota is spent onto its shelf, so that those behind them in the outbox are found.
-- ARGV     now_ms, tenant, rest_ms until the shelf is due, entries
-- Returns  how many were in the outbox
-- Errors   none
-- Cost     O(entries · log entries), and the bytes
register('put_off', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local tenant, rest_ms = ARGV[2], tonumber(ARGV[3])

  local moved = Outbox.move(K.outbox, shelf_key(tenant), 4)
  if moved > 0 and not redis.call('ZSCORE', K.shelves, tenant) then
    redis.call('ZADD', K.shelves, now_ms + rest_ms, tenant)
  end
  return moved
end)
