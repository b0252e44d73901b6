#!lua flags=no-writes
-- What some jobs have to do with others.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, number of children to be listed, and of those to be passed over, then ids
-- Returns  per id: its row without its argument, how it stands, number of failed attempts, how many children it has, their ids, its generation (change), when (ms)
--          it ended, or nothing; nil for what is not here
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(ids · (members + children listed))
--@include fail keys now counts order queues heads pages members holder move stands early life tries
local most, skip = number(ARGV[3], 'most'), number(ARGV[4], 'skip')
local FIRST = 5

expect('jobs', 'later', 'ended', 'dead', 'outcome', 'tries', 'life', 'generation')
expect_held_keys()
expect_life(ARGV[2])

for at = FIRST, #ARGV do
  expect_kind(K.children .. ARGV[at], 'children')
end
local answer = {}
for at = FIRST, #ARGV do
  local id = ARGV[at]
  local row = redis.call('HGET', K.jobs, id)
  if row then
    local _, how = how_stands(id)
    local tries = redis.call('HGET', K.tries, id)
    local key = K.children .. id
    answer[#answer + 1] = {
      header_of(row), how, tries and #tries >= 4 and struct.unpack('>I4', tries) or 0, redis.call('ZCARD', key),
      redis.call('ZRANGE', key, skip, skip + most - 1), (redis.call('HGET', K.generation, id) or ''):match(':(%d+)') or '', has_ended(id) or '',
    }
  else
    answer[#answer + 1] = false
  end
end
return answer
