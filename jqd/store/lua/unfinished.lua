-- Returns which of some jobs are here and have not ended, or failed.
-- ARGV     now_ms, identity of the store, 1: failed ones, too, then ids, or "=" and own ids
-- Returns  these, as they were given
-- Errors   JQD_STORE_CHANGED
-- Cost     O(ids · log ended)
register('unfinished', {'no-writes'}, function()
  local dead_too = ARGV[3] == '1'
  local FIRST = 4

  Life.expect_life(ARGV[2])
  local found = {}
  for at = FIRST, #ARGV do
    local id = Links.given_id(ARGV[at])
    if id and redis.call('HEXISTS', K.jobs, id) == 1 and (not Move.has_ended(id)
        or dead_too and redis.call('ZSCORE', K.dead, id)) then
      table.insert(found, ARGV[at])
    end
  end
  return found
end)
