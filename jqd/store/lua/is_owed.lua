#!lua flags=no-writes
-- Whether followers wait to be pushed, in the outbox or on a shelf: they move between both.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, "=" and the tenant on whose shelf they may lie, or nothing: on any, how many shelves to look at then, entries
-- Returns  for each 1 or 0; 1, too, where there are more shelves than are looked at
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(entries), and the bytes; of any shelf: as often as there are shelves
--@include fail keys
local tenant, shelves_max = ARGV[2]:match('^=(.*)$'), number(ARGV[3], 'shelves_max')

expect('outbox', 'shelves')
local tenants = tenant and {tenant} or redis.call('ZRANGE', K.shelves, 0, shelves_max)
local answer, unsure = {}, not tenant and #tenants > shelves_max
for at, score in ipairs(redis.call('ZMSCORE', K.outbox, unpack(ARGV, 4))) do
  answer[at] = (score or unsure) and 1 or 0
end
for at = 1, unsure and 0 or #tenants do
  local shelf = shelf_key(tenants[at])
  expect_kind(shelf, 'shelf')
  for place, score in ipairs(redis.call('ZMSCORE', shelf, unpack(ARGV, 4))) do
    if score then
      answer[place] = 1
    end
  end
end
return answer
