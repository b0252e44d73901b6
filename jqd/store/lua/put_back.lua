-- Moves followers that wait for something else than their tenant's quota back into the outbox; they keep their dates.
-- ARGV     now_ms, tenant, entries
-- Returns  how many were on its shelf
-- Errors   none
-- Cost     O(entries · log entries), and the bytes
register('put_back', {'allow-oom'}, function()
  local tenant = ARGV[2]

  local moved = Outbox.move(shelf_key(tenant), K.outbox, 3)
  Outbox.tidy(tenant)
  return moved
end)
