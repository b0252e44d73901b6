-- Returns whether followers are to be pushed: they are in the outbox or on their tenant's shelf, and move between both.
-- ARGV     now_ms, tenant, entries
-- Returns  for each 1 or 0
-- Errors   none
-- Cost     O(entries), and the bytes
register('is_owed', {'no-writes'}, function()
  local shelf, ENTRIES = shelf_key(ARGV[2]), 3

  local answer = redis.call('ZMSCORE', shelf, unpack(ARGV, ENTRIES))
  for at, score in ipairs(redis.call('ZMSCORE', K.outbox, unpack(ARGV, ENTRIES))) do
    answer[at] = (score or answer[at]) and 1 or 0
  end
  return answer
end)
