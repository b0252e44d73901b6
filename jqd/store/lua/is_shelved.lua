#!lua flags=no-writes
-- Whether followers wait for the quota of a tenant.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, tenant, entries
-- Returns  for each 1 or 0
-- Errors   JQD_WRONG_TYPE
-- Cost     O(entries), and the bytes
--@include fail keys
local shelf = shelf_key(ARGV[2])

expect_kind(shelf, 'shelf')
local answer = {}
for at, since_ms in ipairs(redis.call('ZMSCORE', shelf, unpack(ARGV, 3))) do
  answer[at] = since_ms and 1 or 0
end
return answer
