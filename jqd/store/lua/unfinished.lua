#!lua flags=no-writes
-- Which of some jobs are there and have not ended.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity as the caller knows it, then ids
-- Returns  those ids
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE
-- Cost     O(ids · log ended)
--@include fail keys order heads life move
local FIRST = 3

expect('jobs', 'ended', 'dead', 'life')
expect_life(ARGV[2])
local found = {}
for at = FIRST, #ARGV do
  local id = ARGV[at]
  if redis.call('HEXISTS', K.jobs, id) == 1 and not has_ended(id) then
    table.insert(found, id)
  end
end
return found
