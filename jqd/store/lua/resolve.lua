-- Returns the ids of jobs under names that their pushers chose.
-- ARGV     now_ms, identity of the store, 1: not if a name is only reserved, by a push that did not come in time; then
--          names
-- Returns  per name: id, or nil: no job has it, or that is deleted
-- Errors   JQD_STORE_CHANGED, JQD_UNSETTLED: a journal may have the job, JQD_BAD_VALUE
-- Cost     O(members + names)
register('resolve', {'no-writes'}, function()
  local now_ms = clock(ARGV[1])
  local identity, promised = ARGV[2], ARGV[3] == '1'
  local FIRST = 4

  Life.expect_life(identity)
  local found, is_short = {}, false
  for at = FIRST, #ARGV do
    local id, until_ms = (redis.call('HGET', K.names, ARGV[at]) or ''):match('^%d+ (%S+) (%d+) ')
    local lapsed = promised and until_ms and until_ms ~= '0' and tonumber(until_ms) <= now_ms
    found[#found + 1] = not lapsed and id or false
    is_short = is_short or not id or lapsed
  end
  if is_short then
    Settled.expect_settled(identity)
  end
  return found
end)
