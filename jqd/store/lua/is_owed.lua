#!lua flags=no-writes
-- Whether followers of a tenant wait to be pushed, in the outbox or on its shelf: they move between both.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, tenant, entries
-- Returns  for each 1 or 0
-- Errors   JQD_WRONG_TYPE
-- Cost     O(entries), and the bytes
--@include fail keys
local shelf = shelf_key(ARGV[2])

expect('outbox')
expect_kind(shelf, 'shelf')
local there, here = redis.call('ZMSCORE', shelf, unpack(ARGV, 3)), redis.call('ZMSCORE', K.outbox, unpack(ARGV, 3))
local answer = {}
for at = 1, #ARGV - 2 do
  answer[at] = (there[at] or here[at]) and 1 or 0
end
return answer
