#!lua flags=allow-oom
-- These jobs were made by the outcomes of others, and are pushed.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, then per pair: parent, child
-- Returns  number of pairs
-- Errors   JQD_WRONG_TYPE
-- Cost     O(pairs · log children)
--@include fail keys now
local NOT_TOLD = 9007199254740991  -- the last stage there is (links.lua): they wait for nothing, so the parent owes them nothing

expect('linked', 'jobs', 'ended')
local parents, linked = {}, {}
for at = 2, #ARGV, 2 do
  expect_kind(K.children .. ARGV[at], 'children')
  parents[#parents + 1] = ARGV[at]
end
-- Nearly all have just ended, which one call tells of all; to read their rows would bring their arguments, too.
local ended = #parents > 0 and redis.call('ZMSCORE', K.ended, unpack(parents)) or {}
for place, parent in ipairs(parents) do
  if ended[place] or redis.call('HEXISTS', K.jobs, parent) == 1 then
    redis.call('ZADD', K.children .. parent, 'LT', digits(NOT_TOLD), ARGV[2 * place + 1])
    linked[#linked + 1], linked[#linked + 2] = 0, parent
  end
end
if #linked > 0 then
  redis.call('ZADD', K.linked, unpack(linked))
end
return #parents
