#!lua flags=no-writes
-- How jobs ended, those in the dead set too.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity as the caller knows it, then ids
-- Returns  flat: id, outcome, row of `generation` or nothing, of those that ended and of which it is known
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE
-- Cost     O(ids · log ended), and the bytes of the outcomes
--@include fail keys order heads life move
local FIRST = 3

expect('ended', 'dead', 'outcome', 'generation', 'life')
expect_life(ARGV[2])
local found = {}
for at = FIRST, #ARGV do
  local id = ARGV[at]
  local outcome = has_ended(id) and redis.call('HGET', K.outcome, id)
  if outcome then
    found[#found + 1], found[#found + 2] = id, outcome
    found[#found + 1] = redis.call('HGET', K.generation, id) or ''
  end
end
return found
