#!lua flags=allow-oom
-- Notes that jobs under reserved names are in a journal: they will come, so the same push again is a duplicate.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, then per job: name, id, digest, revision
-- Returns  number of names that this is the latest content of
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE, JQD_ARGUMENT; none after the first write
-- Cost     O(names)
--@include fail keys life
local FIRST, FIELDS = 3, 4

expect('names', 'life')
expect_life(ARGV[2])
if (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  fail('JQD_ARGUMENT', 'names')
end
local confirmed = 0
for at = FIRST, #ARGV, FIELDS do
  local name, id, digest, revision = ARGV[at], ARGV[at + 1], ARGV[at + 2], number(ARGV[at + 3], 'revision')
  local row = redis.call('HGET', K.names, name) or '0 '
  if tonumber(row:match('^%d+')) <= revision then
    redis.call('HSET', K.names, name, string.format('%.0f', revision) .. ' ' .. id .. ' 0 ' .. digest)
    confirmed = confirmed + 1
  end
end
return confirmed
